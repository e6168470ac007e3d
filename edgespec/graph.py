"""A directed acyclic graph over hashable keys; an edge a -> b means that a needs b."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import TypeVar

from edgespec.diagnostics import Checked, Diagnostics, error

N = TypeVar("N", bound=Hashable)


def order(needs: Mapping[N, frozenset[N]]) -> Checked[tuple[N, ...]]:
    """Every node after all that it needs; the same order for the same graph."""
    try:
        sorter = TopologicalSorter({k: sorted(v, key=str) for k, v in sorted(needs.items(), key=lambda i: str(i[0]))})
        return Checked(tuple(sorter.static_order()))
    except CycleError as e:
        path = " -> ".join(str(n) for n in reversed(e.args[1]))
        return Checked(None, Diagnostics.of(error("ES201", "Dependency cycle", f"{path}. This is a bug in edgespec.")))


def closure(start: Iterable[N], edges: Mapping[N, Iterable[N]]) -> frozenset[N]:
    """`start` and all that can be reached from it."""
    found = set(start)
    pending = list(found)
    while pending:
        for node in edges.get(pending.pop(), ()):
            if node not in found:
                found.add(node)
                pending.append(node)
    return frozenset(found)
