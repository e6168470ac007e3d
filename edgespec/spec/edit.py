"""Setting one value in a YAML file without touching anything else: comments, order, quotes and spacing stay.

The file is not written anew from what was read; the value's own characters are replaced, or a key is put in where it
belongs. What cannot be done so is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import yaml

from edgespec.diagnostics import EdgespecError, error
from edgespec.spec.validate import Path, dotted

_BOM: Final = "\ufeff"
_WIDE: Final = 10**9


def set_value(text: str, line: int, path: Path, value: Any) -> str:
    """`text` with the value at `path` of the document that begins at `line` (from 1) replaced, or added to the
    innermost mapping that is there. Raises EdgespecError (ES593) when the file's form does not allow it."""
    mark, body = (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)
    nodes = list(yaml.compose_all(body, Loader=yaml.SafeLoader))
    document = next((i for i, n in enumerate(nodes) if n is not None and n.start_mark.line + 1 == line), None)
    if document is None:
        raise cannot(path, f"no document begins at line {line} any more")
    edited = _set(body, nodes[document], path, value)
    wanted = _with(_plain(body)[document], path, _plain(flow(value))[0])
    if _plain(edited)[document] != wanted:
        raise cannot(path, "the result would not mean what it should")
    return mark + edited


def _set(text: str, node: yaml.Node, path: Path, value: Any) -> str:
    """Follows `path` as far as it goes."""
    within = False
    for depth, part in enumerate(path):
        inner = child(node, part)
        if inner is None:
            rest: Any = value
            for name in reversed(path[depth + 1 :]):
                if isinstance(name, int):
                    raise cannot(path, f"there is no item {name}")
                rest = {name: rest}
            return _add(text, node, part, rest, path)
        within = within or _is_flow(node)
        node = inner
    start, end = node.start_mark.index, end_of(node)
    replaced = flow(value, within=within)
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        before = text[:start].rstrip(" \n")
        if before.endswith(":"):  # the block began on the next line
            return f"{before} {replaced}{text[end:]}"
    return text[:start] + replaced + text[end:]


def child(node: yaml.Node, part: str | int) -> yaml.Node | None:
    """A mapping's value by its key, a list's item by its index; None where there is none."""
    if isinstance(node, yaml.MappingNode):
        return next((v for k, v in node.value if k.value == part), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        item: yaml.Node = node.value[part]
        return item
    return None


def end_of(node: yaml.Node) -> int:
    """Where the node's own characters end: a block's mark lies behind the comments that follow it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        last = node.value[-1]
        return end_of(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.index)


def _add(text: str, node: yaml.Node, key: str | int, value: Any, path: Path) -> str:
    if not isinstance(node, yaml.MappingNode) or isinstance(key, int):
        raise cannot(path, f"{dotted(path)} is no field of a mapping")
    within = _is_flow(node)
    entry = f"{flow(key, within=within)}: {flow(value, within=within)}"
    if node.flow_style:
        close = node.end_mark.index - 1
        inside = text[node.start_mark.index + 1 : close].rstrip()
        separator = "" if not inside else " " if inside.endswith(",") else ", "
        at = node.start_mark.index + 1 + len(inside)
        return text[:at] + separator + entry + text[at:]
    end = end_of(node)
    line_end = text.find("\n", end)
    at = len(text) if line_end < 0 else line_end
    column = node.value[0][0].start_mark.column
    return f"{text[:at]}\n{' ' * column}{entry}{text[at:]}"


def _is_flow(node: yaml.Node) -> bool:
    return isinstance(node, yaml.CollectionNode) and bool(node.flow_style)


def flow(value: Any, *, within: bool = False) -> str:
    """On one line, as people write it; `within` brackets or braces, where more texts need quotes."""
    data = [value] if within else value
    dumped: str = yaml.safe_dump(data, default_flow_style=True, width=_WIDE, allow_unicode=True, sort_keys=False)
    written = dumped.removesuffix("\n").removesuffix("\n...")
    return written[1:-1] if within else written


def _plain(text: str) -> list[Any]:
    """Every document, scalars as their text: what the spec language reads."""
    return list(yaml.load_all(text, Loader=yaml.BaseLoader))


def _with(data: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    part, *rest = path
    if isinstance(part, int):
        return [_with(v, tuple(rest), value) if i == part else v for i, v in enumerate(data)]
    data = data if isinstance(data, Mapping) else {}
    return {**data, part: _with(data.get(part), tuple(rest), value)}


def cannot(path: Path, why: str) -> EdgespecError:
    """What is raised where a file's form does not allow an edit."""
    detail = f"`{dotted(path)}`: {why}. Write the value yourself."
    return EdgespecError(error("ES593", "The file cannot be edited", detail))
