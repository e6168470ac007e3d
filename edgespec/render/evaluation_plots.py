"""An evaluation as SVG: which labels are taken for which, whether probabilities mean what they say, quality by length.
No fonts, scripts or background, as in `bench_plot`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from edgespec.evaluation import CalibrationResult, Slice, VariantResult
from edgespec.render.svg import closed, opened

_COLOURS: Final = {"teacher": "#8577d6", "student": "#3b8fd1", "deployed": "#1f9d78"}
_OFF: Final = "#d6465c"
_CELL: Final = 34
_CELLS_NUMBERED: Final = 16
"""Of more labels than these, cells carry no numbers."""
_DARK: Final = 0.5
"""Part of a row from which a cell is so strong that its number is white."""
_SHORT: Final = 18
"""Characters of a label."""


def confusion_plot(labels: Sequence[str], counts: Sequence[Sequence[int]], title: str) -> str:
    """Rows are what was expected; a cell's strength is its part of the row."""
    names = [escape(n if len(n) <= _SHORT else f"{n[: _SHORT - 1]}…") for n in labels]
    cell = _CELL if len(labels) <= _CELLS_NUMBERED else max(6, 16 * _CELL // len(labels))
    left, top = 24 + 7 * max(len(n) for n in names), 56
    side = cell * len(labels)
    width, height = max(320, left + side + 110), top + side + 24 + 6 * max(len(n) for n in names)
    parts = [*opened(width, height, title, 12)]
    for i, (name, row) in enumerate(zip(names, counts, strict=True)):
        y = top + cell * i
        parts.append(f'<text x="{left - 6}" y="{y + cell / 2 + 4:.1f}" text-anchor="end">{name}</text>')
        total = sum(row) or 1
        for j, count in enumerate(row):
            parts += _cell(left + cell * j, y, cell, count, count / total, right=i == j)
    for j, name in enumerate(names):
        x, y = left + cell * j + cell / 2 + 4, top + side + 8
        parts.append(f'<text x="{x:.1f}" y="{y}" text-anchor="end" transform="rotate(-60 {x:.1f} {y})">{name}</text>')
    parts.append(f'<text x="{left}" y="{top - 10}">expected (rows), answered (columns)</text>')
    return closed(parts)


def _cell(x: float, y: float, side: float, count: int, share: float, *, right: bool) -> Iterator[str]:
    colour = _COLOURS["deployed"] if right else _OFF
    yield (
        f'<rect x="{x}" y="{y}" width="{side - 1}" height="{side - 1}" fill="{colour}" '
        f'fill-opacity="{0.06 + 0.84 * share:.3f}"/>'
    )
    if count and side >= _CELL:
        light = ' style="fill:#fff"' if share > _DARK else ""
        yield f'<text x="{x + side / 2:.1f}" y="{y + side / 2 + 4:.1f}" text-anchor="middle"{light}>{count}</text>'


def reliability_plot(found: CalibrationResult, title: str) -> str:
    """Bars are how often answers of a confidence were right; on the diagonal they are what they say."""
    side, left, top = 300, 52, 40
    parts = [*opened(left + side + 24, top + side + 48, f"{title}: ECE {found.ece:.4f}", 12)]
    most = max((b.count for b in found.bins), default=0) or 1
    parts += _grid(left, top, side, side)
    for n in range(6):
        x, y = left + side * n / 5, top + side + 18
        parts.append(f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{n / 5:g}</text>')
    for b in found.bins:
        if not b.count:
            continue
        x, wide, high = left + b.low * side, (b.high - b.low) * side - 1, b.accuracy * side
        strength = 0.25 + 0.75 * b.count / most
        parts.append(
            f'<rect x="{x:.1f}" y="{top + side - high:.1f}" width="{wide:.1f}" height="{high:.1f}" '
            f'fill="{_COLOURS["deployed"]}" fill-opacity="{strength:.3f}"><title>{b.count} answers, '
            f"confidence {b.confidence:.3f}, right {b.accuracy:.3f}</title></rect>"
        )
    parts.append(
        f'<line x1="{left}" y1="{top + side}" x2="{left + side}" y2="{top}" stroke="{_OFF}" stroke-width="1.5" '
        'stroke-dasharray="6 4"/>'
    )
    parts.append(f'<text x="{left + side}" y="{top + side + 36}" text-anchor="end">confidence</text>')
    return closed(parts)


def lengths_plot(variants: Sequence[VariantResult], metric: str, title: str) -> str:
    """A line a variant: the metric over the ranges of tokens."""
    named = {v.variant: v.by_length for v in variants if v.by_length}
    ranges = [s.name for s in next(iter(named.values()))]
    wide, high, left, top = 540, 240, 52, 64
    parts = [*opened(left + wide + 24, top + high + 48, title, 12), *_grid(left, top, wide, high)]
    step = wide / max(1, len(ranges))
    for n, name in enumerate(ranges):
        x = left + step * (n + 0.5)
        parts.append(f'<text x="{x:.1f}" y="{top + high + 18}" text-anchor="middle">{name}</text>')
    parts.append(f'<text x="{left + wide}" y="{top + high + 36}" text-anchor="end">tokens of the text</text>')
    for n, (name, slices) in enumerate(named.items()):
        parts += _series(name, slices, metric, left, top, step, high, legend=left + 110 * n)
    return closed(parts)


def _series(
    name: str, slices: Sequence[Slice], metric: str, left: float, top: float, step: float, high: float, *, legend: float
) -> Iterator[str]:
    colour = _COLOURS[name]
    points = [
        (left + step * (n + 0.5), top + high * (1 - max(0.0, s.metrics[metric])), s) for n, s in enumerate(slices)
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5" stroke-linejoin="round"/>'
    for x, y, s in points:
        yield (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"><title>{s.examples} examples: '
            f"{s.metrics[metric]:.4f}</title></circle>"
        )
    yield f'<rect x="{legend:.0f}" y="41" width="12" height="4" rx="2" fill="{colour}"/>'
    yield f'<text x="{legend + 18:.0f}" y="47">{escape(name)}</text>'


def _grid(left: float, top: float, wide: float, high: float) -> Iterator[str]:
    """Lines from 0 to 1."""
    for n in range(6):
        y = top + high * (1 - n / 5)
        yield f'<line class="g" x1="{left}" x2="{left + wide}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{n / 5:g}</text>'
