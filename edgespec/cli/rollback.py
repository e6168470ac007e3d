"""`edgespec rollback`."""

from __future__ import annotations

import sys

import click

from edgespec.cli.options import environment_option, session_of
from edgespec.cli.output import print_lines, say
from edgespec.diagnostics import EdgespecError, error
from edgespec.plan.model import Request
from edgespec.render import releases as render_releases


@click.command("rollback")
@click.argument("name", metavar="NAME")
@environment_option
@click.option("--to", metavar="RELEASE", help="A release's number or the beginning of a digest; the one before else.")
@click.option("--reason", metavar="TEXT", help="Why, for those who read releases/ENV.yaml.")
@click.option("--unpin", is_flag=True, help="The reverse: promotions, or builds, say again what is deployed.")
@click.option("--apply", "carry_out", is_flag=True, help="Deploy it now, after asking.")
@click.option("--auto-approve", is_flag=True, help="Deploy it now, without asking.")
@click.pass_context
def command(
    ctx: click.Context,
    name: str,
    environment: str | None,
    to: str | None,
    reason: str | None,
    unpin: bool,
    carry_out: bool,
    auto_approve: bool,
) -> None:
    """Deploy what served before: written into releases/ENV.yaml, and kept until `--unpin`. Nothing is built, and
    what is kept in the environment's buckets is not uploaded either."""
    from edgespec import rollback

    if unpin and (to is not None or reason is not None):
        detail = "--unpin takes back a rollback; it goes with no --to and no --reason."
        raise EdgespecError(error("ES226", "Options that do not go together", detail))
    session = session_of(ctx, environment)
    where = session.workspace.environment
    done = rollback.unpin(session, name) if unpin else rollback.rollback(session, name, to, reason)
    if unpin or done.after is None:
        print_lines(render_releases.unpinned(name, where, done.after))
    else:
        print_lines(render_releases.rolled(name, where, done.before, done.after, kept=done.kept))
    if not (carry_out or auto_approve):
        say(f"It is in {done.path}. Deploy it with: edgespec apply {name} --env {where}")
        sys.exit(0)
    from edgespec.apply import PARALLELISM
    from edgespec.cli.apply import run

    say(f"It is in {done.path}: commit it.")
    request = Request((name,))
    again = session_of(ctx, environment)
    run(
        again,
        request,
        saved=None,
        adopt=False,
        auto_approve=auto_approve,
        parallelism=PARALLELISM,
        as_json=False,
    )
