"""What the policies say, as lines beside a plan's totals."""

from __future__ import annotations

from collections.abc import Sequence

from edgespec.diagnostics import some
from edgespec.plan.policy import Verdict
from edgespec.render.text import Line, Span, line, printable


def render(verdicts: Sequence[Verdict]) -> list[Line]:
    """Denials first."""
    return [_verdict(v) for v in sorted(verdicts, key=lambda v: not v.denies)]


def _verdict(found: Verdict) -> Line:
    word, colour = ("denies", "red") if found.denies else ("warns", "yellow")
    why = f" It cannot be evaluated: {found.failure}." if found.failure else ""
    return line(
        "Policy ",
        Span(found.policy, "bold"),
        " ",
        Span(word, colour),
        f"{about(found)}: {printable(found.message)}{why}",
        Span(f"  ({found.source})", "dim"),
    )


def about(found: Verdict) -> str:
    """` worker/a and 3 more`, or nothing."""
    return f" {some(found.about, 1)}" if found.about else ""
