"""What an environment changes in specs: `environments.E.overrides`, a map of selectors to partial specs.

Documents are merged as nodes, before they are validated: maps merge, lists and scalars replace, `null` removes. Each
node keeps its place, so that what is wrong with an overlaid value is told at its line of edgespec.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from edgespec.diagnostics import Diagnostic, SourceRange, error, warning
from edgespec.records import replace
from edgespec.spec.document import Node
from edgespec.spec.selectors import Selector, parse_selector
from edgespec.spec.validate import suggest

ALL: Final = "*"
_LABELS: Final = re.compile(r"[=!,()\s]")
"""What only a selector of labels has: anything else is a spec's name."""
_FIXED: Final = ("apiVersion", "kind")


class Overlay(Struct, frozen=True):
    """A partial spec, and whom it is merged into. `selector` is None for `*` and for a name."""

    text: str
    where: SourceRange
    node: Node
    selector: Selector | None = None

    @property
    def order(self) -> int:
        """Everybody's first, then those by labels, then the one by name: the more special wins."""
        return 0 if self.text == ALL else 1 if self.selector is not None else 2

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        if self.selector is not None:
            return self.selector.matches(labels)
        return self.text in (ALL, name)


def overlays_of(project: Node, environment: str) -> list[Overlay]:
    """Of one environment, in the order in which they are merged. Selectors that cannot be read are left out: `check`
    tells of them."""
    return sorted((o for o in _read(project, environment) if isinstance(o, Overlay)), key=lambda o: o.order)


def check_overlays(project: Node) -> list[Diagnostic]:
    """What is wrong with any environment's overlays, whatever specs there are."""
    environments = project.child("environments")
    found: list[Diagnostic] = []
    for name in environments.entries if environments is not None else ():
        for read in _read(project, name):
            found += [read] if isinstance(read, Diagnostic) else _protected(read.node)
    return found


def _read(project: Node, environment: str) -> Iterator[Overlay | Diagnostic]:
    node: Node | None = project
    for key in ("environments", environment, "overrides"):
        node = node.child(key) if node is not None else None
    for text, overlay in node.entries.items() if node is not None else ():
        where = node.keys[text] if node is not None else overlay.where
        if text == ALL or (text and not _LABELS.search(text)):
            yield Overlay(text, where, overlay)
            continue
        try:
            yield Overlay(text, where, overlay, parse_selector(text))
        except ValueError as e:
            detail = f"{text!r}: {e}. Write `*`, a spec's name, or labels such as `team=support` or `tier in (a, b)`."
            yield error("ES180", "Not a selector", detail, source=where)


def _protected(overlay: Node) -> Iterator[Diagnostic]:
    where = [overlay.keys[name] for name in _FIXED if name in overlay.entries]
    metadata = overlay.child("metadata")
    if metadata is not None and metadata.kind != "map":
        where.append(overlay.keys["metadata"])
    elif metadata is not None and "name" in metadata.entries:
        where.append(metadata.keys["name"])
    for place in where:
        detail = "`apiVersion`, `kind` and `metadata.name` say what a spec is; they are the same in every environment."
        yield error("ES183", "This cannot be overlaid", detail, source=place)


def chosen(overlays: Iterable[Overlay], spec: Node) -> list[Overlay]:
    """Those that are merged into `spec`, by the name and the labels that its own file gives it."""
    name, labels = name_of(spec), _labels_of(spec)
    return [o for o in overlays if o.matches(name, labels)]


def overlaid(spec: Node, overlays: Sequence[Overlay]) -> Node:
    """`spec` with each overlay merged into it, the later over the earlier. Nothing that is given is changed."""
    for overlay in overlays:
        spec = merge(spec, overlay.node)
    return spec


def merge(base: Node | None, over: Node) -> Node:
    """Maps merge, lists and scalars replace, `null` removes."""
    if over.kind != "map":
        return over
    if base is None or base.kind != "map":
        base = Node("map", over.where)
    merged = replace(base, entries=dict(base.entries), keys=dict(base.keys), removed=dict(base.removed))
    for name, value in over.entries.items():
        if value.kind == "scalar" and value.value is None:
            if merged.entries.pop(name, None) is not None:
                del merged.keys[name]
            merged.removed[name] = over.keys[name]
            continue
        before = merged.entries.get(name)
        merged.entries[name] = merge(before, value)
        if before is None or before.kind != "map" or value.kind != "map":
            merged.keys[name] = over.keys[name]
        merged.removed.pop(name, None)
    return merged


def check_matches(overlays: Iterable[Overlay], used: frozenset[str], names: Sequence[str]) -> Iterator[Diagnostic]:
    """Overlays that no spec is chosen by; `used` are the selectors' texts that some spec is."""
    for overlay in overlays:
        if overlay.text in used or overlay.text == ALL:
            continue
        if overlay.selector is None:
            listed = ", ".join(sorted(names)) or "none"
            detail = f"No spec is named {overlay.text!r}; there are: {listed}.{suggest(overlay.text, names)}"
            yield error("ES181", "An overlay of no spec", detail, source=overlay.where)
        else:
            detail = f"No spec has labels that {overlay.text!r} selects; what stands here changes nothing."
            yield warning("ES182", "A selector that selects nothing", detail, source=overlay.where)


def name_of(spec: Node) -> str:
    """As it is written; empty where it is not."""
    metadata = spec.child("metadata")
    name = metadata.child("name") if metadata is not None else None
    return (name.value if name is not None else None) or ""


def _labels_of(spec: Node) -> dict[str, str]:
    metadata = spec.child("metadata")
    labels = metadata.child("labels") if metadata is not None else None
    return {k: v.value for k, v in labels.entries.items() if v.value is not None} if labels is not None else {}
