"""From the output backwards: each value is asked of the patterns, until everything is an operation of the engine.

A pattern is a function of a recogniser, a value's name and the step that makes it. It answers with the view of a
register that holds the value, or None when the value is nothing it knows. It asks for the values it reads by
`Recogniser.view`, and writes operations by `Recogniser.emit`.

Most patterns do not compare nodes: they take a *region* of the graph between one earlier value and this one, compute it
on random numbers, and compare with what the operation would give. How an exporter spells GELU does not matter then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgespec.engine.patterns import evaluate as ev
from edgespec.engine.patterns import layout
from edgespec.engine.patterns.draft import Draft, Op
from edgespec.engine.patterns.graph import Array, Step
from edgespec.engine.patterns.layout import LayoutError, Shape, View
from edgespec.engine.patterns.values import PROBED, Content, Facts, Positional, Tokens, UncoveredError

REGION_LIMIT = 80
"""Steps between a value and the farthest earlier value it is compared with."""


@dataclass(frozen=True, slots=True)
class Region:
    """Everything between `base` and `root`: root depends on the tokens through base alone."""

    base: str
    root: str
    steps: tuple[Step, ...]
    facts: Facts

    def ops(self) -> set[str]:
        return {step.op for step in self.steps}

    def shape(self, sample: int, of: str | None = None) -> tuple[int, ...]:
        return tuple(size[sample] for size in self.facts.shape(of or self.base))

    @property
    def same_shape(self) -> bool:
        return self.facts.shape(self.base) == self.facts.shape(self.root)

    def compute(self, base: Array, sample: int) -> Array | None:
        """The root's value for that value of the base; None when it cannot be computed."""
        found: dict[str, Array] = {self.base: base}
        for step in self.steps:
            inputs = [found[n] if n in found else self.facts.at(n, sample) for n in step.inputs]
            try:
                outputs = ev.evaluate(step, inputs)
            except (ev.EvaluationError, ev.UnknownOperatorError):
                return None
            found.update(zip(step.outputs, outputs, strict=False))
        return found[self.root]

    def leaves(self) -> Iterator[str]:
        """Constants and positional values that the region reads."""
        for step in self.steps:
            for name in step.inputs:
                if name and not isinstance(self.facts.values[name], Content | Tokens):
                    yield name

    @property
    def is_positional(self) -> bool:
        """Whether some number in it depends on the length of the text."""
        return any(isinstance(self.facts.values[n], Positional) for n in self.leaves())

    def scalars(self) -> list[float]:
        """Constant numbers in it, and epsilons."""
        consts = (self.facts.const(n) for n in self.leaves())
        found = {float(c.ravel()[0]) for c in consts if c is not None and c.size == 1 and c.dtype.kind == "f"}
        found |= {float(s.attributes["epsilon"]) for s in self.steps if "epsilon" in s.attributes}
        return sorted(found)


LENGTH_MAX = 2**15
"""Integers above are no lengths of texts."""
Pattern = Callable[["Recogniser", str, Step], View | None]


def probed(facts: Facts, step: Step) -> bool:
    if step.op == "MatMul":
        return not isinstance(facts.values[step.inputs[0]], Content) and step.inputs[1] != ""
    return step.op in PROBED


def find_regions(facts: Facts, name: str, *, through_tables: bool = False) -> list[Region]:
    """Regions that end in `name`, the nearest base first."""
    found: list[Region] = []
    frontier, steps = {name}, list[Step]()
    graph = facts.graph
    while len(steps) < REGION_LIMIT:
        top = max(frontier, key=lambda n: graph.makers[n].index if n in graph.makers else -1)
        step = graph.makers.get(top)
        if step is None or not probed(facts, step):
            break
        if not through_tables and any(isinstance(facts.values.get(n), Tokens) for n in step.inputs if n):
            break
        frontier.difference_update(step.outputs)
        frontier.update(facts.content(step))
        steps.append(step)
        if len(frontier) == 1:
            (base,) = frontier
            found.append(Region(base, name, tuple(reversed(steps)), facts))
        if not frontier:
            break
    return found


def noise(shape: Sequence[int], seed: int = 1) -> Array:
    """Random numbers to probe with; the same for the same shape and seed."""
    return np.random.default_rng(seed).normal(0.2, 1.3, size=tuple(shape))


def close(a: Array | None, b: Array, tolerance: float = 2e-6) -> bool:
    if a is None or a.shape != b.shape:
        return False
    return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=False))


@dataclass(slots=True)
class Recogniser:
    facts: Facts
    patterns: Sequence[Pattern]
    draft: Draft = field(default_factory=Draft)
    views: dict[str, View] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    regions_of: dict[str, list[Region]] = field(default_factory=dict)

    def view(self, name: str) -> View:
        """Where that value is. Raises UncoveredError when no pattern knows it."""
        if name in self.views:
            return self.views[name]
        step = self.facts.maker(name)
        if step is None or not isinstance(self.facts.values[name], Content):
            raise UncoveredError(step, f"the value {name!r} does not depend on the text")
        for pattern in self.patterns:
            try:
                found = pattern(self, name, step)
            except LayoutError:
                continue
            if found is not None:
                self.views[name] = found
                return found
        raise UncoveredError(step, f"{step.op} is not used here in a way that the edge engine knows")

    def regions(self, name: str) -> list[Region]:
        if name not in self.regions_of:
            self.regions_of[name] = find_regions(self.facts, name)
        return self.regions_of[name]

    def emit(self, op: Callable[..., Op], width: int, *, per_text: bool, **operands: Any) -> int:
        """A new register that the operation writes."""
        register = self.draft.register(width, per_text=per_text)
        self.draft.ops.append(op(out=register, **operands))
        return register

    def whole(self, register: int, name: str) -> View:
        """The register as the value of that name: its columns in order."""
        shape: Shape = self.facts.shape(name)
        return layout.whole(register, self.draft.widths[register], shape, self.facts.samples.lengths)

    def is_per_text(self, view: View) -> bool:
        return self.draft.per_text[view.register]

    def padded_rows(self, name: str, array: Array) -> Array:
        """The value in the padded sample without its padded tokens."""
        lengths = self.facts.samples.lengths
        for axis, size in enumerate(self.facts.shape(name)):
            if size == lengths:
                return np.take(array, range(self.facts.samples.valid[-1]), axis=axis)
        return array

    def limit_by(self, region: Region) -> None:
        """Lengths beyond every sample at which the graph may start to do something else: its own integers say so.

        A window of 4,096 tokens looks like none in the samples; then texts may have no more than 4,096 tokens.
        """
        longest = max(self.facts.samples.lengths)
        found: set[int] = set()
        seen: set[str] = set()
        pending = list(region.leaves())
        while pending:
            name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            const, maker = self.facts.const(name), self.facts.maker(name)
            if const is not None and const.size == 1 and const.dtype.kind in "iuf":
                number = abs(float(const.ravel()[0]))
                found |= {int(number)} if longest <= number <= LENGTH_MAX and number == int(number) else set()
            if maker is not None and maker.op != "Shape":
                pending += [n for n in maker.inputs if n]
        if found:
            self.draft.limit(min(found))
            self.note(f"texts of more than {min(found)} tokens are refused: the graph may treat them differently")

    def note(self, text: str) -> None:
        self.notes[text] = None
