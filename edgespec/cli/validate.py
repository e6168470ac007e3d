"""`edgespec validate`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click

from edgespec import __version__, operations
from edgespec.build.datafiles import described
from edgespec.cli.options import environment_option, json_option, root_of, selector_option
from edgespec.cli.output import print_diagnostics, print_json, say, write_whole
from edgespec.diagnostics import Diagnostics, EdgespecError
from edgespec.render import sarif as render_sarif
from edgespec.render.diagnostics import to_json
from edgespec.selection import names_of
from edgespec.workspace import PROJECT_FILE


@click.command("validate")
@environment_option
@selector_option
@json_option
@click.option(
    "--sarif",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write every problem to a SARIF file, for code scanning to show on its line.",
)
@click.pass_context
def command(
    ctx: click.Context, environment: str | None, selector: str | None, as_json: bool, sarif: Path | None
) -> None:
    """Check every spec and the files it names, offline. Without --env no environment variable has to be set. With
    --selector, every document and the files of the selected specs."""
    root = Path()
    try:
        root = root_of(ctx)
        session, found = operations.validate(root, environment, os.environ, selector=selector)
    except EdgespecError as e:
        _report(e.diagnostics, root, as_json=as_json, sarif=sarif)
        sys.exit(1)
    _report(found, root, as_json=as_json, sarif=sarif)
    if as_json:
        sys.exit(1 if found.has_errors else 0)
    specs = session.workspace.specs
    if selector is not None:
        names = names_of(session.workspace, selector)
        specs = tuple(s for s in specs if s.name in names)
    files = {name: lines for spec in specs for name, lines in described(spec, session.workspace.root).items()}
    for name, lines in files.items():
        say(f"{name}: {'; '.join(lines)}")
    noun = "spec is" if len(specs) == 1 else "specs are"
    warned = f", {len(found)} warning{'s' * (len(found) > 1)}" if len(found) else ""
    click.echo(f"{session.workspace.project.name}: {len(specs)} {noun} valid{warned}.")


def _report(found: Diagnostics, root: Path, *, as_json: bool, sarif: Path | None) -> None:
    if sarif is not None:
        log = render_sarif.log(found, version=__version__, prefix=_prefix(root), otherwise=PROJECT_FILE)
        write_whole(sarif, json.dumps(log, indent=1, ensure_ascii=False) + "\n", what="The SARIF file")
    if as_json:
        print_json({"valid": not found.has_errors, "diagnostics": to_json(found)})
    else:
        print_diagnostics(found)


def _prefix(root: Path) -> str:
    """From the repository's root to the project: code scanning counts paths from there."""
    repository = next((f for f in (root, *root.parents) if (f / ".git").exists()), root)
    relative = root.relative_to(repository).as_posix()
    return "" if relative == "." else f"{relative}/"
