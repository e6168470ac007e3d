"""`edgespec destroy`."""

from __future__ import annotations

import click

from edgespec.cli.apply import run
from edgespec.cli.options import environment_option, json_option, parallelism_option, session_of
from edgespec.plan.model import Request


@click.command("destroy")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@environment_option
@click.option("--auto-approve", is_flag=True, help="Do not ask.")
@click.option("--allow-destroy", is_flag=True, help="Also where the environment is protected.")
@parallelism_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    names: tuple[str, ...],
    environment: str | None,
    auto_approve: bool,
    allow_destroy: bool,
    parallelism: int,
    as_json: bool,
) -> None:
    """Remove everything that was deployed to an environment, or only the named specs."""
    session = session_of(ctx, environment)
    request = Request(names, destroy=True, allow_destroy=allow_destroy)
    run(
        session,
        request,
        saved=None,
        adopt=False,
        auto_approve=auto_approve,
        parallelism=parallelism,
        as_json=as_json,
    )
