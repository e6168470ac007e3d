"""`edgespec schema`."""

from __future__ import annotations

import click

from edgespec import assets
from edgespec.cli.output import print_json


@click.command("schema")
@click.argument(
    "name",
    type=click.Choice(
        [
            "project",
            "spec",
            "releases",
            "promotion",
            "history",
            "state",
            "state-journal",
            "plan",
            "plans",
            "config",
            "diff",
            "drift",
            "artifact",
            "bench",
            "evaluation",
            "provenance",
            "statement",
            "verification",
        ]
    ),
)
def command(name: str) -> None:
    """Print a published JSON Schema: what editors and other tools check files with."""
    print_json(assets.schema(name))
