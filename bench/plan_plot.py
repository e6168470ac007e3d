"""CPU of a plan by the number of resources, as an SVG. Both axes are logarithmic: what grows linearly has slope 1."""

from __future__ import annotations

import math
from typing import Any, Final

from edgespec.render.svg import closed, opened

WIDTH, HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 56, 44
_COLOURS: Final = {"edgespec": "#1f9d78", "terraform": "#d9772b"}


def plot(document: dict[str, Any]) -> str:
    """Net of start-up: the plan of one resource is taken off."""
    series = {side: _net(document["costs"][side]) for side in _COLOURS}
    everything = [p for points in series.values() for p in points]
    xs = (math.floor(min(math.log10(x) for x, _ in everything)), max(math.log10(x) for x, _ in everything) + 0.1)
    ys = (math.floor(min(math.log10(y) for _, y in everything)), math.ceil(max(math.log10(y) for _, y in everything)))

    def at_x(value: float) -> float:
        return _LEFT + (math.log10(value) - xs[0]) / (xs[1] - xs[0]) * (WIDTH - _LEFT - _RIGHT)

    def at_y(value: float) -> float:
        return HEIGHT - _BOTTOM - (math.log10(value) - ys[0]) / (ys[1] - ys[0]) * (HEIGHT - _TOP - _BOTTOM)

    title = "CPU of a plan with no changes, net of start-up"
    parts = [
        *opened(WIDTH, HEIGHT, title, _LEFT),
    ]
    for power in range(xs[0], math.floor(xs[1]) + 1):
        x = at_x(10**power)
        parts.append(f'<line class="g" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 24}" text-anchor="middle">{10**power:,}</text>')
    for power in range(ys[0], ys[1] + 1):
        y = at_y(10**power)
        parts.append(f'<line class="g" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:,g} ms</text>')
    parts.append(f'<text x="{WIDTH - _RIGHT}" y="{HEIGHT - 6}" text-anchor="end">resources</text>')
    for n, (side, points) in enumerate(series.items()):
        colour, where = _COLOURS[side], _LEFT + 130 * n
        line = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="3.5" fill="{colour}"/>' for x, y in points]
        parts.append(f'<rect x="{where}" y="32" width="10" height="10" rx="2" fill="{colour}"/>')
        parts.append(f'<text x="{where + 16}" y="41">{side}</text>')
    return closed(parts)


def _net(costs: list[dict[str, Any]]) -> list[tuple[float, float]]:
    base = next(c["cpu_ms"] for c in costs if c["resources"] == 1)
    return [(c["resources"], max(1.0, c["cpu_ms"] - base)) for c in costs if c["resources"] > 1]
