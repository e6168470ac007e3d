"""Durations and sizes: many spellings, one canonical integer."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import BeforeValidator, WithJsonSchema

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_BYTES: Final = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
_COUNTS: Final = {"k": 10**3, "M": 10**6, "B": 10**9}
_COUNT: Final = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)([kMB])")
_WHOLE: Final = re.compile(r"[0-9]{1,18}")
_DURATION: Final = re.compile(r"(?:[0-9]{1,18}[smhdw])+")
_DURATION_PART: Final = re.compile(r"([0-9]+)([smhdw])")
_SIZE: Final = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*(B|[KMG]i?B)")


def parse_duration(text: object) -> int:
    """Seconds from `90`, `90s`, `1h30m` or `7d`; raises ValueError."""
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    if isinstance(text, str):
        if _WHOLE.fullmatch(text):
            return int(text)
        if _DURATION.fullmatch(text):
            return sum(int(n) * _SECONDS[unit] for n, unit in _DURATION_PART.findall(text))
    raise ValueError(f"expected a duration such as 90s, 1h30m or 7d, got {text!r}")


def parse_size(text: object) -> int:
    """Bytes from `1024`, `64KiB`, `8MiB` or `1.5MB`; raises ValueError."""
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    if isinstance(text, str):
        if _WHOLE.fullmatch(text):
            return int(text)
        if found := _SIZE.fullmatch(text):
            number, unit = found.groups()
            if (exact := _times(number, _BYTES[unit])) is not None:
                return exact
            raise ValueError(f"{text!r} is not a whole number of bytes")
    raise ValueError(f"expected a size such as 512KiB, 8MiB or 20MB, got {text!r}")


def parse_count(text: object) -> int:
    """A number of things from `1000`, `250k`, `1M` or `1.5B`; raises ValueError."""
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    if isinstance(text, str):
        if _WHOLE.fullmatch(text):
            return int(text)
        if (found := _COUNT.fullmatch(text)) and (exact := _times(found[1], _COUNTS[found[2]])) is not None:
            return exact
    raise ValueError(f"expected a number such as 5000, 250k or 1M, got {text!r}")


def _times(number: str, factor: int) -> int | None:
    """A decimal number times `factor`; None where that is not whole."""
    whole, _, part = number.partition(".")
    product, rest = divmod(int(whole + part) * factor, 10 ** len(part))
    return None if rest else product


def format_count(count: float) -> str:
    """For people: three significant digits with k, M or B."""
    for unit, factor in (("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= factor:
            return f"{count / factor:.3g}{unit}"
    return f"{count:.3g}"


def format_duration(seconds: int) -> str:
    """For people, and exact: `7d`, `1h30m`."""
    parts = []
    for unit in ("d", "h", "m", "s"):
        number, seconds = divmod(seconds, _SECONDS[unit])
        parts += [f"{number}{unit}"] if number else []
    return "".join(parts) or "0s"


def format_size(size: int) -> str:
    """For people: three significant digits with a binary unit."""
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


Count = Annotated[
    int,
    BeforeValidator(parse_count),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?[kMB]?$"},
            ],
            "description": "A number of things, or a number with k, M or B (1,000, a million, 1,000 million).",
        }
    ),
]
Duration = Annotated[
    int,
    BeforeValidator(parse_duration),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": r"^([0-9]+|([0-9]+[smhdw])+)$"},
            ],
            "description": "A duration: seconds, or a number with s, m, h, d or w (1h30m).",
        }
    ),
]
Size = Annotated[
    int,
    BeforeValidator(parse_size),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?\s*(B|[KMG]i?B)?$"},
            ],
            "description": "A size: bytes, or a number with KB, MB, GB, KiB, MiB or GiB.",
        }
    ),
]
