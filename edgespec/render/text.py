"""Lines of styled text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from edgespec.secret import Secret
from edgespec.spec.units import format_duration, format_size
from edgespec.values import Unknown, Value, digest, is_known


class Span(Struct, frozen=True):
    text: str
    style: str = ""
    """A colour name, `bold` or `dim`; empty for plain text."""


Line: TypeAlias = tuple[Span, ...]


def line(*parts: str | Span) -> Line:
    return tuple(p if isinstance(p, Span) else Span(p) for p in parts)


_CONTROL: Final = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Without characters that a terminal would obey instead of showing; tabs stay."""
    return _CONTROL.sub("\ufffd", text)


def plain(lines: list[Line]) -> str:
    """The text without styles."""
    return "\n".join("".join(s.text for s in row) for row in lines)


Unit: TypeAlias = Literal["", "size", "duration"]
"""What a bare number counts: nothing that it could say, bytes or seconds."""
_BUILT = frozenset({"artifact", "blobs", "engine", "manifest", "size", "source_digest"})
_LONG = 72


def show(path: str, value: Value, *, opaque: bool = False, unit: Unit = "") -> str:
    """One value on one line: digests shortened, what is unknown said so, sizes and durations with their units."""
    if isinstance(value, Secret):
        return str(value)
    if isinstance(value, Unknown) or not is_known(value):
        return "(known after build)" if path.split(".")[-1] in _BUILT else "(known after apply)"
    if value is None:
        return "(none)"
    if opaque:
        return digest(value)[:12]
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and unit:
        return exact_size(value) if unit == "size" else format_duration(value)
    if isinstance(value, str):
        if len(value) == 64 and all(c in "0123456789abcdef" for c in value):
            return value[:12]
        return value if len(value) <= _LONG else f"{value[: _LONG - 1]}…"
    if isinstance(value, list):
        text = ", ".join(show(path, v) for v in value) or "(none)"
        return text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {show(k, v)}" for k, v in sorted(value.items())) + "}"
    return str(value)


def exact_size(size: int) -> str:
    """For people, and exact: two sizes that differ never look the same."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B" if size < 2**10 else f"{format_size(size)} ({size:,} bytes)"


# --- width -----------------------------------------------------------------------------------------------------------

NARROWEST: Final = 80
WIDEST: Final = 200
"""Columns: a terminal is taken to have at least and at most so many."""


def columns(text: str) -> int:
    """How wide a terminal shows it."""
    if text.isascii():
        return len(text)
    return sum(_columns(c) for c in text)


def _columns(character: str) -> int:
    import unicodedata  # 1 MB of tables, which most plans do not need

    if unicodedata.combining(character) or unicodedata.category(character) in ("Cf", "Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fit(lines: Sequence[Line], width: int) -> list[Line]:
    """Every line in `width` columns at most. What is too long goes on below its own value, broken between words where
    that is possible; nothing is lost."""
    width = max(NARROWEST, min(width, WIDEST))
    found: list[Line] = []
    for row in lines:
        found += [row] if columns("".join(s.text for s in row)) <= width else _folded(row, width)
    return found


def _folded(row: Line, width: int) -> Iterator[Line]:
    text = "".join(s.text for s in row)
    label = re.match(r"( {8}\S+ {1,40}|\s*)", text)
    indent = columns(label[0]) if label is not None else 0
    if indent > width // 2:
        indent = 2
    current: list[Span] = []
    used = 0
    for span in row:
        for piece in re.findall(r"\s+|\S+", span.text):
            wide = columns(piece)
            if used + wide > width and piece.strip() and used > indent and wide <= width - indent:
                yield tuple(current)
                current, used = [Span(" " * indent)], indent
            for part in _cut(piece, width - used, width - indent):
                if columns(part) > width - used and part.strip():
                    yield tuple(current)
                    current, used = [Span(" " * indent)], indent
                if part.strip() or used < width:
                    current.append(Span(part, span.style))
                    used += columns(part)
    if "".join(s.text for s in current).strip():
        yield tuple(current)


def _cut(piece: str, first: int, rest: int) -> Iterator[str]:
    """A word that fits no line, in parts: the first in what is left of this one."""
    room, part, used = first, "", 0
    if columns(piece) <= first or not piece.strip() or columns(piece) <= rest:
        yield piece
        return
    for character in piece:
        wide = _columns(character)
        if used + wide > room and part:
            yield part
            room, part, used = rest, "", 0
        part += character
        used += wide
    if part:
        yield part
