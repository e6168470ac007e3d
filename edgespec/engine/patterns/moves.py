"""Reshapes, transposes, slices, splits: no operation at all, only another view of the same register."""

from __future__ import annotations

from edgespec.engine.patterns import evaluate as ev
from edgespec.engine.patterns import layout
from edgespec.engine.patterns.draft import Concat
from edgespec.engine.patterns.graph import Step
from edgespec.engine.patterns.layout import View
from edgespec.engine.patterns.recogniser import Recogniser

_RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
_SAME = ("Identity", "Cast", "CastLike", "Dropout")


def move(r: Recogniser, name: str, step: Step) -> View | None:
    facts = r.facts
    if step.op in _SAME:
        return r.view(step.inputs[0])
    if step.op in _RESHAPES:
        return layout.reshape(r.view(step.inputs[0]), facts.shape(name))
    if step.op == "Transpose":
        rank = len(facts.shape(name))
        return layout.transpose(r.view(step.inputs[0]), step.attributes.get("perm") or range(rank)[::-1])
    if step.op == "SwapLast":
        rank = len(facts.shape(name))
        return layout.transpose(r.view(step.inputs[0]), [*range(rank - 2), rank - 1, rank - 2])
    if step.op == "Expand":
        return layout.expand(r.view(step.inputs[0]), facts.shape(name))
    if step.op == "Split":
        return _split(r, name, step)
    if step.op == "Slice":
        return _slice(r, step)
    if step.op == "Gather":
        return _pick(r, name, step)
    return None


def _split(r: Recogniser, name: str, step: Step) -> View | None:
    shape = r.facts.shape(step.inputs[0])
    axis = int(step.attributes.get("axis", 0)) % len(shape)
    sizes = ev.split_sizes(step, [None, r.facts.const(step.input(1))], layout.constant(shape[axis]))
    at = step.outputs.index(name)
    return layout.narrow(r.view(step.inputs[0]), axis, sum(sizes[:at]), sizes[at])


def _slice(r: Recogniser, step: Step) -> View | None:
    """Only slices of columns; one that takes every token changes nothing."""
    shape = r.facts.shape(step.inputs[0])
    taken: list[tuple[int, int, int]] = []
    for sample in range(r.facts.samples.count):
        bounds = [None, *(r.facts.at(step.input(i), sample) for i in range(1, 5))]
        parts = ev.slices(step, bounds, len(shape))
        spans = [p.indices(size[sample]) for p, size in zip(parts, shape, strict=True)]
        changed = [(i, s) for i, s in enumerate(spans) if s != (0, shape[i][sample], 1)]
        if any(s[2] != 1 for _, s in changed) or len(changed) > 1:
            return None
        taken += [(i, s[0], s[1] - s[0]) for i, s in changed] or [(0, 0, -1)]
    if len(set(taken)) != 1:
        return None
    axis, start, count = taken[0]
    view = r.view(step.inputs[0])
    return view if count < 0 else layout.narrow(view, axis, start, count)


def _pick(r: Recogniser, name: str, step: Step) -> View | None:
    """Gather of one index along an axis of columns."""
    index = r.facts.const(step.inputs[1])
    shape = r.facts.shape(step.inputs[0])
    axis = int(step.attributes.get("axis", 0)) % len(shape)
    if index is None or index.size != 1 or shape[axis] == r.facts.samples.lengths:
        return None
    at = int(index.ravel()[0]) % layout.constant(shape[axis])
    return layout.reshape(layout.narrow(r.view(step.inputs[0]), axis, at, 1), r.facts.shape(name))


def concat(r: Recogniser, name: str, step: Step) -> View | None:
    """Two values side by side."""
    if step.op != "Concat" or len(step.inputs) != 2:
        return None
    if int(step.attributes["axis"]) % len(r.facts.shape(name)) != len(r.facts.shape(name)) - 1:
        return None
    first, second = r.view(step.inputs[0]), r.view(step.inputs[1])
    a, b = layout.rows(first), layout.rows(second)
    if r.is_per_text(first) != r.is_per_text(second):
        return None
    width = a.width + b.width
    out = r.emit(Concat, width, per_text=r.is_per_text(first), a=a, b=b)
    return r.whole(out, name)
