"""`edgespec validate`."""

from __future__ import annotations

import os
import sys

import click

from edgespec import operations
from edgespec.build.datafiles import described
from edgespec.cli.options import environment_option, json_option, root_of
from edgespec.cli.output import print_diagnostics, print_json, say
from edgespec.diagnostics import EdgespecError
from edgespec.render.diagnostics import to_json


@click.command("validate")
@environment_option
@json_option
@click.pass_context
def command(ctx: click.Context, environment: str | None, as_json: bool) -> None:
    """Check every spec and the files it names, offline. Without --env no environment variable has to be set."""
    if as_json:
        try:
            _, found = operations.validate(root_of(ctx), environment, os.environ)
        except EdgespecError as e:
            found = e.diagnostics
        print_json({"valid": not found.has_errors, "diagnostics": to_json(found)})
        sys.exit(1 if found.has_errors else 0)
    session, found = operations.validate(root_of(ctx), environment, os.environ)
    print_diagnostics(found)
    specs = session.workspace.specs
    files = {name: lines for spec in specs for name, lines in described(spec, session.workspace.root).items()}
    for name, lines in files.items():
        say(f"{name}: {'; '.join(lines)}")
    noun = "spec is" if len(specs) == 1 else "specs are"
    warned = f", {len(found)} warning{'s' * (len(found) > 1)}" if len(found) else ""
    click.echo(f"{session.workspace.project.name}: {len(specs)} {noun} valid{warned}.")
