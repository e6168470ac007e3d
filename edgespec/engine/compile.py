"""From an ONNX graph to a program of the edge engine, or to the list of what the engine has nothing for.

    compiled = compile_graph(model, quantization="int8")
    compiled.program.encode()   # the bytes of model.edge
    compiled.uncovered          # why there is no program: node, operator, reason

The graph is read for what the engine does with it: one text a row, without padding, its attention mask all ones. See
docs/compiler.md for how the patterns work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from edgespec.engine import pack
from edgespec.engine.format import Program
from edgespec.engine.patterns import PATTERNS
from edgespec.engine.patterns.evaluate import RULES
from edgespec.engine.patterns.fuse import fuse
from edgespec.engine.patterns.graph import BrokenModelError, Graph, Step, load
from edgespec.engine.patterns.layout import LayoutError, View, rows
from edgespec.engine.patterns.lower import Lowering, Precision, Quantization
from edgespec.engine.patterns.recogniser import Recogniser
from edgespec.engine.patterns.static_export import lookups
from edgespec.engine.patterns.unfuse import unfuse
from edgespec.engine.patterns.values import (
    LONG,
    Content,
    Facts,
    LengthError,
    Tokens,
    UncoveredError,
    learn,
    samples,
)

if TYPE_CHECKING:
    from onnx import ModelProto

_ONLY_RECOGNISED: Final = frozenset({
    "Gemm", "MatMulInteger", "DynamicQuantizeLinear", "com.microsoft.MatMulNBits", "com.microsoft.GatherBlockQuantized",
})  # fmt: skip
KNOWN: Final = frozenset(RULES) | _ONLY_RECOGNISED
"""Operators that some pattern may take; any other is reported at once."""
ANCHORS: Final = frozenset({"MatMul", "Gemm", "com.microsoft.MatMulNBits"})


@dataclass(frozen=True, slots=True)
class Uncovered:
    """A node that the engine has nothing for. `str` of it is a sentence for the plan."""

    node: str
    op: str
    why: str

    def __str__(self) -> str:
        return f"{self.op} {self.node!r}: {self.why}" if self.op else self.why


@dataclass(frozen=True, slots=True)
class Compiled:
    """Either a program, or at least one reason why there is none. `notes` say what a reader should know either way."""

    program: Program | None
    uncovered: tuple[Uncovered, ...] = ()
    notes: tuple[str, ...] = ()


def compile_graph(
    model: ModelProto | bytes, *, quantization: Quantization, group: int = 32, output: str | None = None
) -> Compiled:
    """The program for the graph's first output, or the one named.

    `quantization` is for float weights; weights that are integers in the graph are taken as they are. `group` is the
    group of int4: 32, 64 or 128. Equal graphs give equal bytes. Raises BrokenModelError when `model` is no ONNX model,
    and ValueError for another group.
    """
    if group not in pack.GROUPS:
        raise ValueError(f"groups of {group}: the engine has groups of {', '.join(map(str, pack.GROUPS))}")
    graph = lookups(unfuse(load(model, output)))
    unknown = [s for s in graph.steps if s.op not in KNOWN]
    if unknown:
        found = [Uncovered(s.name, s.op, f"{s.op} is not an operation of the edge engine") for s in unknown]
        return Compiled(None, tuple(found))
    problems: list[UncoveredError] = []
    try:
        with np.errstate(all="ignore"):  # probes put numbers where the model never does
            recogniser = _recognise(graph, problems)
        if not problems:
            fuse(recogniser.draft)
    except UncoveredError as why:
        problems.append(why)
    if problems:
        return Compiled(None, tuple(dict.fromkeys(map(_uncovered, problems))))
    try:
        with np.errstate(over="ignore"):
            program = Lowering(recogniser.draft, Precision(quantization, group)).program()
    except ValueError as why:  # numbers that are not finite, or too large for float16
        return Compiled(None, (Uncovered("", "", f"the weights cannot be packed as {quantization}: {why}"),))
    return Compiled(program, (), tuple(recogniser.notes) + _padding_notes(recogniser.facts))


def _recognise(graph: Graph, problems: list[UncoveredError]) -> Recogniser:
    """Every product in the order of the graph, so that no value is asked for from far behind; then the output."""
    facts = _facts(graph)
    recogniser = Recogniser(facts, PATTERNS)
    for step in graph.steps:
        anchored = step.op in ANCHORS and (step.op != "MatMul" or facts.const(step.inputs[1]) is not None)
        if anchored and isinstance(facts.values[step.outputs[0]], Content):
            _anchor(recogniser, step.outputs[0], problems)
    if not isinstance(facts.values.get(graph.output), Content):
        raise UncoveredError(facts.maker(graph.output), "the output does not depend on the text")
    view = recogniser.view(graph.output)
    recogniser.draft.output = _finish(recogniser, view)
    return recogniser


def _anchor(recogniser: Recogniser, name: str, problems: list[UncoveredError]) -> None:
    """A product that cannot be reached is reported, then taken for granted, so that later problems come to light."""
    try:
        recogniser.view(name)
    except UncoveredError as why:
        shape = recogniser.facts.shape(name)
        per_text = recogniser.facts.samples.lengths not in shape
        stand_in = recogniser.draft.register(shape[-1][0], per_text=per_text)
        try:
            recogniser.views[name] = recogniser.whole(stand_in, name)
        except LayoutError:
            raise why from None
        problems.append(why)


def _finish(recogniser: Recogniser, view: View) -> int:
    """A register that is the output and nothing else."""
    graph = recogniser.facts.graph
    if recogniser.facts.shape(graph.output)[:1] != ((1,) * recogniser.facts.samples.count,):
        raise UncoveredError(graph.makers.get(graph.output), "the first axis of the output is not the batch")
    try:
        x = rows(view)
    except LayoutError as why:
        raise UncoveredError(graph.makers.get(graph.output), f"the output is not plain rows: {why}") from None
    if x.offset == 0 and x.width == recogniser.draft.widths[x.register]:
        return x.register
    raise UncoveredError(graph.makers.get(graph.output), "the output is a slice of a wider value")


def _padding_notes(facts: Facts) -> tuple[str, ...]:
    found: dict[int, None] = {}
    for step in facts.graph.steps:
        if step.op == "Equal" and any(isinstance(facts.values.get(n), Tokens) for n in step.inputs):
            found |= {int(c.ravel()[0]): None for n in step.inputs if (c := facts.const(n)) is not None}
    return tuple(f"token {token} is padding in this graph: the engine takes it for any other token" for token in found)


def _facts(graph: Graph) -> Facts:
    """Everything known about the graph's values, from the longest sample that its tables allow."""
    problem = LengthError("")
    for long in LONG:
        try:
            return learn(graph, samples(long))
        except LengthError as why:
            problem = why
    raise UncoveredError(None, f"the graph cannot be followed for texts of any length: {problem}")


def _uncovered(why: UncoveredError) -> Uncovered:
    step: Step | None = why.step
    return Uncovered(step.name, step.op, why.why) if step else Uncovered("", "", why.why)


__all__ = ["BrokenModelError", "Compiled", "Uncovered", "compile_graph"]
