"""The steps of a plan in their order, with whom each waits for and why: the very steps that apply follows."""

from __future__ import annotations

from collections.abc import Sequence

from edgespec.plan.explain import explain, numbers
from edgespec.plan.model import Step
from edgespec.render.text import Line, Span, line


def render(steps: Sequence[Step]) -> list[Line]:
    """A line a step and a line for each that it waits for."""
    found = explain(steps)
    if not found:
        return [line("No steps.")]
    number = numbers(found)
    width = len(str(len(found)))
    lines = [line(Span("Steps, in an order that keeps every wait:", "bold"))]
    for e in found:
        lines.append(line(f"  {e.number:>{width}}  ", Span(f"{e.step.kind.value} ", "bold"), str(e.step.key)))
        lines += [
            line(" " * (width + 6), Span(f"after {number[w.step]} ({w.step.kind.value} {w.step.key}): {w.why}", "dim"))
            for w in e.waits
        ]
    return lines
