"""`edgespec drift`."""

from __future__ import annotations

import sys

import click

from edgespec import operations
from edgespec.cli.options import environment_option, json_option, selector_option, session_of
from edgespec.cli.output import print_json, print_lines
from edgespec.plan.file import drift_report
from edgespec.plan.model import Request
from edgespec.render import plan as render_plan
from edgespec.selection import narrowed


@click.command("drift")
@environment_option
@selector_option
@json_option
@click.pass_context
def command(ctx: click.Context, environment: str | None, selector: str | None, as_json: bool) -> None:
    """Compare what is live with state. Exits with 3 when somebody changed it, with 0 when not; changes nothing."""
    session = session_of(ctx, environment)
    names = frozenset(narrowed(session.workspace, (), selector))
    planned = operations.plan(session, request=Request(refresh_only=True))
    planned.close()
    drift, workspace = planned.plan.drift, session.workspace
    if names:
        drift = tuple(d for d in drift if not names.isdisjoint(planned.stored.records[d.key].owners))
    if as_json:
        print_json(drift_report(planned.stored, drift))
    else:
        print_lines(render_plan.render_drift(drift, workspace.project.name, workspace.environment))
    sys.exit(3 if drift else 0)
