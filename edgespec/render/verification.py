"""What `verify` found, a check a line."""

from __future__ import annotations

from edgespec.render.text import Line, Span, line, printable
from edgespec.verification import Check, Verification

_WORDS = {True: ("ok", "green"), False: ("failed", "red"), None: ("-", "yellow")}


def render(found: Verification) -> list[Line]:
    head = f"{found.model} in {found.environment} of {found.project}: artifact {found.artifact[:12]}"
    lines = [line(Span(head, "bold")), *(_check(c) for c in found.checks)]
    if not found.passed:
        lines.append(line(Span("Not verified.", "red")))
    elif any(c.ok is None for c in found.checks):
        lines.append(line(Span("Whole; who built it is not verified.", "yellow")))
    else:
        lines.append(line(Span("Verified.", "green")))
    return lines


def _check(check: Check) -> Line:
    word, colour = _WORDS[check.ok]
    where = f"{check.bucket}: " if check.bucket else ""
    return line("  ", Span(f"{word:<7}", colour), f"{check.name:<10} ", printable(f"{where}{check.said}"))
