"""How an apply shows what happens: JSON lines, or a live bar and plain lines."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from edgespec.cli.output import coloured
from edgespec.diagnostics import Diagnostics
from edgespec.plan.events import ApplyResult, Event, Outcome, StepFinished, StepProgress, StepStarted
from edgespec.plan.model import StepId, StepKind
from edgespec.records import replace
from edgespec.render.events import event_line, plan_line, summary_line
from edgespec.render.text import printable
from edgespec.secret import scrub

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_VERBS: Final = {
    StepKind.CREATE: ("creating", "created"),
    StepKind.ADOPT: ("adopting", "adopted"),
    StepKind.UPDATE: ("updating", "updated"),
    StepKind.DELETE: ("deleting", "deleted"),
}
_QUIET_S: Final = 1.0
"""Plain output says how a step goes on at most once in this time."""


class JsonLines:
    """Events of an apply on stdout, a JSON object a line, each written as it happens."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()

    def plan(self, document: Mapping[str, Any]) -> None:
        self._write(plan_line(document, self._seconds))

    def event(self, event: Event) -> None:
        self._write(event_line(event, self._seconds))

    def summary(
        self, document: Mapping[str, Any] | None, result: ApplyResult | None, outcome: str, found: Diagnostics
    ) -> None:
        self._write(summary_line(document, result, outcome, found, self._seconds))

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _write(self, value: Mapping[str, Any]) -> None:
        text = scrub(json.dumps(value, ensure_ascii=False))
        with self._lock:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()


class ApplyProgress:
    """Events of an apply on stderr: a live bar on a terminal, plain lines elsewhere. Use it as a context manager, so
    that the terminal is left as it was found whatever happens."""

    def __init__(self) -> None:
        self._started: dict[StepId, float] = {}
        self._said: dict[StepId, float] = {}
        self._bar: Progress | None = None
        self._tasks: dict[StepId, TaskID] = {}

    def __enter__(self) -> ApplyProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, event: Event) -> None:
        now = time.monotonic()
        if isinstance(event, StepStarted):
            self._started[event.step] = now
            self._start(event.step, now)
        elif isinstance(event, StepProgress):
            self._advance(replace(event, message=printable(scrub(event.message))), now)
        else:
            self._finish(event, now - self._started.get(event.step, now))

    def _start(self, step: StepId, now: float) -> None:
        verb = _VERBS[step.kind][0]
        if not coloured(sys.stderr):
            self._said[step] = now
            click.echo(f"{step.key}: {verb} ...", err=True)
            return
        if self._bar is None:
            self._bar = _live_bar()
        self._tasks[step] = self._bar.add_task(f"{step.key}: {verb}", total=None)

    def _advance(self, event: StepProgress, now: float) -> None:
        task = self._tasks.get(event.step)
        if self._bar is not None and task is not None:
            total = None if event.fraction is None else 1.0
            text = f"{event.step.key}: {event.message}"
            self._bar.update(task, description=text, total=total, completed=event.fraction or 0.0)
        elif now - self._said.get(event.step, 0.0) >= _QUIET_S:
            self._said[event.step] = now
            percent = f" ({event.fraction:.0%})" if event.fraction is not None else ""
            click.echo(f"{event.step.key}: {event.message}{percent}", err=True)

    def _finish(self, event: StepFinished, seconds: float) -> None:
        task = self._tasks.pop(event.step, None)
        if self._bar is not None and task is not None:
            self._bar.remove_task(task)
            self._bar.refresh()
        took = f" in {seconds:.1f} s" if seconds >= 0.1 else ""
        words, colour = {
            Outcome.DONE: (_VERBS[event.step.kind][1] + took, "green"),
            Outcome.UNCHANGED: ("as it was" + took, "green"),
            Outcome.FAILED: ("failed" + took, "red"),
            Outcome.SKIPPED: ("skipped: something it needs failed", "yellow"),
            Outcome.LEFT: ("given up" + took + ": the next apply goes on with it", "yellow"),
        }[event.outcome]
        self._print(f"{event.step.key}: ", words, colour)
        metrics: Any = (event.outputs or {}).get("metrics")
        if event.outcome is Outcome.DONE and metrics:
            listed = ", ".join(f"{name} {value:.4f}" for name, value in sorted(metrics.items()))
            self._print(f"{' ' * len(str(event.step.key))}  measured through the Worker: ", listed, "bold")

    def _print(self, text: str, words: str, style: str) -> None:
        if self._bar is not None:
            from rich.text import Text

            self._bar.console.print(Text.assemble(text, (words, style)))
        else:
            click.echo(text + words, err=True)


def _live_bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(24), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True, highlight=False), transient=True)
    bar.start()
    return bar
