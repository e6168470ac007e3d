"""model2vec's own export, written as lookups: what torch makes of `mask[ids == unknown] = 0` and of `table[ids]`.

Only the look of the graph changes: for every text and every mask it computes what it did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from edgespec.engine.patterns.graph import Array, Graph, Step
from edgespec.engine.patterns.unfuse import Writer, renumbered, rewritten

IDS: Final = "input_ids"
MASK: Final = "attention_mask"
_MOVES: Final = ("Cast", "Identity", "Unsqueeze")


def lookups(graph: Graph) -> Graph:
    """The graph without ScatterND and GatherND where a table can be looked up instead."""
    if all(step.op not in ("ScatterND", "GatherND") for step in graph.steps):
        return graph
    written = rewritten(graph, _Rewriter(graph).rewrite)
    return renumbered(written, _needed(written.steps, graph.output), written.constants)


class _Rewriter:
    def __init__(self, graph: Graph) -> None:
        self._makers: Mapping[str, Step] = graph.makers
        self._constants = graph.constants
        tables = [s.inputs[0] for s in graph.steps if s.op == "Gather" and s.inputs[1] == IDS]
        tables += [s.inputs[0] for s in graph.steps if s.op == "GatherND" and self._is_ids_column(s.inputs[1])]
        self._vocabulary = min((len(self._constants[t]) for t in tables if t in self._constants), default=0)

    def rewrite(self, w: Writer, step: Step) -> bool:
        if step.op == "GatherND":
            return self._table(w, step)
        return step.op == "ScatterND" and self._left_out(w, step)

    def _table(self, w: Writer, step: Step) -> bool:
        table, at = step.inputs
        if table not in self._constants or not self._is_ids_column(at) or step.attributes.get("batch_dims", 0):
            return False
        w.op("Gather", table, IDS, out=step.outputs[0], axis=0)
        return True

    def _left_out(self, w: Writer, step: Step) -> bool:
        """`mask[ids == token] = 0` for a mask of [batch, sequence] or [batch, sequence, 1]."""
        mask, at, updates = step.inputs
        token, last = self._places(at)
        if token is None or step.attributes.get("reduction", b"none") not in (b"none", "none"):
            return False
        if not 0 <= token < self._vocabulary or self._scalar(updates) != 0 or not self._is_mask(mask, last):
            return False
        counts = np.ones(self._vocabulary, np.float32)
        counts[token] = 0
        found = w.op("Gather", w.const(counts), IDS, axis=0)
        found = w.op("Unsqueeze", found, w.const([2], np.int64)) if last else found
        w.op("Mul", mask, found, out=step.outputs[0])
        return True

    def _places(self, name: str) -> tuple[int | None, bool]:
        """The token of Transpose(NonZero(ids == token)), and whether an axis of one place comes last."""
        transpose, nonzero = self._maker(name, "Transpose"), None
        if transpose is not None and list(transpose.attributes.get("perm", ())) == [1, 0]:
            nonzero = self._maker(transpose.inputs[0], "NonZero")
        if nonzero is None:
            return None, False
        flags = nonzero.inputs[0]
        wide = self._maker(flags, "Unsqueeze")
        if wide is not None:
            if self._axis(wide) not in (-1, 2):
                return None, False
            flags = wide.inputs[0]
        equal = self._maker(flags, "Equal")
        if equal is None or IDS not in equal.inputs:
            return None, False
        token = self._constants.get(equal.inputs[1 - equal.inputs.index(IDS)])
        return (int(token.ravel()[0]) if token is not None and token.size == 1 else None), wide is not None

    def _is_mask(self, name: str, last: bool) -> bool:
        """Whether it is the attention mask, with that last axis of one place or without."""
        axes: list[int | None] = []
        while (step := self._makers.get(name)) is not None and step.op in _MOVES:
            axes += [self._axis(step)] if step.op == "Unsqueeze" else []
            name = step.inputs[0]
        return name == MASK and (axes in ([-1], [2]) if last else not axes)

    def _scalar(self, name: str) -> float | None:
        """The one number that it is filled with."""
        while (step := self._makers.get(name)) is not None and step.op in ("Expand", "Reshape", "Cast", "Identity"):
            name = step.inputs[0]
        value = self._constants.get(name)
        return float(value.ravel()[0]) if value is not None and value.size == 1 else None

    def _is_ids_column(self, name: str) -> bool:
        step = self._maker(name, "Unsqueeze")
        return step is not None and step.inputs[0] == IDS and self._axis(step) in (-1, 2)

    def _axis(self, step: Step) -> int | None:
        axes: Array | None = self._constants.get(step.input(1))
        return int(axes.ravel()[0]) if axes is not None and axes.size == 1 else None

    def _maker(self, name: str, op: str) -> Step | None:
        step = self._makers.get(name)
        return step if step is not None and step.op == op else None


def _needed(steps: Sequence[Step], output: str) -> list[Step]:
    wanted, kept = {output}, []
    for step in reversed(steps):
        if not wanted.isdisjoint(step.outputs):
            kept.append(step)
            wanted.update(step.inputs)
    return kept[::-1]
