"""Where text goes: results to stdout, diagnostics and progress to stderr, colour only on a terminal."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import IO, Any, Final

import click

from edgespec.diagnostics import Diagnostics
from edgespec.plan.events import Event, Outcome, StepFinished, StepProgress, StepStarted
from edgespec.plan.model import StepKind
from edgespec.render import diagnostics as render_diagnostics
from edgespec.render.text import Line

_STYLES: Final[dict[str, dict[str, Any]]] = {
    "": {},
    "bold": {"bold": True},
    "dim": {"dim": True},
    **{c: {"fg": c} for c in ("red", "green", "yellow", "magenta", "cyan")},
}
_VERBS: Final = {
    StepKind.CREATE: ("creating", "created"),
    StepKind.ADOPT: ("adopting", "adopted"),
    StepKind.UPDATE: ("updating", "updated"),
    StepKind.DELETE: ("deleting", "deleted"),
}
_QUIET_S: Final = 1.0
"""Plain output says how a step goes on at most once in this time."""


def coloured(stream: IO[str]) -> bool:
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def print_lines(lines: Sequence[Line], *, err: bool = False) -> None:
    stream = sys.stderr if err else sys.stdout
    colour = coloured(stream)
    for row in lines:
        text = "".join(click.style(s.text, **_STYLES[s.style]) if colour else s.text for s in row)
        click.echo(text.rstrip() if not colour else text, err=err, color=colour)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, sort_keys=False))


def print_diagnostics(found: Diagnostics) -> None:
    if len(found):
        print_lines(render_diagnostics.render(found), err=True)


def say(message: str) -> None:
    """A line of progress."""
    click.echo(message, err=True)


class ApplyProgress:
    """Events of an apply: a status line that rewrites itself on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        self._live = coloured(sys.stderr)
        self._started: dict[object, float] = {}
        self._said = 0.0

    def __call__(self, event: Event) -> None:
        now = time.monotonic()
        if isinstance(event, StepStarted):
            self._started[event.step] = now
            self._said = now
            self._status(f"{event.step.key}: {_VERBS[event.step.kind][0]} ...", always=not self._live)
        elif isinstance(event, StepProgress):
            if self._live or now - self._said >= _QUIET_S:
                self._said = now
                percent = f" ({event.fraction:.0%})" if event.fraction is not None else ""
                self._status(f"{event.step.key}: {event.message}{percent}", always=not self._live)
        else:
            self._finish(event, now - self._started.get(event.step, now))

    def _finish(self, event: StepFinished, seconds: float) -> None:
        if self._live:
            click.echo("\r\x1b[2K", err=True, nl=False, color=True)
        took = f" in {seconds:.1f} s" if seconds >= 0.1 else ""
        words, colour = {
            Outcome.DONE: (_VERBS[event.step.kind][1] + took, "green"),
            Outcome.UNCHANGED: ("as it was" + took, "green"),
            Outcome.FAILED: ("failed" + took, "red"),
            Outcome.SKIPPED: ("skipped: something it needs failed", "yellow"),
        }[event.outcome]
        text = click.style(words, fg=colour) if self._live else words
        click.echo(f"{event.step.key}: {text}", err=True, color=self._live)
        metrics: Any = (event.outputs or {}).get("metrics")
        if event.outcome is Outcome.DONE and metrics:
            listed = ", ".join(f"{name} {value:.4f}" for name, value in sorted(metrics.items()))
            click.echo(f"{' ' * len(str(event.step.key))}  measured through the Worker: {listed}", err=True)

    def _status(self, text: str, *, always: bool) -> None:
        if always:
            click.echo(text, err=True)
        else:
            width = os.get_terminal_size(sys.stderr.fileno()).columns
            click.echo(f"\r\x1b[2K{text[: width - 1]}", err=True, nl=False, color=True)
