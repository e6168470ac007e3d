"""`edgespec apply`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from edgespec import assets, operations
from edgespec.cli.options import (
    environment_option,
    json_option,
    parallelism_option,
    request_of,
    request_options,
    session_of,
)
from edgespec.cli.output import print_diagnostics, print_lines
from edgespec.cli.plan import print_plan
from edgespec.cli.progress import ApplyProgress, JsonLines
from edgespec.diagnostics import Diagnostics, EdgespecError, RefusedError, error
from edgespec.plan.events import Event
from edgespec.plan.file import FORMAT, OLDER, stale
from edgespec.plan.model import Request
from edgespec.render import budget as render_budget
from edgespec.render.apply import totals
from edgespec.session import Session


@click.command("apply")
@click.argument("names", nargs=-1, metavar="[PLANFILE | NAME...]")
@environment_option
@click.option("--auto-approve", is_flag=True, help="Do not ask.")
@click.option("--adopt", is_flag=True, help="Take over objects that exist under our names but are not in state.")
@request_options
@parallelism_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    names: tuple[str, ...],
    environment: str | None,
    auto_approve: bool,
    adopt: bool,
    parallelism: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Carry out a plan: for all specs, for the named ones, or exactly the one in PLANFILE."""
    saved = _saved(names)
    if saved is not None:
        environment = environment or saved["environment"]
        if any(options.values()):
            detail = "A plan file says itself which part it is of, and what it may do."
            raise EdgespecError(error("ES226", "Options that do not go together", detail))
        names = ()
    session = session_of(ctx, environment)
    request = request_of(names, destroy=False, **options)
    run(
        session,
        request,
        saved=saved,
        adopt=adopt,
        auto_approve=auto_approve,
        parallelism=parallelism,
        as_json=as_json,
    )


def run(
    session: Session,
    request: Request,
    *,
    saved: dict[str, Any] | None,
    adopt: bool,
    auto_approve: bool,
    parallelism: int,
    as_json: bool,
) -> None:
    """Apply and report; ends the process with the exit code."""
    events = JsonLines() if as_json else None
    try:
        applied = _carry_out(
            session, request, events, saved=saved, adopt=adopt, auto_approve=auto_approve, parallelism=parallelism
        )
    except EdgespecError as e:
        if events is not None:
            refused = "refused" if isinstance(e, RefusedError) else "failed"
            events.summary(None, None, refused, e.diagnostics)
        raise
    result = applied.result
    if result is not None:
        print_diagnostics(result.diagnostics)
    if events is not None:
        found = result.diagnostics if result is not None else Diagnostics()
        events.summary(applied.planned.document, result, _outcome(applied), found)
    elif applied.planned.plan.is_empty:
        print_plan(applied.planned)
    elif result is None:
        click.echo("Nothing was changed.")
    else:
        print_lines(totals(result))
    if result is not None and result.interrupted:
        sys.exit(130)
    sys.exit(1 if result is not None and result.diagnostics.has_errors else 0)


def _outcome(applied: operations.Applied) -> str:
    result = applied.result
    if result is None:
        return "nothing to do" if applied.planned.plan.is_empty else "not approved"
    if result.interrupted:
        return "stopped"
    return "failed" if result.diagnostics.has_errors else "done"


def _carry_out(
    session: Session,
    request: Request,
    events: JsonLines | None,
    *,
    saved: dict[str, Any] | None,
    adopt: bool,
    auto_approve: bool,
    parallelism: int,
) -> operations.Applied:
    def approve(planned: operations.Planned) -> bool:
        print_diagnostics(planned.warnings)
        if events is None:
            print_plan(planned)
            print_lines(render_budget.render(planned.fits, hint=not planned.plan.is_empty))
        if not (auto_approve or saved is not None):
            if not sys.stdin.isatty():
                detail = (
                    "There is no terminal to ask on. Review the plan and pass --auto-approve, or apply a plan file."
                )
                raise EdgespecError(error("ES205", "Not approved", detail))
            if not click.confirm(f"Apply this to {session.workspace.environment}?", default=False, err=True):
                return False
        if events is not None:
            events.plan(planned.document)
        return True

    with ApplyProgress() as progress:

        def on_event(event: Event) -> None:
            progress(event)
            if events is not None:
                events.event(event)

        return operations.apply(
            session,
            request=request,
            saved=saved,
            adopt=adopt,
            approve=approve,
            on_event=on_event,
            parallelism=parallelism,
        )


def _saved(names: tuple[str, ...]) -> dict[str, Any] | None:
    """The plan file's document when the one argument is a file; raises when it is not a plan."""
    if len(names) != 1 or not Path(names[0]).is_file():
        return None
    path = names[0]
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as e:
        raise EdgespecError(error("ES203", "The plan file is damaged", f"{path}: {e}. Run plan again.")) from e
    found = document.get("format") if isinstance(document, dict) else None
    if found in OLDER:
        raise stale("edgespec was upgraded, and plans name more of what they depend on now")
    if found != FORMAT:
        detail = f"{path} is not a plan that this edgespec wrote (format {found!r}). Run plan again."
        raise EdgespecError(error("ES203", "The plan file is damaged", detail))
    if (wrong := assets.schema_error("plan", document)) is not None:
        raise EdgespecError(error("ES203", "The plan file is damaged", f"{path}: {wrong}. Run plan again."))
    return dict(document)
