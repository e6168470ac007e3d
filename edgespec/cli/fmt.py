"""`edgespec fmt`."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from edgespec.cli.options import root_of
from edgespec.cli.output import print_diagnostics, print_text
from edgespec.diagnostics import Diagnostics, EdgespecError, error


@click.command("fmt")
@click.argument("files", nargs=-1, metavar="[FILE | DIR | -]...", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 when a file is laid out in another way.")
@click.option("--diff", "as_diff", is_flag=True, help="Print what changes, as a unified diff.")
@click.pass_context
def command(ctx: click.Context, files: tuple[Path, ...], check: bool, as_diff: bool) -> None:
    """Lay out YAML files in one way: indentation, spaces, blank lines. Comments, order and quotes stay, and so does
    what the file means. Without FILE: edgespec.yaml, its specs and releases. Prints the files that change."""
    from edgespec import formatting

    if files == (Path("-"),):
        _standard_input(check=check)
    found: list[Diagnostics] = []
    changed = 0
    for path in _paths(ctx, files):
        try:
            each = formatting.formatted(path)
            if not each.changed:
                continue
            changed += 1
            if not check:
                formatting.write(each)
        except EdgespecError as e:
            found.append(e.diagnostics)
            continue
        if as_diff:
            old, new = (t.splitlines(keepends=True) for t in (each.before, each.after))
            print_text("".join(difflib.unified_diff(old, new, f"a/{path}", f"b/{path}")))
        else:
            click.echo(path)
    for each_found in found:
        print_diagnostics(each_found)
    sys.exit(1 if found or (check and changed) else 0)


def _paths(ctx: click.Context, files: tuple[Path, ...]) -> Iterable[Path]:
    from edgespec import formatting

    if not files:
        here = Path.cwd()
        found = formatting.project_files(root_of(ctx))
        return [p.relative_to(here) if p.is_relative_to(here) else p for p in found]
    if Path("-") in files:
        raise EdgespecError(error("ES226", "Options that do not go together", "- is standard input; it goes alone."))
    return [f for path in files for f in (formatting.files_below(path) if path.is_dir() else [path])]


def _standard_input(*, check: bool) -> None:
    from edgespec.spec.document import Source
    from edgespec.spec.format import format_text

    before = sys.stdin.read()
    after = format_text(Source("-", before))
    if check:
        sys.exit(0 if before == after else 1)
    print_text(after)
    sys.exit(0)
