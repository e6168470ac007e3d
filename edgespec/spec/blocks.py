"""Entries of a YAML document in block style, put in and taken out as whole lines: everything else stays as written.

A comment above an entry goes with it. What is written on one line ({...}, [...]) is replaced whole by `edit.set_value`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import yaml

from edgespec.spec.edit import cannot, child, end_of, flow, set_value
from edgespec.spec.validate import Path

_STEP: Final = 2
"""Columns by which what is put in is indented."""


class Blocks:
    """`text` as it is after each change; `line` (from 1) is where its document begins. Raises EdgespecError (ES593)
    for what its form does not allow."""

    def __init__(self, text: str, line: int) -> None:
        self.text = text
        self._line = line

    def set(self, path: Path, value: Any) -> None:
        """A value that is there."""
        self.text = set_value(self.text, self._line, path, value)

    def put_key(self, path: Path, key: str, value: Any, *, after: str | None = None) -> None:
        """A new entry of the mapping at `path`: behind the entry `after`, else where its name belongs."""
        node = self._node(path)
        if not isinstance(node, yaml.MappingNode) or node.flow_style or not node.value:
            self._put_whole(path, node, {key: value})
            return
        column = node.value[0][0].start_mark.column
        lines = _entry(key, value, column)
        names = [k.value for k, _ in node.value]
        if after in names:
            self._insert(self._line_after(node.value[names.index(after)][1]), lines)
            return
        at = next((i for i, n in enumerate(names) if n > key), None)
        if at is None:
            self._insert(self._line_after(node.value[-1][1]), lines)
        else:
            self._insert(self._with_comments(self._line_of(node.value[at][0])), lines)

    def put_item(self, path: Path, index: int, value: Mapping[str, Any]) -> None:
        """A new item of the list at `path`, before the one that has this index now."""
        node = self._node(path)
        if not isinstance(node, yaml.SequenceNode):
            raise cannot(path, "it is no list")
        if node.flow_style or not node.value:
            plain: list[Any] = yaml.load(self.text[node.start_mark.index : node.end_mark.index], yaml.BaseLoader)  # noqa: S506
            self.set(path, [*plain[:index], value, *plain[index:]])
            return
        column = self._dash(node)
        first, *rest = [row for k, v in value.items() for row in _entry(k, v, column + _STEP)]
        lines = [f"{' ' * column}- {first.strip()}", *rest]
        if index < len(node.value):
            self._insert(self._with_comments(self._line_of(node.value[index])), lines)
        else:
            self._insert(self._line_after(node.value[-1]), lines)

    def remove(self, path: Path) -> None:
        """The entry or item at `path`, with the comment above it."""
        parent, part = self._node(path[:-1]), path[-1]
        if parent is None or child(parent, part) is None:
            raise cannot(path, "it is not there")
        if isinstance(parent, yaml.CollectionNode) and (parent.flow_style or len(parent.value) == 1):
            self._put_whole(path[:-1], None, _without(self._plain(parent), part))
            return
        if isinstance(parent, yaml.MappingNode):
            key, value = next((k, v) for k, v in parent.value if k.value == part)
        else:
            key = value = child(parent, part)
        lines = self.text.splitlines(keepends=True)
        start, end = self._with_comments(self._line_of(key)), self._line_after(value)
        self.text = "".join(lines[:start] + lines[end:])

    # --- where lines begin and end

    def _node(self, path: Path) -> Any:
        nodes = list(yaml.compose_all(self.text, Loader=yaml.SafeLoader))
        node: Any = next((n for n in nodes if n is not None and n.start_mark.line + 1 == self._line), None)
        if node is None:
            raise cannot(path, f"no document begins at line {self._line} any more")
        for part in path:
            node = child(node, part)
            if node is None:
                return None
        return node

    def _plain(self, node: yaml.Node) -> Any:
        column = " " * node.start_mark.column
        return yaml.load(column + self.text[node.start_mark.index : end_of(node)], yaml.BaseLoader)  # noqa: S506

    def _put_whole(self, path: Path, node: Any, value: Any) -> None:
        """For what is on one line, empty or not there: an empty map becomes a block, the rest stays on one line."""
        is_empty = node is None or not node.value or node.value in ("~", "null")
        if node is not None and is_empty and len(path) == 1 and value:
            self._open(path, node, value)
            return
        plain = {} if is_empty else self._plain(node)
        self.set(path, {**plain, **value} if isinstance(value, Mapping) else value)

    def _open(self, path: Path, node: yaml.Node, value: Mapping[str, Any]) -> None:
        """`models: {}` as a block."""
        start, end = node.start_mark.index, int(node.end_mark.index)
        before = self.text[:start].rstrip(" ")
        line_end = self.text.find("\n", end)
        rest = self.text[end:] if line_end < 0 else self.text[end:line_end]
        tail = "" if line_end < 0 else self.text[line_end:]
        rows = [row for k, v in value.items() for row in _entry(k, v, _STEP)]
        self.text = before + rest.rstrip() + "\n" + "\n".join(rows) + (tail or "\n")

    def _dash(self, node: yaml.SequenceNode) -> int:
        """The column of the list's dashes."""
        row = self._rows()[self._line_of(node.value[0])]
        return len(row) - len(row.lstrip(" "))

    def _rows(self) -> list[str]:
        return self.text.splitlines(keepends=True)

    @staticmethod
    def _line_of(node: yaml.Node) -> int:
        return int(node.start_mark.line)

    def _line_after(self, node: yaml.Node) -> int:
        """The number of the line behind the node's last one."""
        return self.text.count("\n", 0, end_of(node)) + 1

    def _with_comments(self, line: int) -> int:
        """Where the comment begins that stands directly above a line, of the same indentation."""
        rows = self._rows()
        indent = len(rows[line]) - len(rows[line].lstrip(" "))
        while line > 0 and (above := rows[line - 1]).lstrip(" ").startswith("#"):
            if len(above) - len(above.lstrip(" ")) != indent:
                break
            line -= 1
        return line

    def _insert(self, line: int, rows: list[str]) -> None:
        lines = self._rows()
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"
        self.text = "".join([*lines[:line], *(f"{row}\n" for row in rows), *lines[line:]])


def _entry(key: str, value: Any, column: int) -> list[str]:
    """`key: value` as lines: maps of maps and lists of maps as blocks, everything else on the key's line."""
    head = f"{' ' * column}{flow(key)}:"
    if isinstance(value, Mapping) and any(isinstance(v, (list, Mapping)) for v in value.values()):
        return [head, *(row for k, v in value.items() for row in _entry(k, v, column + _STEP))]
    if isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
        rows = [head]
        for item in value:
            first, *rest = [row for k, v in item.items() for row in _entry(k, v, column + 2 * _STEP)]
            rows += [f"{' ' * (column + _STEP)}- {first.strip()}", *rest]
        return rows
    return [f"{head} {flow(value)}"]


def _without(plain: Any, part: str | int) -> Any:
    if isinstance(plain, Mapping):
        return {k: v for k, v in plain.items() if k != part}
    return [v for i, v in enumerate(plain) if i != part]
