"""The leaves of two documents that differ, and how a person reads a value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from edgespec.diagnostics import some
from edgespec.spec.diff.model import Note, Risk
from edgespec.spec.units import format_count, format_duration, format_size

_DURATIONS: Final = frozenset({"ttl", "cache_ttl"})
_SIZES: Final = frozenset({"chunk", "memory", "script"})
_COUNTS: Final = frozenset({"requests"})
_LONG: Final = 60


def leaves(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(path, before, after) of every scalar and every list that differs; None stands for what is not there."""
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}):
            yield from leaves(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))
    else:
        yield path, before, after


def notes(facet: str, before: Any, after: Any, path: str) -> Iterator[Note]:
    """A note a leaf, without a risk of its own."""
    for where, old, new in leaves(before, after, path):
        yield Note(facet, where, sides(where, old, new), Risk.LOW, "", old, new)


def sides(path: str, before: Any, after: Any) -> str:
    """`name: old -> new`, or for lists what came and what went."""
    name = path.split(".", 1)[-1] or path
    if _plain_list(before) and _plain_list(after):
        came = [shown(path, v) for v in after if v not in before]
        went = [shown(path, v) for v in before if v not in after]
        if not came and not went:
            return f"{name}: another order: {shown(path, after)}"
        return f"{name}: {short([*(f'+{v}' for v in came), *(f'-{v}' for v in went)])}"
    return f"{name}: {shown(path, before)} -> {shown(path, after)}"


def _plain_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str | int | float) for v in value)


def short(words: list[str], most: int = 6) -> str:
    """The first few, and how many more."""
    return some(words, most)


def shown(path: str, value: Any) -> str:
    """One value on one line, with the unit that its field has."""
    name = path.rsplit(".", 1)[-1]
    if value is None:
        return "(none)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and name in _DURATIONS:
        return format_duration(value)
    if isinstance(value, int) and name in _SIZES:
        return _exact(value)
    if isinstance(value, int) and name in _COUNTS:
        return format_count(value)
    if isinstance(value, list):
        return short([shown(path, v) for v in value]) or "(none)"
    if isinstance(value, Mapping):
        text = ", ".join(f"{k}: {shown(str(k), v)}" for k, v in value.items() if v is not None)
        return f"{{{text}}}"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"


def _exact(size: int) -> str:
    """Two sizes that differ never look the same."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B" if size < 2**10 else f"{format_size(size)} ({size:,} bytes)"
