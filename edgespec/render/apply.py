"""How an apply ended."""

from __future__ import annotations

from edgespec.plan.events import ApplyResult, Outcome
from edgespec.render.events import urls_of
from edgespec.render.text import Line, Span, line


def totals(result: ApplyResult) -> list[Line]:
    """One line of totals, and every address that a deployment answers at."""
    done = result.count(Outcome.DONE, Outcome.UNCHANGED)
    failed, skipped, left = (result.count(o) for o in (Outcome.FAILED, Outcome.SKIPPED, Outcome.LEFT))
    parts = [f"{done} done"]
    parts += [f"{failed} failed"] if failed else []
    parts += [f"{skipped} skipped"] if skipped else []
    parts += [f"{left} left to do"] if left else []
    ended = "failed" if failed else "stopped" if left else "complete"
    lines = [line(Span(f"Apply {ended}: ", "bold"), ", ".join(parts) + ".")]
    if failed:
        lines.append(line("What was done is in state. Fix the cause and run apply again: it goes on from here."))
    lines += [line(f"  {name}: ", Span(url, "cyan")) for name, url in urls_of(result).items()]
    return lines
