"""The program before it is packed: operations in single assignment, weights still as matrices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np

from edgespec.engine.format import Act, Pool
from edgespec.engine.patterns.graph import Array, Step
from edgespec.engine.patterns.layout import Slice


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """[rows, columns] weights, either floats still to be quantised or integers taken from the graph as they are.

    bits 0: `values` float32. bits 8: `values` int8, `scales` [rows], or with a group [rows, groups]. bits 4: `values`
    uint8 0 .. 15, `scales` (and `zeros`, absent = 8) [rows, groups].
    """

    values: Array
    bits: int = 0
    scales: Array | None = None
    zeros: Array | None = None
    group: int = 0

    @property
    def rows(self) -> int:
        return int(self.values.shape[0])

    @property
    def columns(self) -> int:
        return int(self.values.shape[1])

    @property
    def kind(self) -> tuple[int, int, bool, str]:
        """Matrices of one kind may be stacked."""
        return self.bits, self.group, self.zeros is not None, "" if self.scales is None else self.scales.dtype.str


def stack(parts: list[Matrix]) -> Matrix:
    """Matrices of one kind and width, one below the other."""

    def join(arrays: list[Array | None]) -> Array | None:
        present = [a for a in arrays if a is not None]
        return np.concatenate(present) if present else None

    values = np.concatenate([m.values for m in parts])
    scales, zeros = join([m.scales for m in parts]), join([m.zeros for m in parts])
    return Matrix(values, parts[0].bits, scales, zeros, parts[0].group)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Embed:
    out: int
    table: Matrix
    positions: Matrix | None = None
    position_offset: int = 0
    types: Array | None = None
    scale: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AddPositions:
    """out[t] = x[t] + table[place in the text + offset]: has to melt into an Embed."""

    out: int
    x: Slice
    table: Matrix
    offset: int
    step: Step


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Linear:
    out: int
    x: Slice
    weight: Matrix
    bias: Array | None = None
    act: Act = Act.NONE
    residual: Slice | None = None
    head: bool = False
    """A part of the classifier: never quantised."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Norm:
    """`centred`: layer norm, else RMS norm. `head`: columns normalised together."""

    out: int
    x: Slice
    centred: bool
    head: int
    gamma: Array | None
    beta: Array | None
    epsilon: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rope:
    out: int
    x: Slice
    head: int
    rotary: int
    frequencies: Array
    scale: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Attention:
    out: int
    query: Slice
    key: Slice
    value: Slice
    head: int
    scale: float
    causal: bool
    window: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Glu:
    out: int
    a: Slice
    b: Slice
    act: Act


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Add:
    out: int
    a: Slice
    b: Slice


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mul:
    out: int
    a: Slice
    b: Slice


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Affine:
    """out = x * factor (* weight) (+ bias)."""

    out: int
    x: Slice
    factor: float = 1.0
    weight: Array | None = None
    bias: Array | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Activate:
    out: int
    x: Slice
    act: Act


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolTokens:
    out: int
    x: Slice
    mode: Pool
    weights: Array | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class L2Norm:
    out: int
    x: Slice
    epsilon: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Concat:
    out: int
    a: Slice
    b: Slice


Op = (
    Embed | AddPositions | Linear | Norm | Rope | Attention | Glu | Add | Mul | Affine | Activate | PoolTokens | L2Norm
    | Concat
)  # fmt: skip
AnyOp = TypeVar("AnyOp", bound=Any)


def reads(op: Op) -> Iterator[tuple[str, Slice]]:
    """The operation's operands: field name and slice."""
    for one in fields(op):
        value = getattr(op, one.name)
        if isinstance(value, Slice):
            yield one.name, value


def with_operands(op: AnyOp, operands: dict[str, Slice]) -> AnyOp:
    return replace(op, **operands) if operands else op


@dataclass(slots=True)
class Draft:
    """Operations in an order in which they can run; each writes a register that nothing else writes."""

    ops: list[Op] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    per_text: list[bool] = field(default_factory=list)
    output: int = -1
    max_position: int = 0

    def register(self, width: int, *, per_text: bool) -> int:
        self.widths.append(width)
        self.per_text.append(per_text)
        return len(self.widths) - 1

    def limit(self, positions: int) -> None:
        """No text may be longer than that."""
        self.max_position = min(self.max_position or positions, positions)
