"""Diagnostics with the line they are about and a caret under the place."""

from __future__ import annotations

from typing import Final

from edgespec.diagnostics import Diagnostic, Diagnostics, Severity, SourceRange
from edgespec.render.text import Line, Span, columns, line, printable

_WIDTH: Final = 110
_STYLE: Final = {Severity.ERROR: "red", Severity.WARNING: "yellow"}


def render(found: Diagnostics) -> list[Line]:
    lines: list[Line] = []
    for d in found:
        lines += _diagnostic(d)
    return lines


def _diagnostic(d: Diagnostic) -> list[Line]:
    place = f"{d.source}: " if d.source else f"{d.address}: " if d.address else ""
    style = _STYLE[d.severity]
    lines = [
        line(Span(place, "bold"), Span(f"{d.severity}: ", style), Span(d.summary, "bold"), Span(f" [{d.code}]", "dim"))
    ]
    if d.source is not None and d.source.text.strip():
        lines += _excerpt(d.source, style)
    lines += [line(f"  {printable(part)}") for part in d.detail.split("\n") if part]
    return lines


def _excerpt(source: SourceRange, style: str) -> list[Line]:
    """The line, cut around the place when it is long, and carets under it. Tabs stay tabs and wide characters count
    as two columns, so that the caret stands right in a terminal."""
    start = max(0, min(source.column - 1, len(source.text)) - _WIDTH // 2) if len(source.text) > _WIDTH else 0
    shown = source.text[start : start + _WIDTH]
    before = shown[: source.column - 1 - start]
    marked = shown[len(before) : len(before) + source.length]
    pad = "".join("\t" if c == "\t" else " " * columns(c) for c in before)
    carets = "^" * max(1, columns(marked))
    number = str(source.line)
    return [
        line(Span(f"  {number} | ", "dim"), printable(shown)),
        line(Span(f"  {' ' * len(number)} | ", "dim"), pad, Span(carets, style)),
    ]


def to_json(found: Diagnostics) -> list[dict[str, object]]:
    """For `--json`: a list of plain objects."""
    return [
        {
            "severity": d.severity.value,
            "code": d.code,
            "summary": d.summary,
            "detail": d.detail,
            "address": d.address,
            "path": d.source.path if d.source else None,
            "line": d.source.line if d.source else None,
            "column": d.source.column if d.source else None,
        }
        for d in found
    ]
