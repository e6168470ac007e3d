"""How an apply ended."""

from __future__ import annotations

from typing import Any

from edgespec.plan.events import ApplyResult, Outcome
from edgespec.render.diagnostics import to_json as diagnostics_to_json
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
    for key, record in sorted(result.state.records.items()):
        if key.address.type == "deployment" and not key.deposed and "url" in record.outputs:
            lines.append(line(f"  {key.address.name}: ", Span(str(record.outputs["url"]), "cyan")))
    return lines


def to_json(plan: dict[str, Any], result: ApplyResult | None) -> dict[str, Any]:
    """The plan's digest, every step's outcome, and what went wrong."""
    outcomes = {} if result is None else {str(s): o.value for s, o in result.outcomes.items()}
    found = [] if result is None else diagnostics_to_json(result.diagnostics)
    urls = (
        {}
        if result is None
        else {
            k.address.name: r.outputs["url"]
            for k, r in sorted(result.state.records.items())
            if k.address.type == "deployment" and not k.deposed and "url" in r.outputs
        }
    )
    return {"plan": plan["digest"], "summary": plan["summary"], "steps": outcomes, "urls": urls, "diagnostics": found}
