"""Where text goes: results to stdout, diagnostics and progress to stderr, colour only on a terminal, nothing with the
text of a secret."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final

import click

from edgespec import files
from edgespec.diagnostics import Diagnostics, EdgespecError, error
from edgespec.render import diagnostics as render_diagnostics
from edgespec.render.text import Line, fit, line, plain
from edgespec.secret import scrub

_STYLES: Final[dict[str, dict[str, Any]]] = {
    "": {},
    "bold": {"bold": True},
    "dim": {"dim": True},
    **{c: {"fg": c} for c in ("red", "green", "yellow", "magenta", "cyan")},
}


def coloured(stream: IO[str]) -> bool:
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def print_lines(lines: Sequence[Line], *, err: bool = False) -> None:
    """On a terminal no line is wider than it; elsewhere each stays one line, for those who search."""
    stream = sys.stderr if err else sys.stdout
    colour = coloured(stream)
    text = plain(list(lines))
    if (clean := scrub(text)) != text:
        lines = [line(row) for row in clean.split("\n")]
    if stream.isatty():
        lines = fit(lines, shutil.get_terminal_size().columns)
    for row in lines:
        text = "".join(click.style(s.text, **_STYLES[s.style]) if colour else s.text for s in row)
        click.echo(text.rstrip() if not colour else text, err=err, color=colour)


def print_json(value: Any) -> None:
    click.echo(scrub(json.dumps(value, indent=2, ensure_ascii=False, sort_keys=False)))


def print_text(text: str) -> None:
    """A document that is text already, with its end of line."""
    click.echo(scrub(text), nl=False)


def write_whole(path: Path, text: str, *, what: str) -> None:
    """Keep a text in a file, whole or not at all. `what` begins the error's summary: "The SARIF file"."""
    try:
        files.write_whole(path, scrub(text).encode())
    except OSError as e:
        raise EdgespecError(error("ES740", f"{what} cannot be written", f"{path}: {e.strerror}.")) from e


def print_diagnostics(found: Diagnostics) -> None:
    if len(found):
        print_lines(render_diagnostics.render(found), err=True)


def say(message: str) -> None:
    """A line of progress."""
    click.echo(scrub(message), err=True)
