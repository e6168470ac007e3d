"""A graph as Mermaid, which GitHub and GitLab draw in Markdown, or as DOT for Graphviz."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from edgespec.render.text import printable

Format: TypeAlias = Literal["mermaid", "dot"]
Shape: TypeAlias = Literal["box", "round", "store", "file"]
_MERMAID: Final[dict[Shape, tuple[str, str]]] = {
    "box": ("[", "]"),
    "round": ("([", "])"),
    "store": ("[(", ")]"),
    "file": ("[/", "/]"),
}
_DOT: Final[dict[Shape, str]] = {"box": "box", "round": "ellipse", "store": "cylinder", "file": "note"}


@dataclass(frozen=True, slots=True)
class Vertex:
    """`key` tells it from the others; `lines` are shown. Those of a `group` are drawn together."""

    key: str
    lines: tuple[str, ...]
    group: str = ""
    shape: Shape = "box"
    faint: bool = False
    """What there is no need to do: drawn with a dashed border."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """`edges` lead from what is needed to what needs it, by key."""

    title: str
    vertices: tuple[Vertex, ...]
    edges: tuple[tuple[str, str], ...]


def render(drawing: Drawing, form: Format) -> str:
    """The whole text, with an end of line; the same for the same drawing, whatever order it was made in."""
    ordered = Drawing(
        drawing.title,
        tuple(sorted(drawing.vertices, key=lambda v: (v.group, v.key))),
        tuple(sorted(set(drawing.edges))),
    )
    return "\n".join(_mermaid(ordered) if form == "mermaid" else _dot(ordered)) + "\n"


def _grouped(vertices: Sequence[Vertex]) -> Iterator[tuple[str, list[Vertex]]]:
    for group in dict.fromkeys(v.group for v in vertices):
        yield group, [v for v in vertices if v.group == group]


# --- Mermaid ---------------------------------------------------------------------------------------------------------


def _mermaid(drawing: Drawing) -> Iterator[str]:
    ids = {v.key: f"n{i}" for i, v in enumerate(drawing.vertices)}
    yield "---"
    yield f'title: "{_entities(drawing.title)}"'
    yield "---"
    yield "flowchart LR"
    for i, (group, vertices) in enumerate(_grouped(drawing.vertices)):
        indent = "    " if group else "  "
        if group:
            yield f'  subgraph g{i}["{_entities(group)}"]'
        for v in vertices:
            left, right = _MERMAID[v.shape]
            yield f'{indent}{ids[v.key]}{left}"{"<br>".join(_entities(row) for row in v.lines)}"{right}'
        if group:
            yield "  end"
    for source, target in drawing.edges:
        yield f"  {ids[source]} --> {ids[target]}"
    faint = [ids[v.key] for v in drawing.vertices if v.faint]
    if faint:
        yield "  classDef faint stroke-dasharray: 4 3"
        yield f"  class {','.join(faint)} faint"


def _entities(text: str) -> str:
    """Within quotes everything is text but what would end them or be read as HTML or as an entity."""
    return re.sub(r'["#&<>`\\]', lambda m: f"#{ord(m[0])};", printable(text))


# --- DOT -------------------------------------------------------------------------------------------------------------


def _dot(drawing: Drawing) -> Iterator[str]:
    yield f"digraph {_quoted(drawing.title)} {{"
    yield "  rankdir=LR"
    yield '  node [fontname="Helvetica"]'
    for i, (group, vertices) in enumerate(_grouped(drawing.vertices)):
        indent = "    " if group else "  "
        if group:
            yield f"  subgraph cluster_{i} {{"
            yield f"    label={_quoted(group)}"
        for v in vertices:
            style = ", style=dashed" if v.faint else ""
            label = '"' + r"\n".join(_quoted(row)[1:-1] for row in v.lines) + '"'
            yield f"{indent}{_quoted(v.key)} [label={label}, shape={_DOT[v.shape]}{style}]"
        if group:
            yield "  }"
    for source, target in drawing.edges:
        yield f"  {_quoted(source)} -> {_quoted(target)}"
    yield "}"


def _quoted(text: str) -> str:
    escaped = printable(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
