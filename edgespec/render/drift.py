"""Drift of several environments as the text of an issue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgespec.plan.model import Drift
from edgespec.render import plan as render_plan
from edgespec.render.markdown import code, fenced
from edgespec.render.text import plain
from edgespec.secret import scrub


@dataclass(frozen=True, slots=True)
class Seen:
    """What was found in one environment, or why nothing can be said of it."""

    environment: str
    drift: tuple[Drift, ...]
    failure: str = ""


def issue(project: str, seen: Sequence[Seen]) -> str:
    """Markdown, with an end of line; what comes from an account cannot format, link or mention anybody."""
    drifted = [s for s in seen if s.drift]
    failed = [s for s in seen if s.failure]
    if not drifted and not failed:
        return f"What is live in {_listed(seen)} is what state says.\n"
    parts = []
    if drifted:
        parts.append(
            f"What is live in {_listed(drifted)} was changed outside edgespec. `edgespec apply` brings back what the "
            "specs say; `edgespec apply --refresh-only` takes what is live into state."
        )
    for each in drifted:
        parts += [f"### {code(project)} in {code(each.environment)}", fenced(_text(each, project))]
    for each in failed:
        parts += [f"### {code(each.environment)} cannot be read", fenced(each.failure)]
    return scrub("\n\n".join(parts) + "\n")


def _text(seen: Seen, project: str) -> str:
    return plain(list(render_plan.render_drift(seen.drift, project, seen.environment))).strip("\n")


def _listed(seen: Sequence[Seen]) -> str:
    return ", ".join(code(s.environment) for s in seen)
