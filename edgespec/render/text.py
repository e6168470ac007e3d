"""Lines of styled text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from edgespec.values import Unknown, Value, digest, is_known


@dataclass(frozen=True, slots=True)
class Span:
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


_BUILT = frozenset({"artifact", "blobs", "engine", "manifest", "size", "source_digest"})
_LONG = 72


def show(path: str, value: Value, *, opaque: bool = False) -> str:
    """One value on one line: digests shortened, what is unknown said so."""
    if isinstance(value, Unknown) or not is_known(value):
        return "(known after build)" if path.split(".")[-1] in _BUILT else "(known after apply)"
    if value is None:
        return "(none)"
    if opaque:
        return digest(value)[:12]
    if isinstance(value, bool):
        return "true" if value else "false"
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
