"""`edgespec graph`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edgespec.cli.options import environment_option, session_of
from edgespec.cli.output import print_text
from edgespec.diagnostics import EdgespecError, error

if TYPE_CHECKING:
    from edgespec.render.graph import Format


@click.command("graph")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@environment_option
@click.option("--pipeline", metavar="NAME", help="The stages of this spec's build instead, and what each reads.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["mermaid", "dot"]),
    default="mermaid",
    show_default=True,
    help="The language.",
)
@click.pass_context
def command(
    ctx: click.Context, /, names: tuple[str, ...], environment: str | None, pipeline: str | None, form: Format
) -> None:
    """Print the resources that the specs ask for, and what needs what, for Mermaid (Markdown) or Graphviz. Offline."""
    from edgespec import drawing
    from edgespec.render import graph as render_graph

    if pipeline is not None and names:
        detail = "--pipeline draws one spec's build; name specs without it."
        raise EdgespecError(error("ES226", "Options that do not go together", detail))
    session = session_of(ctx, environment, any_environment=True)
    found = drawing.pipeline(session, pipeline) if pipeline is not None else drawing.resources(session, names)
    print_text(render_graph.render(found, form))
