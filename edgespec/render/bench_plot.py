"""A measurement as an SVG: CPU of a request by the number of tokens, a line an engine. No fonts, scripts or background:
it can stand on a light or a dark page, and follows the reader's colour scheme where the page lets it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from edgespec import limits
from edgespec.measurement import OWN, BenchDocument
from edgespec.render.bench import by_engine
from edgespec.render.svg import closed, opened, round_step

WIDTH, HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 24, 56, 44
_COLOURS: Final = {"edge": "#1f9d78", "onnxruntime": "#d9772b", "native": "#8577d6"}
_OTHERS: Final = ("#3b8fd1", "#c2549d")
_LIMIT_COLOUR: Final = "#d6465c"
Point = tuple[float, float]


def plot(document: BenchDocument) -> str:
    """The SVG's text; the same document gives the same bytes."""
    tokens = {t.row: t.tokens_median for t in document.texts if t.row != OWN}
    series = {
        engine: [(float(tokens[r.row]), r.cpu_ms.p50) for r in rows if r.row in tokens]
        for engine, rows in by_engine(document).items()
    }
    most = max([limits.FREE_CPU_MS * 1.2, *(y for points in series.values() for _, y in points)])
    step = round_step(most / 5)
    top = math.ceil(most / step) * step
    x, y = _scales(sorted(tokens.values()), top)
    title = f"{document.name}: CPU of one request"
    parts = [
        *opened(WIDTH, HEIGHT, title, _LEFT),
        *_axes(sorted(tokens.values()), top, step, x, y),
        *_limit(y(limits.FREE_CPU_MS)),
    ]
    for n, (engine, points) in enumerate(series.items()):
        colour = _COLOURS.get(engine, _OTHERS[n % len(_OTHERS)])
        parts += _series(engine, [(x(a), y(b)) for a, b in points], colour, _LEFT + 130 * n)
    return closed(parts)


class _Scale:
    """From a value to a coordinate, linear after `turn`."""

    def __init__(self, low: float, high: float, start: float, end: float, *, logarithmic: bool) -> None:
        self._turn = math.log2 if logarithmic else float
        self._low, self._span = self._turn(low), (self._turn(high) - self._turn(low)) or 1.0
        self._start, self._end = start, end

    def __call__(self, value: float) -> float:
        return self._start + (self._turn(value) - self._low) / self._span * (self._end - self._start)


def _scales(tokens: Sequence[int], top: float) -> tuple[_Scale, _Scale]:
    x = _Scale(max(1, tokens[0]), max(1, tokens[-1]), _LEFT + 14, WIDTH - _RIGHT, logarithmic=True)
    return x, _Scale(0, top, HEIGHT - _BOTTOM, _TOP, logarithmic=False)


def _axes(tokens: Sequence[int], top: float, step: float, x: _Scale, y: _Scale) -> Iterator[str]:
    for n in range(round(top / step) + 1):
        at = y(n * step)
        yield f'<line class="g" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{n * step:g}</text>'
    for t in dict.fromkeys(tokens):
        yield f'<text x="{x(t):.1f}" y="{HEIGHT - _BOTTOM + 18}" text-anchor="middle">{t}</text>'
    yield f'<text x="{WIDTH - _RIGHT}" y="{HEIGHT - 8}" text-anchor="end">tokens of the text</text>'
    yield f'<text x="{_LEFT - 8}" y="{_TOP - 12}" text-anchor="end">ms</text>'


def _limit(at: float) -> Iterator[str]:
    yield (
        f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="{_LIMIT_COLOUR}" '
        'stroke-width="1.5" stroke-dasharray="6 4"/>'
    )
    yield (
        f'<text x="{WIDTH - _RIGHT}" y="{at - 5:.1f}" text-anchor="end" style="fill:{_LIMIT_COLOUR}">'
        f"free plan: {limits.FREE_CPU_MS} ms</text>"
    )


def _series(name: str, points: list[Point], colour: str, legend: float) -> Iterator[str]:
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5" stroke-linejoin="round"/>'
    for a, b in points:
        yield f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.5" fill="{colour}"/>'
    yield f'<rect x="{legend:.0f}" y="31" width="12" height="4" rx="2" fill="{colour}"/>'
    yield f'<text x="{legend + 18:.0f}" y="37">{escape(name)}</text>'
