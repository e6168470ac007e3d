"""`edgespec eval`."""

from __future__ import annotations

import sys

import click

from edgespec import measuring
from edgespec.cli.options import environment_option, json_option, session_of
from edgespec.cli.output import print_diagnostics, print_json, print_lines
from edgespec.render import evaluation as render_evaluation


@click.command("eval")
@click.argument("name")
@environment_option
@click.option("--data", metavar="FILE", help="Measure on this file of the project instead of `quality.data`.")
@click.option("--edge", is_flag=True, help="Answer in real workerd, in a local edge of its own.")
@click.option("--alone", is_flag=True, help="Leave out the teacher and the student before quantisation.")
@json_option
@click.pass_context
def command(
    ctx: click.Context, name: str, environment: str | None, data: str | None, edge: bool, alone: bool, as_json: bool
) -> None:
    """Measure NAME's model on its quality data, beside the models that it was compressed from. Deploys nothing; exits
    with 4 when a gate of `quality.metrics` is missed."""
    session = session_of(ctx, environment, any_environment=environment is None)
    evaluated = measuring.evaluate(session, name, data=data, edge=edge, compare=not alone)
    print_diagnostics(session.workspace.warnings + evaluated.warnings)
    if as_json:
        print_json(evaluated.document.model_dump(mode="json"))
    else:
        print_lines(render_evaluation.render(evaluated.document))
    missed = [text for met, text in render_evaluation.gate_results(evaluated.document) if not met]
    sys.exit(4 if missed and not alone else 0)
