"""A search as an SVG: each variant by its bytes and its metric, the unbeaten ones joined. No fonts, scripts or
background, as in `bench_plot`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from typing import Final

from edgespec.frontier import Row, TuneDocument
from edgespec.render.svg import closed, opened, round_step
from edgespec.spec.units import format_size

WIDTH, HEIGHT = 640, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 24, 64, 44
_COLOURS: Final = {"free": "#1f9d78", "paid": "#d9772b", "none": "#d6465c", "unknown": "#8577d6"}
_NAMES: Final = {
    "free": "fits the free plan",
    "paid": "needs the paid plan",
    "none": "fits no plan",
    "unknown": "not measured",
}


def plot(found: TuneDocument) -> str:
    """The SVG's text; the same document gives the same bytes."""
    rows = [r for r in found.rows if r.why is None and r.size]
    title = f"{found.name}: {found.metric} by bytes"
    parts = [*opened(WIDTH, HEIGHT, title, _LEFT)]
    if rows:
        scales = _Scales(rows, found.metric)
        parts += [*_grid(scales), *_front(rows, found, scales), *_points(rows, found, scales), *_legend(rows)]
    return closed(parts)


class _Scales:
    """Bytes on a logarithmic axis, the metric on a linear one, both with some air."""

    def __init__(self, rows: list[Row], metric: str) -> None:
        sizes, values = [math.log2(r.size or 1) for r in rows], [r.metrics[metric] for r in rows]
        self.low, self.high = min(sizes) - 0.3, max(sizes) + 0.3
        air = max(0.005, (max(values) - min(values)) * 0.15)
        self.bottom, self.top = min(values) - air, max(values) + air

    def x(self, size: float) -> float:
        return _LEFT + (math.log2(size) - self.low) / (self.high - self.low) * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - _BOTTOM - (value - self.bottom) / (self.top - self.bottom) * (HEIGHT - _TOP - _BOTTOM)


def _kind(row: Row) -> str:
    if row.fits("paid") is None:
        return "unknown"
    return "free" if row.fits("free") else "paid" if row.fits("paid") else "none"


def _grid(s: _Scales) -> Iterator[str]:
    step = round_step((s.top - s.bottom) / 5)
    value = math.ceil(s.bottom / step) * step
    while value <= s.top:
        at = s.y(value)
        yield f'<line class="g" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{value:.4g}</text>'
        value += step
    spaces = max(1.0, (s.high - s.low) / 5)
    place = s.low + spaces / 2
    while place <= s.high:
        size = round(2**place)
        yield f'<text x="{s.x(size):.1f}" y="{HEIGHT - _BOTTOM + 18}" text-anchor="middle">{format_size(size)}</text>'
        place += spaces


def _front(rows: list[Row], found: TuneDocument, s: _Scales) -> Iterator[str]:
    """The rows that no smaller one equals: the outline that a person looks for."""
    best, points = -math.inf, []
    for row in sorted(rows, key=lambda r: (r.size or 0, -r.metrics[found.metric])):
        if row.metrics[found.metric] > best:
            best = row.metrics[found.metric]
            points.append(f"{s.x(row.size or 1):.1f},{s.y(best):.1f}")
    yield f'<polyline points="{" ".join(points)}" fill="none" stroke="#8c959f" stroke-width="1.5"/>'


def _points(rows: list[Row], found: TuneDocument, s: _Scales) -> Iterator[str]:
    for row in rows:
        x, y = s.x(row.size or 1), s.y(row.metrics[found.metric])
        settings = ", ".join(f"{k} {v}" for k, v in row.shown.items())
        title = (
            f"{row.number}: {settings}; {found.metric} {row.metrics[found.metric]:.4f}, {format_size(row.size or 0)}"
        )
        yield (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{_COLOURS[_kind(row)]}"><title>{escape(title)}</title>'
            "</circle>"
        )
        if row.number == found.choice:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="9" fill="none" stroke="{_COLOURS["free"]}" stroke-width="2"/>'
        yield f'<text x="{x + 9:.1f}" y="{y - 7:.1f}">{row.number}</text>'


def _legend(rows: list[Row]) -> Iterator[str]:
    at = _LEFT
    for kind in dict.fromkeys(_kind(r) for r in rows):
        yield f'<circle cx="{at + 5}" cy="38" r="5" fill="{_COLOURS[kind]}"/>'
        yield f'<text x="{at + 16}" y="42">{_NAMES[kind]}</text>'
        at += 150
