"""`edgespec promote`."""

from __future__ import annotations

import os
import sys

import click

from edgespec.cli.options import json_option, root_of
from edgespec.cli.output import print_diagnostics, print_json, print_lines, say
from edgespec.diagnostics import EdgespecError, error
from edgespec.render import releases as render_releases


@click.command("promote")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--from", "source", required=True, metavar="ENV", help="The environment that serves it now.")
@click.option("--to", "target", required=True, metavar="ENV", help="The environment that shall deploy it.")
@click.option("--all", "everything", is_flag=True, help="All that is deployed in the first and not rolled back.")
@click.option("--unpin", is_flag=True, help="Also what was rolled back.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    names: tuple[str, ...],
    source: str,
    target: str,
    everything: bool,
    unpin: bool,
    as_json: bool,
) -> None:
    """Write into releases/ENV.yaml what another environment serves: its artifacts by digest, with what was measured,
    the commit and who served it. Nothing is built, uploaded or changed: review the file and apply it."""
    from edgespec.promotion import promote

    if everything == bool(names):
        detail = "Name what to promote, or say --all."
        raise EdgespecError(error("ES226", "Options that do not go together", detail))
    done = promote(root_of(ctx), names, os.environ, say, source=source, target=target, unpin=unpin)
    print_diagnostics(done.warnings)
    if as_json:
        from edgespec.render.releases_document import PromotedDocument, PromotionDocument

        promoted = [PromotedDocument(name=p.name, before=p.before, after=p.after) for p in done.promoted]
        said = {"from": done.source, "to": done.target, "path": done.path, "unchanged": done.unchanged}
        document = PromotionDocument.model_validate({**said, "promoted": promoted})
        print_json(document.model_dump(mode="json", by_alias=True))
    else:
        changes = [(p.name, p.before, p.after) for p in done.promoted]
        print_lines(render_releases.promotion(source, target, done.path, changes, done.unchanged))
    if done.promoted:
        say(f"Review {done.path}, commit it, and deploy it with: edgespec apply --env {target}")
    sys.exit(0)
