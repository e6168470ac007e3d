"""What a spec comes to in an environment, as YAML: its own file, overlays and defaults in one document, and where each
line was written.

The text means what the spec means: read again, it gives the same. A default that may not be written out (the time to
live in a tier that is not used, say) is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from edgespec.diagnostics import SourceRange
from edgespec.spec.check import check_spec
from edgespec.spec.document import Node, Source, parse
from edgespec.spec.models import EdgeModel, Project
from edgespec.spec.units import format_duration, parse_duration, parse_size
from edgespec.spec.validate import Path, dotted, validate

DEFAULT: Final = "default"
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./@+-][A-Za-z0-9_./@+=:-]*(?: [A-Za-z0-9_./@+=-]+)*")
_NULLS: Final = frozenset({"~", "null", "Null", "NULL"})
_SIZES: Final = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


@dataclass(slots=True)
class _Value:
    """A scalar (`text` and `data`), a list or a map; `origin` is None where nobody wrote it."""

    origin: SourceRange | None
    text: str = ""
    data: Any = None
    items: list[_Value] | None = None
    entries: dict[str, _Value] | None = None
    removed: SourceRange | None = None
    """Where an overlay took out what was written, so that the default holds."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the document."""

    text: str
    path: Path
    origin: SourceRange | None
    """None for a default."""
    removed: SourceRange | None = None
    """Where an overlay brings the default back."""

    @property
    def place(self) -> str:
        """`file:line`, or `default`."""
        if self.origin is not None:
            return _line(self.origin)
        return f"{DEFAULT}, by {_line(self.removed)}" if self.removed is not None else DEFAULT


def _line(where: SourceRange) -> str:
    return f"{where.path}:{where.line}"


@dataclass(frozen=True, slots=True)
class Effective:
    rows: tuple[Row, ...]
    data: dict[str, Any]
    """Sizes are bytes and durations seconds."""

    @property
    def text(self) -> str:
        return "".join(f"{row.text}\n" for row in self.rows)

    @property
    def origins(self) -> dict[str, str]:
        """Each line's field, and its place."""
        return {dotted(row.path): row.place for row in self.rows}


def effective(spec: EdgeModel, node: Node, project: Project) -> Effective:
    """`node` is the document that `spec` was read from, overlays merged."""
    tree = _of(spec, node, None, None)
    while True:
        made = Effective(tuple(_rows(tree, (), "")), _data(tree))
        refused = [path for path in _refused(made, project) if _remove(tree, path)]
        if not refused:
            return made


def _refused(made: Effective, project: Project) -> Iterator[Path]:
    """Lines that hold a default and may not be written."""
    (node,) = parse(Source("", made.text)).unwrap()
    checked = validate(EdgeModel, node, "EdgeModel")
    found = checked.diagnostics if checked.value is None else check_spec(checked.value, node, project)
    for problem in found:
        row = made.rows[problem.source.line - 1] if problem.source is not None else None
        if row is not None and row.origin is None:
            yield row.path


def _remove(tree: _Value, path: Path) -> bool:
    *above, last = path
    for part in above:
        inner = tree.items[part] if isinstance(part, int) and tree.items else (tree.entries or {}).get(str(part))
        if inner is None:
            return False
        tree = inner
    return tree.entries is not None and tree.entries.pop(str(last), None) is not None


# --- values with their origins ---------------------------------------------------------------------------------------


def _of(value: Any, node: Node | None, info: FieldInfo | None, key: SourceRange | None) -> _Value:
    """`key` is where the value's key stands, or the item itself."""
    if node is not None and node.kind == "scalar":
        return _Value(node.where, _scalar(node.value or "", quoted=bool(node.style)), _plain(value))
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        named = {name: (getattr(value, name), fields[name]) for name in fields}
        return _map({n: v for n, v in named.items() if v[0] is not None}, node, key)
    if isinstance(value, Mapping):
        return _map({str(n): (v, None) for n, v in value.items()}, node, key)
    if isinstance(value, tuple | list):
        nodes = [node.child(i) if node is not None else None for i in range(len(value))]
        items = [_of(v, n, None, n.where if n is not None else None) for v, n in zip(value, nodes, strict=True)]
        return _Value(key, "[]", items=items)
    return _Value(key, _default(value, info), value)


def _map(values: Mapping[str, tuple[Any, FieldInfo | None]], node: Node | None, key: SourceRange | None) -> _Value:
    entries = {}
    for name, (value, info) in values.items():
        child = node.child(name) if node is not None else None
        place = node.keys.get(name) if node is not None and child is not None else None
        entries[name] = _of(value, child, info, place)
        entries[name].removed = node.removed.get(name) if node is not None and child is None else None
    return _Value(key, "{}", entries=entries)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    return list(value) if isinstance(value, tuple) else value


def _scalar(text: str, *, quoted: bool = False) -> str:
    """As somebody would write it."""
    plain = _PLAIN.fullmatch(text) and text not in _NULLS and not quoted
    return text if plain else json.dumps(text, ensure_ascii=False)


def _default(value: Any, info: FieldInfo | None) -> str:
    parsers = {getattr(m, "func", None) for m in info.metadata} if info is not None else set()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and parse_size in parsers:
        return next((f"{value // f}{unit}" for unit, f in _SIZES if value >= f and value % f == 0), str(value))
    if isinstance(value, int) and parse_duration in parsers:
        return format_duration(value)
    return str(value) if isinstance(value, int | float) else _scalar(str(value))


# --- lines -----------------------------------------------------------------------------------------------------------


def _rows(value: _Value, path: Path, indent: str) -> Iterator[Row]:
    """The lines of a list's items, or of a map's entries."""
    for i, item in enumerate(value.items or ()):
        first, *rest = _item(item, (*path, i), indent)
        yield first
        yield from rest
    for name, entry in (value.entries or {}).items():
        yield from _entry(name, entry, (*path, name), indent)


def _entry(name: str, value: _Value, path: Path, indent: str) -> Iterator[Row]:
    inner = value.items or value.entries
    head = f"{indent}{_scalar(name)}:"
    yield Row(head if inner else f"{head} {value.text}", path, value.origin, value.removed)
    if inner:
        yield from _rows(value, path, f"{indent}  ")


def _item(value: _Value, path: Path, indent: str) -> Iterator[Row]:
    if not (value.items or value.entries):
        yield Row(f"{indent}- {value.text}", path, value.origin, value.removed)
        return
    for i, row in enumerate(_rows(value, path, f"{indent}  ")):
        yield Row(f"{indent}- {row.text[len(indent) + 2 :]}", row.path, row.origin, row.removed) if i == 0 else row


def _data(value: _Value) -> Any:
    if value.entries is not None:
        return {n: _data(v) for n, v in value.entries.items()}
    return [_data(v) for v in value.items] if value.items is not None else value.data
