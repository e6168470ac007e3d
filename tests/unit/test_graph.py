"""The order of a graph is graphlib's, which every plan's steps have had so far."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

from hypothesis import given
from hypothesis import strategies as st

from edgespec import graph

NODES = st.integers(0, 12)


@given(st.dictionaries(NODES, st.frozensets(NODES, max_size=4), max_size=12))
def test_any_graph(needs: dict[int, frozenset[int]]) -> None:
    sorter = TopologicalSorter({k: sorted(needs[k], key=str) for k in sorted(needs, key=str)})
    try:
        expected = tuple(sorter.static_order())
    except CycleError as e:
        found = graph.order(needs)
        assert found.value is None
        (d,) = found.diagnostics
        assert d.code == "ES201" and " -> ".join(str(n) for n in reversed(e.args[1])) in d.detail
    else:
        assert graph.order(needs).value == expected


def test_one_that_needs_itself_has_no_order() -> None:
    assert graph.order({"a": frozenset("a")}).value is None
