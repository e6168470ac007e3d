"""`edgespec plan`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from edgespec import operations
from edgespec.cli.options import (
    environments_option,
    json_option,
    request_of,
    request_options,
    root_of,
    selector_option,
    session_of,
)
from edgespec.cli.output import print_diagnostics, print_json, print_lines, print_text, say
from edgespec.diagnostics import EdgespecError, error
from edgespec.render import budget as render_budget
from edgespec.render import plan as render_plan
from edgespec.selection import selected


@click.command("plan")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@environments_option
@selector_option
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Keep the plan in a file that `apply` takes; in a folder, as ENVIRONMENT.plan.json.",
)
@click.option("--destroy", is_flag=True, help="Plan the removal of everything, or of the named specs.")
@request_options
@click.option("--explain", is_flag=True, help="Also print the steps, with whom each waits for and why.")
@click.option("--detailed-exitcode", is_flag=True, help="Exit with 2 when there are changes.")
@json_option
@click.option("--markdown", "as_markdown", is_flag=True, help="Print a comment for a change request.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    names: tuple[str, ...],
    environments: tuple[str, ...],
    everywhere: bool,
    selector: str | None,
    out: Path | None,
    destroy: bool,
    explain: bool,
    detailed_exitcode: bool,
    as_json: bool,
    as_markdown: bool,
    **options: Any,
) -> None:
    """Show what apply would do, for all specs or the named ones, in one environment or several. Nothing is built,
    uploaded or changed."""
    if as_json and as_markdown:
        detail = "--json and --markdown each print a whole document; choose one."
        raise EdgespecError(error("ES226", "Options that do not go together", detail))
    request = request_of(names, destroy=destroy, selector=selector, **options)
    if everywhere and environments:
        detail = "--all-environments and --env both say which environments; choose one."
        raise EdgespecError(error("ES226", "Options that do not go together", detail))
    if everywhere or len(set(environments)) > 1:
        from edgespec.cli import plan_several

        output = "json" if as_json else "markdown" if as_markdown else "text"
        plan_several.run(
            root_of(ctx),
            environments,
            request,
            selector=selector,
            out=out,
            output=output,
            explain=explain,
            detailed_exitcode=detailed_exitcode,
        )
    session = session_of(ctx, environments[0] if environments else None)
    planned = operations.plan(session, request=selected(session.workspace, request, selector))
    planned.close()
    print_diagnostics(planned.warnings)
    if as_json:
        print_json(planned.document)
    elif as_markdown:
        print_text(markdown(planned))
    else:
        print_plan(planned)
        if explain:
            from edgespec.render import explain as render_explain

            print_lines(render_explain.render(planned.plan.steps))
        print_lines(render_budget.render(planned.fits, hint=not planned.plan.is_empty))
    if (refusal := planned.refusal) is not None:
        raise refusal
    if out is not None:
        from edgespec.cli.plan_file import write_plan

        path = out / f"{session.workspace.environment}.plan.json" if out.is_dir() else out
        write_plan(path, planned.document)
        say(f"The plan is in {path}; apply just this with: edgespec apply {path}")
    sys.exit(2 if detailed_exitcode and not planned.plan.is_empty else 0)


def print_plan(planned: operations.Planned) -> None:
    """For people, on stdout."""
    workspace, judged = planned.session.workspace, planned.review
    lines = render_plan.render(
        planned.plan, workspace.project.name, workspace.environment, costs=judged.costs, verdicts=judged.verdicts
    )
    print_lines(lines)


def markdown(planned: operations.Planned) -> str:
    workspace, judged, refusal = planned.session.workspace, planned.review, planned.refusal
    from edgespec.render import markdown as render_markdown

    return render_markdown.render(
        planned.plan,
        workspace.project.name,
        workspace.environment,
        costs=judged.costs,
        verdicts=judged.verdicts,
        refused=[str(d) for d in refusal.diagnostics] if refusal is not None else (),
    )
