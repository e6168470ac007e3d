"""A directed acyclic graph over hashable keys; an edge a -> b means that a needs b."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import TypeVar

from edgespec.diagnostics import Checked, Diagnostics, error

N = TypeVar("N", bound=Hashable)


def order(needs: Mapping[N, frozenset[N]]) -> Checked[tuple[N, ...]]:
    """Every node after all that it needs; the same order for the same graph, that of graphlib."""
    text = {node: str(node) for node in {*needs, *(n for needed in needs.values() for n in needed)}}
    missing: dict[N, int] = {}
    users: dict[N, list[N]] = {}
    for node in sorted(needs, key=text.__getitem__):
        missing[node] = missing.get(node, 0) + len(needs[node])
        some = needs[node]
        for needed in sorted(some, key=text.__getitem__) if len(some) > 1 else some:
            missing.setdefault(needed, 0)
            users.setdefault(needed, []).append(node)
    found = [node for node, count in missing.items() if not count]
    for node in found:  # grows as nodes become free
        for user in users.get(node, ()):
            missing[user] -= 1
            if not missing[user]:
                found.append(user)
    return Checked(tuple(found)) if len(found) == len(missing) else Checked(None, _cycle(needs))


def _cycle(needs: Mapping[N, frozenset[N]]) -> Diagnostics:
    """What a graph that has no order has instead. graphlib is slower, and can name the nodes."""
    try:
        TopologicalSorter({k: sorted(needs[k], key=str) for k in sorted(needs, key=str)}).prepare()
    except CycleError as e:
        path = " -> ".join(str(n) for n in reversed(e.args[1]))
        return Diagnostics.of(error("ES201", "Dependency cycle", f"{path}. This is a bug in edgespec."))
    raise AssertionError("a graph without an order has a cycle")


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
