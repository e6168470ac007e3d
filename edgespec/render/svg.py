"""What every plot begins and ends with. No fonts, scripts or background: a plot can stand on a light or a dark page,
and follows the reader's colour scheme where the page lets it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#57606a}.t{font-weight:600;fill:#24292f}.g{stroke:#8c959f;"
    "stroke-opacity:.3}@media (prefers-color-scheme:dark){text{fill:#9ea7b1}.t{fill:#e6edf3}}"
)
"""`.t` is a title, `.g` a line of the grid."""


def opened(width: float, height: float, title: str, left: float) -> Iterator[str]:
    """The first lines, with the title at `left`."""
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="{escape(title)}">'
    )
    yield f"<style>{STYLE}</style>"
    yield f'<text class="t" x="{left}" y="20">{escape(title)}</text>'


def closed(parts: Sequence[str]) -> str:
    """The whole text."""
    return "\n".join([*parts, "</svg>", ""])


def round_step(rough: float) -> float:
    """The next of 1, 2, 5, 10 times a power of ten: a distance between lines that people read easily."""
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
