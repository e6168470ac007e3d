"""Places inside a scalar: for expressions, whose own errors have lines and columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edgespec.diagnostics import SourceRange
from edgespec.records import replace
from edgespec.spec.document import Node

_ESCAPES: Final = {"x": 4, "u": 6, "U": 10}
"""Length of an escape that says a code."""
_BREAK: Final = "\n"


def place_inside(node: Node, line: int, column: int, length: int = 1) -> SourceRange:
    """Where line `line`, column `column` (from 1, in characters) of a scalar's value stands in its file. A place that
    cannot be told, as after a tag or in a value with variables, is the scalar's own."""
    if node.value is None or node.written is not None or not node.lines:
        return node.where
    rows = node.value.split("\n")
    if line > len(rows):
        line, column = len(rows), len(rows[-1]) + 1
    offset = sum(len(r) + 1 for r in rows[: line - 1]) + column - 1
    found = _position(node, min(offset, len(node.value)))
    if found is None:
        return node.where
    row, at = found
    text = node.lines[row]
    return replace(node.where, line=row + 1, column=at + 1, length=max(1, min(length, len(text) - at)), text=text)


def _position(node: Node, offset: int) -> tuple[int, int] | None:
    """The line and column, from 0, of one character of the value; of where it would go on at its end."""
    value = node.value or ""
    raw = list(_raw(node))
    at, last = 0, None
    for i, wanted in enumerate(value):
        start = _match(raw, at, wanted, node.style)
        if start is None:
            return None
        begin, at = start
        if i == offset:
            return raw[begin][1:]
        last = raw[at - 1]
    return (last[1], last[2] + 1) if last is not None else None


def _raw(node: Node) -> Iterator[tuple[str, int, int]]:
    """The file's characters from where the value can begin, each with its line and column; a break ends each line."""
    row, column = node.where.line - 1, node.where.column - 1
    if node.style in ("|", ">"):
        row, column = row + 1, 0
    elif node.style:
        column += 1
    for number in range(row, len(node.lines)):
        text = node.lines[number]
        for at in range(column, len(text)):
            yield text[at], number, at
        yield _BREAK, number, len(text)
        column = 0


def _match(raw: list[tuple[str, int, int]], at: int, wanted: str, style: str) -> tuple[int, int] | None:
    """Where the next character of the value begins, and where the one after it may."""
    if wanted.isspace():
        while at < len(raw) and not raw[at][0].isspace() and not _escape(raw, at, style):
            at += 1
    else:
        while at < len(raw) and raw[at][0].isspace():  # indentation, and lines that were folded into a space
            at += 1
    if at >= len(raw):
        return None
    if (length := _escape(raw, at, style)) > 0:
        return at, min(at + length, len(raw))
    if raw[at][0] != wanted and not (wanted.isspace() and raw[at][0].isspace()):
        return None
    return at, at + 1


def _escape(raw: list[tuple[str, int, int]], at: int, style: str) -> int:
    """The length of an escape that stands here; 0 where none does."""
    follows = raw[at + 1][0] if at + 1 < len(raw) else ""
    if style == "'" and raw[at][0] == "'" and follows == "'":
        return 2
    if style == '"' and raw[at][0] == "\\":
        return _ESCAPES.get(follows, 2)
    return 0
