"""Text to nodes with positions. Scalars stay text: `no`, `010`, `1.10` and dates mean what a schema says later.

Built on PyYAML's event stream rather than `safe_load`, which loses positions, resolves scalars to Python types by
YAML 1.1's rules and lets duplicate keys pass (pyyaml#165).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import Any, Final

import yaml
from msgspec import Struct, field

from edgespec.diagnostics import Checked, Diagnostic, Diagnostics, SourceRange, error

MAX_DEPTH: Final = 64
MAX_NODES: Final = 50_000
"""Nodes of one file with every alias expanded: an alias bomb is refused long before it costs memory."""

_BREAK: Final = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
"""Line breaks as YAML counts them; `str.splitlines` knows more."""
_CONTROL: Final = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What YAML does not allow anywhere."""
_STANDARD: Final = "tag:yaml.org,2002:"
_TEXT_TAGS: Final = frozenset({"!", f"{_STANDARD}str"})
_TAGS: Final = _TEXT_TAGS | {f"{_STANDARD}{name}" for name in ("int", "float", "bool", "null", "seq", "map")}
"""Tags that say what a schema would say anyway; all others would change what a value means."""
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SCALAR: Final = yaml.ScalarEvent
_NO_ITEMS: Final[Any] = ()
_NO_ENTRIES: Final[Any] = MappingProxyType({})
"""What every scalar has: most nodes are scalars, and none needs containers of its own."""


class Source(Struct, frozen=True):
    """A text file as read: `path` is what messages show."""

    path: str
    text: str

    def range(self, line: int, column: int, length: int = 1) -> SourceRange:
        """`line` and `column` count from 0, as YAML marks do."""
        lines = _BREAK.split(self.text)
        shown = lines[line] if line < len(lines) else ""
        return SourceRange(self.path, line + 1, column + 1, max(1, length), shown)


class Node(Struct, eq=False):
    """A scalar (`value` is str or None), a list or a map; `where` is the place of its first character."""

    kind: str
    where: SourceRange
    value: str | None = None
    items: list[Node] = field(default_factory=list)
    entries: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, SourceRange] = field(default_factory=dict)
    removed: dict[str, SourceRange] = field(default_factory=dict)
    """Where an overlay took out a key that was, or might have been, in it."""
    size: int = 1
    """Nodes in it, itself included, with every alias expanded."""
    height: int = 0
    """Levels below it."""
    written: str | None = None
    """A scalar's text in the file, where variables were replaced in `value`: what messages show."""
    style: str = ""
    """How a scalar is written: empty for a plain one, else its quote, `|` or `>`."""
    lines: Sequence[str] = ()
    """Every line of the file."""

    @property
    def shown(self) -> str | None:
        """A scalar as the file has it: the value of a variable is never told."""
        return self.value if self.written is None else self.written

    def plain(self) -> Any:
        """The node as lists, dicts, strings and None."""
        if self.kind == "map":
            return {k: v.plain() for k, v in self.entries.items()}
        if self.kind == "list":
            return [v.plain() for v in self.items]
        return self.value

    def child(self, key: str | int) -> Node | None:
        if self.kind == "map" and isinstance(key, str):
            return self.entries.get(key)
        if self.kind == "list" and isinstance(key, int) and 0 <= key < len(self.items):
            return self.items[key]
        return None

    def walk(self) -> Iterator[Node]:
        yield self
        for node in (*self.items, *self.entries.values()):
            yield from node.walk()


def parse(source: Source) -> Checked[list[Node]]:
    """Every document of a file, empty ones left out."""
    if (control := _CONTROL.search(source.text)) is not None:
        return Checked(None, Diagnostics.of(_not_allowed(source, control)))
    composer = _Composer(source)
    try:
        return Checked(composer.documents(), Diagnostics(tuple(composer.found)))
    except _RefusedError as e:
        return Checked(None, Diagnostics((*composer.found, e.diagnostic)))
    except yaml.YAMLError as e:
        return Checked(None, Diagnostics((*composer.found, _syntax_error(source, e))))


class _RefusedError(Exception):
    def __init__(self, diagnostic: Diagnostic) -> None:
        self.diagnostic = diagnostic


def _syntax_error(source: Source, e: yaml.YAMLError) -> Diagnostic:
    mark = getattr(e, "problem_mark", None) or getattr(e, "context_mark", None)
    if mark is not None:
        problem = getattr(e, "problem", None) or str(e)
        context = getattr(e, "context", None)
        place = source.range(mark.line, mark.column)
        detail = f"{problem}{f' ({context})' if context else ''}."
        if "cannot start any token" in detail and "\t" in place.text:
            detail += " YAML is indented with spaces; this line has a tab."
        return error("ES101", "Not valid YAML", detail[0].upper() + detail[1:], source=place)
    return error("ES101", "Not valid YAML", f"{e}.", source=source.range(0, 0))


def _not_allowed(source: Source, found: re.Match[str]) -> Diagnostic:
    before = _BREAK.split(source.text[: found.start()])
    place = source.range(len(before) - 1, len(before[-1]))
    detail = f"YAML does not allow the character U+{ord(found[0]):04X}; remove it."
    return error("ES101", "Not valid YAML", detail, source=place)


class _Composer:
    """Events to nodes without recursion in the parser; anchors become shared nodes."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.lines = _BREAK.split(source.text)
        self.found: list[Diagnostic] = []
        self.anchors: dict[str, Node] = {}
        self.path = source.path
        self.loader = _LOADER(source.text)
        self.next = self.loader.get_event

    def documents(self) -> list[Node]:
        found: list[Node] = []
        try:
            while self.loader.check_event():
                event = self.loader.get_event()
                if isinstance(event, yaml.DocumentStartEvent):
                    self.anchors = {}
                    node = self.node(self.loader.get_event(), 0)
                    if node.kind != "scalar" or node.value is not None:
                        found.append(node)
        finally:
            self.loader.dispose()
        return found

    def place(self, event: Any) -> SourceRange:
        """A scalar's first line, of anything else the first character."""
        mark, end = event.start_mark, event.end_mark
        at, column = mark.line, mark.column
        length = end.column - column if type(event) is _SCALAR and end.line == at else 1
        line = self.lines[at] if at < len(self.lines) else ""
        return SourceRange(self.path, at + 1, column + 1, length if length > 1 else 1, line)

    def node(self, event: Any, depth: int) -> Node:
        where = self.place(event)
        if depth > MAX_DEPTH:
            raise _RefusedError(error("ES103", "Nested too deeply", f"More than {MAX_DEPTH} levels.", source=where))
        kind = type(event)
        if kind is yaml.AliasEvent:
            return self.alias(event, where)
        if event.tag and event.tag not in _TAGS:
            raise _RefusedError(
                error("ES104", "Unknown tag", f"{event.tag} has no meaning here; remove it.", source=where)
            )
        if kind is _SCALAR:
            node = self.scalar(event, where)
        elif kind is yaml.SequenceStartEvent:
            node = Node("list", where)
            while type(inner := self.next()) is not yaml.SequenceEndEvent:
                node.items.append(self.node(inner, depth + 1))
            self.measure(node, depth)
        else:
            node = self.mapping(where, depth)
            self.measure(node, depth)
        if event.anchor:
            self.anchors[event.anchor] = node
        return node

    def scalar(self, event: Any, where: SourceRange) -> Node:
        style = event.style or ""  # libyaml's style of a plain scalar is '', PyYAML's None
        null = not style and event.tag not in _TEXT_TAGS and event.value in _NULLS
        value = None if null else event.value
        empty = _NO_ENTRIES
        return Node("scalar", where, value, _NO_ITEMS, empty, empty, empty, style=style, lines=self.lines)

    def mapping(self, where: SourceRange, depth: int) -> Node:
        node = Node("map", where)
        merged: list[Node] = []
        entries, keys = node.entries, node.keys
        while type(event := self.next()) is not yaml.MappingEndEvent:
            name, place, plain = self.key(event, depth + 1)
            inner = self.next()
            if type(inner) is _SCALAR and not inner.tag and not inner.anchor and depth < MAX_DEPTH:
                value = self.scalar(inner, self.place(inner))  # nearly every value
            else:
                value = self.node(inner, depth + 1)
            if name == "<<" and plain:
                merged += value.items if value.kind == "list" else [value]
            elif name in entries:
                detail = f"{name!r} was given before, at {keys[name]}; only one of them can be meant."
                self.found.append(error("ES106", "Duplicate key", detail, source=place))
            else:
                entries[name], keys[name] = value, place
        for base in merged:
            if base.kind != "map":
                raise _RefusedError(
                    error("ES105", "Only a map can be merged", "`<<` takes an alias of a map.", source=base.where)
                )
            for name, value in base.entries.items():
                if name not in node.entries:
                    node.entries[name], node.keys[name] = value, base.keys[name]
        return node

    def key(self, event: Any, depth: int) -> tuple[str, SourceRange, bool]:
        """A key's name, its place, and whether it is written without quotes."""
        plain = type(event) is _SCALAR and not event.style
        if plain and not event.tag and not event.anchor and event.value not in _NULLS and depth <= MAX_DEPTH:
            return event.value, self.place(event), True  # nearly every key: a node would only be thrown away
        key = self.node(event, depth)
        if key.kind != "scalar":
            raise _RefusedError(
                error("ES105", "A key must be text", "Lists and maps cannot be keys.", source=key.where)
            )
        name = key.value if key.value is not None else (event.value if plain else "") or "null"
        return name, key.where, plain

    def alias(self, event: Any, where: SourceRange) -> Node:
        target = self.anchors.get(event.anchor)
        if target is None:
            detail = f"*{event.anchor} names no finished anchor above it (an anchor cannot contain itself)."
            raise _RefusedError(error("ES107", "Unknown alias", detail, source=where))
        return target

    def measure(self, node: Node, depth: int) -> None:
        """Refuse what its aliases make too large or too deep, however short its text is."""
        size, height = 1, 0
        for child in node.items or node.entries.values():
            size += child.size
            if child.height >= height:
                height = child.height + 1
        node.size, node.height = size, height
        if node.size > MAX_NODES:
            detail = f"With its aliases expanded this holds more than {MAX_NODES:,} values."
            raise _RefusedError(error("ES108", "Too large", detail, source=node.where))
        if depth + node.height > MAX_DEPTH:
            detail = f"With its aliases expanded this has more than {MAX_DEPTH} levels."
            raise _RefusedError(error("ES103", "Nested too deeply", detail, source=node.where))
