"""`edgespec edge up|down|status|logs`: the local edge."""

from __future__ import annotations

import sys

import click

from edgespec.cli.options import environment_option, json_option, session_of
from edgespec.cli.output import print_json
from edgespec.records import as_dict
from edgespec.session import local_edge


@click.group("edge")
def command() -> None:
    """The local edge: real workerd on this machine, behind Cloudflare's API shape."""


@command.command("up")
@environment_option
@click.pass_context
def up(ctx: click.Context, environment: str | None) -> None:
    """Start it, or find it running."""
    endpoint = local_edge(session_of(ctx, environment)).ensure()
    click.echo(endpoint.base_url)


@command.command("down")
@environment_option
@click.pass_context
def down(ctx: click.Context, environment: str | None) -> None:
    """Stop it. What was deployed stays and answers again after `up`."""
    stopped = local_edge(session_of(ctx, environment)).down()
    click.echo("The local edge is stopped." if stopped else "The local edge was not running.")


@command.command("status")
@environment_option
@json_option
@click.pass_context
def status(ctx: click.Context, environment: str | None, as_json: bool) -> None:
    """Whether it runs, and what it holds. Exit code 1 when it does not run."""

    found = local_edge(session_of(ctx, environment)).status()
    if as_json:
        print_json(None if found is None else as_dict(found))
    elif found is None:
        click.echo("The local edge is not running.")
    else:
        click.echo(f"running on port {found.port}, process {found.pid}, workerd {found.workerd}, up {found.uptime_s} s")
        for what in ("scripts", "buckets", "namespaces"):
            click.echo(f"  {what}: {', '.join(getattr(found, what)) or 'none'}")
    sys.exit(0 if found is not None else 1)


@command.command("logs")
@click.option("-n", "--lines", default=100, show_default=True, help="How many lines from the end.")
@environment_option
@click.pass_context
def logs(ctx: click.Context, lines: int, environment: str | None) -> None:
    """The end of its log."""
    path = local_edge(session_of(ctx, environment)).log_path
    if path.is_file():
        for row in path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]:
            click.echo(row)
