"""What each value of a graph is when one text without padding runs through it.

Every value is a constant; or *positional*: known once the length of the text is (shapes, positions, masks, rotary
tables), and then computed for a few sampled texts; or *content*: it depends on what the tokens are, and only its shape
is known. One sample has padding, so that patterns can tell a padding mask from anything else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from edgespec.engine.patterns import evaluate as ev
from edgespec.engine.patterns.graph import Array, Graph, Step
from edgespec.engine.patterns.layout import Shape, Size

LONG: Final = (523, 257, 127, 61, 29, 14)
"""Lengths tried for the long sample, which shows the width of local attention: the first that the tables allow."""
PADDED: Final = 3
"""The sample with padding."""
IDS, MASK, TYPES = "input_ids", "attention_mask", "token_type_ids"


@dataclass(frozen=True, slots=True)
class Samples:
    lengths: Size
    valid: Size
    """How many of the tokens are no padding."""

    @property
    def count(self) -> int:
        return len(self.lengths)


def samples(long: int) -> Samples:
    return Samples((5, 12, long, 12), (5, 12, long, 9))


@dataclass(frozen=True, slots=True, eq=False)
class Quantised:
    """How a constant was stored: value = (q - zero) * scale, scales along `axis`, or by blocks of it."""

    q: Array
    scale: Array
    zero: Array | None
    axis: int | None
    block: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Const:
    array: Array
    stored: Quantised | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Positional:
    arrays: tuple[Array, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """The token ids themselves, in some shape."""

    shape: Shape


@dataclass(frozen=True, slots=True, eq=False)
class Content:
    shape: Shape


Value = Const | Positional | Tokens | Content


class LengthError(Exception):
    """The long sample is longer than a table of the model."""


class UncoveredError(Exception):
    """The engine has nothing for this step."""

    def __init__(self, step: Step | None, why: str) -> None:
        super().__init__(why)
        self.step, self.why = step, why


ELEMENTWISE: Final = frozenset({
    "Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Sum", "Neg", "Abs", "Sqrt", "Exp", "Log", "Tanh", "Erf",
    "Sigmoid", "Relu", "Reciprocal", "Cast", "CastLike", "Identity", "Dropout", "Clip", "Where", "IsNaN", "IsInf",
    "Not", "Softplus", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "And", "Or", "Gelu", "Swish",
    "com.microsoft.Gelu", "com.microsoft.BiasGelu", "com.microsoft.FastGelu", "Sign", "Floor", "Sin", "Cos",
})  # fmt: skip
REDUCTIONS: Final = frozenset({
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare", "ReduceL1", "ReduceProd",
})  # fmt: skip
MOVES: Final = frozenset({
    "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "SwapLast", "Expand", "Slice", "Split", "Gather",
    "Concat", "Tile", "GatherND", "GatherElements", "Trilu",
})  # fmt: skip
KEEPS_SHAPE: Final = frozenset({
    "Softmax", "LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization", "LpNormalization", "CumSum",
    "DequantizeLinear", "QuantizeLinear",
})  # fmt: skip
PROBED: Final = ELEMENTWISE | REDUCTIONS | MOVES | KEEPS_SHAPE
"""Steps that a pattern may look through by computing them."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The value of every name, and who makes it."""

    graph: Graph
    samples: Samples
    values: Mapping[str, Value]
    users: Mapping[str, Sequence[Step]] = field(default_factory=dict)

    def maker(self, name: str) -> Step | None:
        return self.graph.makers.get(name)

    def shape(self, name: str) -> Shape:
        value = self.values[name]
        if isinstance(value, Content | Tokens):
            return value.shape
        arrays = [value.array] * self.samples.count if isinstance(value, Const) else list(value.arrays)
        return tuple(zip(*(a.shape for a in arrays), strict=True)) if arrays[0].ndim else ()

    def content(self, step: Step) -> tuple[str, ...]:
        """The step's inputs that depend on the tokens, without repetition."""
        found = [n for n in step.inputs if n and isinstance(self.values.get(n), Content | Tokens)]
        return tuple(dict.fromkeys(found))

    def const(self, name: str) -> Array | None:
        value = self.values.get(name) if name else None
        return value.array if isinstance(value, Const) else None

    def at(self, name: str, sample: int) -> Array | None:
        """A constant or positional value in one sample."""
        value = self.values.get(name) if name else None
        if isinstance(value, Const):
            return value.array
        return value.arrays[sample] if isinstance(value, Positional) else None


def learn(graph: Graph, sampled: Samples) -> Facts:
    """Raises LengthError and UncoveredError."""
    if "offsets" in graph.inputs:
        raise UncoveredError(
            None,
            "its inputs are a flat list of ids with offsets (EmbeddingBag), not texts of [batch, sequence]; take the "
            "folder with model.safetensors that it was exported from, or export it anew with model2vec 0.10",
        )
    values: dict[str, Value] = {name: Const(array) for name, array in graph.constants.items()}
    values |= {name: _input(name, rank, sampled) for name, rank in graph.inputs.items()}
    facts = Facts(graph, sampled, values)
    for step in graph.steps:
        for name, value in zip(step.outputs, _learn_step(facts, step), strict=False):
            if name:
                values[name] = value
    users: dict[str, list[Step]] = {}
    for step in graph.steps:
        for name in dict.fromkeys(step.inputs):
            if isinstance(values.get(name), Content | Tokens):
                users.setdefault(name, []).append(step)
    return Facts(graph, sampled, values, users)


def _input(name: str, rank: int, sampled: Samples) -> Value:
    if rank != 2:
        raise UncoveredError(None, f"the input {name!r} is not [batch, sequence]")
    if name == IDS:
        return Tokens(((1,) * sampled.count, sampled.lengths))
    if name == MASK:
        pairs = zip(sampled.lengths, sampled.valid, strict=True)
        return Positional(tuple((np.arange(n) < v).astype(np.int64)[None] for n, v in pairs))
    if name == TYPES:
        return Positional(tuple(np.zeros((1, n), np.int64) for n in sampled.lengths))
    if name == "position_ids":
        return Positional(tuple(np.arange(n)[None] for n in sampled.lengths))
    raise UncoveredError(None, f"the input {name!r} is none of {IDS}, {MASK} and {TYPES}")


def _learn_step(facts: Facts, step: Step) -> tuple[Value, ...]:
    known = [facts.values.get(n) if n else None for n in step.inputs]
    missing = [n for n, v in zip(step.inputs, known, strict=True) if n and v is None]
    if missing:
        raise UncoveredError(step, f"its input {missing[0]!r} is made by nothing")
    if step.op == "Shape":
        shape = facts.shape(step.inputs[0])
        arrays = [ev.shape_of(step, [size[i] for size in shape]) for i in range(facts.samples.count)]
        return (_positional(arrays),)
    if step.op == "Size":
        shape = facts.shape(step.inputs[0])
        totals = [math.prod(size[i] for size in shape) for i in range(facts.samples.count)]
        return (_positional([np.asarray(n, np.int64) for n in totals]),)
    if any(isinstance(v, Tokens) for v in known):
        return _learn_tokens(facts, step, known)
    if any(isinstance(v, Content) for v in known):
        return tuple(Content(shape) for shape in content_shapes(facts, step))
    if all(v is None or isinstance(v, Const) for v in known):
        return _fold(step, [v.array if isinstance(v, Const) else None for v in known], known)
    results = [_evaluate(step, [facts.at(n, i) for n in step.inputs]) for i in range(facts.samples.count)]
    return tuple(_positional(list(arrays)) for arrays in zip(*results, strict=True))


def _positional(arrays: list[Array]) -> Value:
    """A constant when it is the same in every sample."""
    first = arrays[0]
    if first.size <= 64 and all(a.dtype == first.dtype and np.array_equal(a, first) for a in arrays[1:]):
        return Const(first)
    return Positional(tuple(arrays))


def _evaluate(step: Step, arrays: Sequence[Array | None]) -> tuple[Array, ...]:
    try:
        return ev.evaluate(step, arrays)
    except ev.UnknownOperatorError:
        raise UncoveredError(step, f"{step.op} is not an operation of the edge engine") from None
    except ev.EvaluationError as why:
        raise LengthError(str(why)) from None


def _fold(step: Step, arrays: Sequence[Array | None], known: Sequence[Value | None]) -> tuple[Value, ...]:
    if step.op == "DequantizeLinear" and arrays[0] is not None and arrays[1] is not None:
        axis = None if arrays[1].size == 1 else int(step.attributes.get("axis", 1))
        zero = arrays[2] if len(arrays) > 2 else None
        block = int(step.attributes.get("block_size", 0))
        stored = Quantised(arrays[0], arrays[1], zero, axis, block)
        return (Const(_evaluate(step, arrays)[0], stored),)
    outputs = _evaluate(step, arrays)
    first = known[0] if known else None
    stored_ = first.stored if isinstance(first, Const) else None
    if stored_ is not None and step.op in ("Identity", "Cast"):
        return (Const(outputs[0], stored_),)
    if stored_ is not None and step.op == "Transpose" and outputs[0].ndim == 2 and not stored_.block:
        axis = None if stored_.axis is None else 1 - stored_.axis % 2
        return (Const(outputs[0], Quantised(stored_.q.T, stored_.scale, stored_.zero, axis)),)
    return tuple(Const(a) for a in outputs)


def _learn_tokens(facts: Facts, step: Step, known: Sequence[Value | None]) -> tuple[Value, ...]:
    """Token ids are looked up in tables, reshaped, or compared with the padding's id; nothing else."""
    count = facts.samples.count
    if step.op in ("Equal", "Gather") and len(known) == 2:
        first, second = known
        other = first if isinstance(second, Tokens) else second
        if step.op == "Gather" and isinstance(first, Const | Quantised) and isinstance(second, Tokens):
            return (Content((*second.shape, *((n,) * count for n in first.array.shape[1:]))),)
        if step.op == "Equal" and isinstance(other, Const) and other.array.size == 1:
            shape = facts.shape(step.inputs[1 if isinstance(second, Tokens) else 0])
            return (Positional(_is_padding(shape, facts.samples)),)
    if step.op in ("Cast", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze"):
        (shape,) = content_shapes(facts, step)
        return (Tokens(shape),)
    if step.op.endswith("GatherBlockQuantized"):
        shape = facts.shape(step.inputs[1])
        table = facts.const(step.inputs[0])
        if table is not None:
            per_byte = 2 if table.dtype == np.uint8 and int(step.attributes.get("bits", 4)) == 4 else 1
            return (Content((*shape, (table.shape[1] * per_byte,) * count)),)
    raise UncoveredError(step, f"{step.op} computes with the token ids; the edge engine only looks them up in tables")


def _is_padding(shape: Shape, sampled: Samples) -> tuple[Array, ...]:
    result = []
    for i in range(sampled.count):
        sizes = [size[i] for size in shape]
        flags = np.arange(sampled.lengths[i]) >= sampled.valid[i]
        result.append(flags.reshape(sizes))
    return tuple(result)


def content_shapes(facts: Facts, step: Step) -> tuple[Shape, ...]:
    """Shapes of the step's outputs, when some input is content. Raises UncoveredError and LengthError."""
    per_sample = [_shapes_in(facts, step, i) for i in range(facts.samples.count)]
    return tuple(tuple(zip(*shapes, strict=True)) if shapes[0] else () for shapes in zip(*per_sample, strict=True))


def _shapes_in(facts: Facts, step: Step, sample: int) -> list[tuple[int, ...]]:
    def shape(at: int) -> tuple[int, ...]:
        return tuple(size[sample] for size in facts.shape(step.inputs[at]))

    try:
        if step.op in ELEMENTWISE:
            return [np.broadcast_shapes(*(shape(i) for i, n in enumerate(step.inputs) if n))]
        if step.op in KEEPS_SHAPE:
            return [shape(0)]
        if step.op in ("MatMul", "MatMulInteger"):
            return [_matmul_shape(shape(0), shape(1))]
        if step.op == "Gemm":
            return [_gemm_shape(step, shape(0), shape(1))]
        if step.op == "DynamicQuantizeLinear":
            return [shape(0), (), ()]
        if step.op == "com.microsoft.MatMulNBits":
            return [(*shape(0)[:-1], int(step.attributes["N"]))]
        if step.op == "com.microsoft.DynamicQuantizeMatMul":
            return [_matmul_shape(shape(0), shape(1))]
        if step.op == "com.microsoft.SkipLayerNormalization":
            return [shape(0)] * len(step.outputs)
        if step.op in MOVES or step.op in REDUCTIONS:
            arrays = [_stand_in(facts, n, sample) if n else None for n in step.inputs]
            return [a.shape for a in _evaluate(step, arrays)]
    except ValueError as why:
        raise LengthError(f"{step!r}: {why}") from None
    raise UncoveredError(step, f"{step.op} is not an operation of the edge engine")


def _stand_in(facts: Facts, name: str, sample: int) -> Array | None:
    known = facts.at(name, sample)
    if known is not None:
        return known
    return np.broadcast_to(np.int8(0), tuple(size[sample] for size in facts.shape(name)))


def _matmul_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
        raise ValueError(f"a product of {a} and {b}")
    return (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1])


def _gemm_shape(step: Step, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    a = a[::-1] if step.attributes.get("transA", 0) else a
    b = b[::-1] if step.attributes.get("transB", 0) else b
    return _matmul_shape(a, b)
