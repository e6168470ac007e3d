"""`edgespec plan` for several environments: one output, the worst exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from edgespec import fleet
from edgespec.cli.output import print_diagnostics, print_json, print_lines, print_text, say
from edgespec.cli.plan_file import plan_folder, write_plan
from edgespec.diagnostics import Diagnostics, EdgespecError, error
from edgespec.fleet import EnvironmentPlan
from edgespec.plan.model import Request
from edgespec.render import budget as render_budget
from edgespec.render import explain as render_explain
from edgespec.render import plans as render_plans
from edgespec.render import plans_markdown
from edgespec.render.plans import Shown

SUFFIX: Final = ".plan.json"


def run(
    root: Path,
    environments: Sequence[str],
    request: Request,
    *,
    selector: str | None,
    out: Path | None,
    output: str,
    explain: bool,
    detailed_exitcode: bool,
) -> NoReturn:
    """Plans, prints as `output` says (`text`, `json`, `markdown`), and ends the process with the exit code."""
    if out is not None and out.is_file():
        detail = f"{out} is a file; several plans go into a folder, as ENVIRONMENT{SUFFIX}."
        raise EdgespecError(error("ES226", "Options that do not go together", detail))
    made = fleet.plan_all(root, environments, os.environ, say, request=request, selector=selector)
    plans = made.plans
    shown = [shown_of(p, made.project, digest=output == "markdown") for p in plans]
    if output == "json":
        documents = [p.planned.document if p.planned is not None else None for p in plans]
        code = made.exit_code(detailed=True)
        print_json(render_plans.document(shown, documents, selector=selector, exit_code=code))
    elif output == "markdown":
        _complain(shown)
        print_text(plans_markdown.render(shown, selector=selector))
    else:
        _print(plans, shown, explain=explain)
    if out is not None:
        _write(out, plans)
    sys.exit(made.exit_code(detailed=detailed_exitcode))


def shown_of(plan: EnvironmentPlan, project: str, *, digest: bool) -> Shown:
    """What is told of it; the digest of a large plan takes a while, and where it is not shown nobody waits for it."""
    refused = plan.refusal.diagnostics if plan.refusal is not None else Diagnostics()
    planned = plan.planned
    if planned is None:
        return Shown(project, plan.environment, refused=refused)
    return Shown(
        project,
        plan.environment,
        planned.plan,
        planned.document["digest"] if digest else "",
        planned.review.costs,
        planned.review.verdicts,
        planned.warnings,
        refused,
    )


def _complain(shown: Sequence[Shown]) -> None:
    for s in shown:
        if len(s.warnings) or len(s.refused):
            say(f"{s.environment}:")
            print_diagnostics(s.warnings + s.refused)


def _print(plans: Sequence[EnvironmentPlan], shown: Sequence[Shown], *, explain: bool) -> None:
    print_lines(render_plans.overview(shown))
    for plan, s in zip(plans, shown, strict=True):
        _complain([s])
        print_lines(render_plans.render(s))
        if plan.planned is not None:
            print_lines(render_explain.render(plan.planned.plan.steps) if explain else [])
            print_lines(render_budget.render(plan.planned.fits, hint=False))


def _write(folder: Path, plans: Sequence[EnvironmentPlan]) -> None:
    """A file for each plan that may be carried out. An older one of an environment without such a plan goes: whoever
    applies what is in the folder must not find it."""
    plan_folder(folder)
    written = []
    for plan in plans:
        path = folder / f"{plan.environment}{SUFFIX}"
        if plan.planned is None or plan.refusal is not None:
            path.unlink(missing_ok=True)
            continue
        write_plan(path, plan.planned.document)
        written.append(plan.environment)
    if written:
        names = written[0] if len(written) == 1 else f"{{{','.join(written)}}}"
        say(f"The plans are in {folder}; apply just one with: edgespec apply {folder}/{names}{SUFFIX}")
