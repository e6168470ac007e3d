"""The rows of a search as a table for people: unbeaten ones marked, and which one to take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edgespec.frontier import Row, TuneDocument, knobs
from edgespec.render.text import Line, Span, line
from edgespec.spec.units import format_size

_MARK: Final = "*"
_PLANS: Final = ("free", "paid")


def render(found: TuneDocument) -> list[Line]:
    """One line a variant, then what the marks mean and the choice."""
    columns = knobs(found)
    head = ("", "#", *columns, found.metric, "size", "gzip", "CPU ms", "p99", "memory", "fits")
    table = [head, *(_cells(r, found) for r in found.rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(head))]
    lines: list[Line] = [line(Span(f"{found.name}: {len(found.rows)} variants by {found.metric}", "bold"))]
    for n, cells in enumerate(table):
        row = found.rows[n - 1] if n else None
        style = "bold" if row is None else "green" if row.number == found.choice else ""
        left = len(columns) + 2
        padded = [c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
        text = "  ".join(padded)
        lines.append(line(Span(text.rstrip(), style)))
    lines.append(())
    lines += _notes(found)
    return lines


def _cells(row: Row, found: TuneDocument) -> tuple[str, ...]:
    mark = _MARK if row.number in found.frontier else ""
    settings = tuple(row.shown.values())
    if row.why is not None:
        return (mark, str(row.number), *settings, "-", "-", "-", "-", "-", "-", "not possible")
    fitting = [p for p in _PLANS if row.fits(p)]
    fits = "not measured" if row.fits("paid") is None else ", ".join(fitting) or "none"
    return (
        mark,
        str(row.number),
        *settings,
        f"{row.metrics[found.metric]:.4f}",
        _size(row.size),
        _size(row.gzip),
        _ms(row.cpu_p50_ms),
        _ms(row.cpu_p99_ms),
        _size(row.memory),
        fits,
    )


def _notes(found: TuneDocument) -> Iterator[Line]:
    yield line(Span(f"{_MARK} no other variant is at least as good in everything", "dim"))
    for row in found.rows:
        if row.why is not None:
            yield line(Span(f"{row.number}: ", "yellow"), row.why)
    if found.choice is None:
        yield line(Span(f"No variant fits the {found.plan} plan.", "red"))
        return
    chosen = next(r for r in found.rows if r.number == found.choice)
    settings = ", ".join(f"{k} {v}" for k, v in chosen.shown.items())
    yield line(
        f"Take {chosen.number} ({settings}): the smallest within {found.tolerance:g} of the best that fits the "
        f"{found.plan} plan."
    )


def _size(value: int | None) -> str:
    return "-" if value is None else format_size(value)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
