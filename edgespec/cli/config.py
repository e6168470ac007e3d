"""`edgespec config show`."""

from __future__ import annotations

import os

import click

from edgespec.cli.options import environment_option, json_option, root_of
from edgespec.cli.output import print_diagnostics, print_json, print_lines
from edgespec.render import config as render_config
from edgespec.spec.effective import effective
from edgespec.workspace import load_workspace


@click.group("config")
def command() -> None:
    """What specs come to in an environment."""


@command.command("show")
@click.argument("name")
@environment_option
@click.option("--origin", is_flag=True, help="Say of each line where it was written.")
@json_option
@click.pass_context
def show(ctx: click.Context, name: str, environment: str | None, origin: bool, as_json: bool) -> None:
    """Print a spec with the environment's overlays and all defaults, as one YAML document. Needs no environment
    variables without --env."""
    workspace = load_workspace(root_of(ctx), environment, os.environ, any_environment=environment is None)
    workspace.check_names((name,))
    print_diagnostics(workspace.warnings)
    spec = next(s for s in workspace.specs if s.name == name)
    found = effective(spec, workspace.nodes[name], workspace.project)
    if as_json:
        where = {"project": workspace.project.name, "environment": workspace.environment, "name": name}
        print_json(render_config.document(found, **where))
    else:
        print_lines(render_config.render(found, origins=origin))
