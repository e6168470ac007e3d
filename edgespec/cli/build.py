"""`edgespec build`."""

from __future__ import annotations

import click

from edgespec import builds
from edgespec.build.events import BuildEvent
from edgespec.cli.options import environment_option, json_option, selector_option, session_of
from edgespec.cli.output import print_diagnostics, print_json, say
from edgespec.selection import narrowed
from edgespec.spec.units import format_size


@click.command("build")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@environment_option
@selector_option
@click.option(
    "--executor", type=click.Choice(builds.EXECUTORS), default="local", show_default=True, help="What runs the stages."
)
@click.option(
    "--parallel",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="How many stages at once, of all models (local).",
)
@click.option("--no-cache", "fresh", is_flag=True, help="Run every stage again and say whose result differs.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    names: tuple[str, ...],
    environment: str | None,
    selector: str | None,
    executor: str,
    parallel: int,
    fresh: bool,
    as_json: bool,
) -> None:
    """Build the artifacts of all specs, the named ones or those with some labels, into the cache that `apply` uses."""
    session = session_of(ctx, environment, any_environment=environment is None)
    print_diagnostics(session.workspace.warnings)

    def tell(name: str, event: BuildEvent) -> None:
        say(f"model/{name}: {event.stage}: {event.message}")

    if executor != "local" and parallel != 1:
        raise click.UsageError("--parallel is for --executor local; Ray runs as many as its nodes have room for.")
    names = narrowed(session.workspace, names, selector)
    made = builds.build(session, names, tell, executor=executor, parallel=parallel, fresh=fresh)
    if as_json:
        print_json({n: {"artifact": m.digest, "size": m.size, "manifest": m.to_json()} for n, m in made.items()})
        return
    for name, manifest in made.items():
        click.echo(f"{name}  {manifest.digest}  {format_size(manifest.size)}")
