"""A fused draft as a program: weights quantised and packed, registers numbered, slices made where none can be read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from edgespec.engine import format as fmt
from edgespec.engine import pack
from edgespec.engine.patterns import draft as d
from edgespec.engine.patterns.graph import Array
from edgespec.engine.patterns.layout import Slice
from edgespec.engine.patterns.rounding import to_four_bits

Quantization = Literal["none", "fp16", "int8", "int4"]
TABLE_MIN = 16 * 1024
"""Elements: smaller tables of positions stay as they are."""


INTEGER_HEAD = 512
"""Columns: sums over wider heads would not fit 32 bits."""


@dataclass(frozen=True, slots=True)
class Precision:
    quantization: Quantization
    group: int


@dataclass(slots=True)
class Lowering:
    draft: d.Draft
    precision: Precision
    tensors: list[fmt.Tensor] = field(default_factory=list)
    registers: list[fmt.Register] = field(default_factory=list)
    ops: list[fmt.Op] = field(default_factory=list)
    places: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Where a register of the draft is: register and first column."""
    known: dict[str, int] = field(default_factory=dict)
    """Tensors by what they hold: layers that share weights share a tensor."""

    def program(self) -> fmt.Program:
        for op in self.draft.ops:
            self._lower(op)
        output = self.whole(Slice(self.draft.output, 0, self.draft.widths[self.draft.output]))
        return fmt.Program(tuple(self.tensors), tuple(self.registers), tuple(self.ops), output, self.draft.max_position)

    # Operands

    def register(self, width: int, *, per_text: bool) -> int:
        kind = fmt.RegisterKind.TEXTS if per_text else fmt.RegisterKind.TOKENS
        self.registers.append(fmt.Register(kind, width))
        return len(self.registers) - 1

    def out(self, op: d.Op) -> int:
        new = self.register(self.draft.widths[op.out], per_text=self.draft.per_text[op.out])
        self.places[op.out] = (new, 0)
        return new

    def at(self, x: Slice) -> tuple[int, int]:
        register, start = self.places[x.register]
        return register, start + x.offset

    def whole(self, x: Slice) -> int:
        """A register that holds those columns and no others."""
        register, offset = self.at(x)
        if offset == 0 and self.registers[register].width == x.width:
            return register
        out = self.register(x.width, per_text=self.registers[register].kind == fmt.RegisterKind.TEXTS)
        self.ops.append(fmt.Concat(out=out, a=register, a_offset=offset, a_width=x.width))
        return out

    def in_place(self, op: d.Norm | d.Rope) -> tuple[int, int]:
        """Columns that the operation may overwrite: the operand's own when nobody reads them later, else a copy."""
        register, offset = self.at(op.x)
        later = self.draft.ops[self.draft.ops.index(op) + 1 :]
        others = (x for one in later for _, x in d.reads(one))
        shared = any(
            x.register in self.places
            and self.places[x.register][0] == register
            and self.at(x)[1] < offset + op.x.width
            and offset < self.at(x)[1] + x.width
            for x in others
        )
        if shared or self.draft.output == op.x.register:
            copy = self.register(op.x.width, per_text=self.registers[register].kind == fmt.RegisterKind.TEXTS)
            self.ops.append(fmt.Concat(out=copy, a=register, a_offset=offset, a_width=op.x.width))
            register, offset = copy, 0
        self.places[op.out] = (register, offset)
        return register, offset

    # Weights

    def tensor(self, tensor: fmt.Tensor) -> int:
        digest = hashlib.sha256(
            repr((tensor.dtype, tensor.layout, tensor.rows, tensor.columns, tensor.group, tensor.detail)).encode()
        )
        digest.update(tensor.data)
        digest.update(tensor.aux)
        key = digest.hexdigest()
        if key not in self.known:
            self.known[key] = len(self.tensors)
            self.tensors.append(tensor)
        return self.known[key]

    def vector(self, values: Array | None) -> int | None:
        return None if values is None else self.tensor(pack.vector(values))

    def table(self, table: d.Matrix, *, small: bool = False) -> int:
        if table.bits == 8:
            return self.tensor(pack.table_i8(table.values, _given(table.scales)))
        if table.bits == 4:
            return self.tensor(pack.table_i4(table.values, _given(table.scales), table.zeros, group=table.group))
        if self.precision.quantization == "none" or (small and table.values.size < TABLE_MIN):
            return self.tensor(pack.table_f32(table.values))
        if self.precision.quantization == "fp16":
            return self.tensor(pack.table_f16(table.values))
        return self.tensor(pack.table_i8(*pack.quantize_rows(table.values)))

    def matrix(self, weight: d.Matrix, *, head: bool) -> int:
        if weight.bits == 8:
            return self.tensor(pack.linear_i8(weight.values, _given(weight.scales)))
        if weight.bits == 4:
            return self.tensor(pack.linear_i4(weight.values, _given(weight.scales), weight.zeros, group=weight.group))
        mode = "none" if head else self.precision.quantization
        if mode == "none":
            return self.tensor(pack.linear_f32(weight.values))
        if mode == "fp16":
            return self.tensor(pack.linear_f16(weight.values))
        if mode == "int8":
            return self.tensor(pack.linear_i8(*pack.quantize_i8(weight.values)))
        q, scales = to_four_bits(weight.values, self.precision.group)
        return self.tensor(pack.linear_i4(q, scales, group=self.precision.group))

    # Operations

    def _lower(self, op: d.Op) -> None:
        match op:
            case d.Embed():
                self._embed(op)
            case d.Linear():
                self._linear(op)
            case d.Norm():
                self._norm(op)
            case d.Rope():
                frequencies = self.tensor(pack.vector(op.frequencies))
                target, offset = self.in_place(op)
                self.ops.append(
                    fmt.Rope(target=target, offset=offset, heads=op.x.width // op.head, head=op.head, rotary=op.rotary,
                             frequencies=frequencies, scale=op.scale)
                )  # fmt: skip
            case d.Attention():
                self._attention(op)
            case d.Glu():
                (a, a_offset), (b, b_offset) = self.at(op.a), self.at(op.b)
                out = self.out(op)
                self.ops.append(fmt.Glu(out=out, a=a, a_offset=a_offset, b=b, b_offset=b_offset, act=op.act))
            case d.Add():
                x, y = self.whole(op.a), self.whole(op.b)
                self.ops.append(fmt.Add(out=self.out(op), a=x, b=y))
            case d.Mul():
                x, y = self.whole(op.a), self.whole(op.b)
                self.ops.append(fmt.Mul(out=self.out(op), a=x, b=y))
            case _:
                self._lower_rest(op)

    def _lower_rest(self, op: d.Op) -> None:
        match op:
            case d.Affine():
                source = self.whole(op.x)
                weight, bias = self.vector(op.weight), self.vector(op.bias)
                self.ops.append(fmt.Scale(out=self.out(op), source=source, factor=op.factor, weight=weight, bias=bias))
            case d.Activate():
                source = self.whole(op.x)
                self.ops.append(fmt.Activate(out=self.out(op), source=source, act=op.act))
            case d.PoolTokens():
                source = self.whole(op.x)
                weights = self.vector(op.weights)
                self.ops.append(fmt.PoolTokens(out=self.out(op), source=source, mode=op.mode, weights=weights))
            case d.L2Norm():
                source = self.whole(op.x)
                self.ops.append(fmt.L2Norm(out=self.out(op), source=source, epsilon=op.epsilon))
            case d.Concat():
                (a, a_offset), (b, b_offset) = self.at(op.a), self.at(op.b)
                self.ops.append(
                    fmt.Concat(out=self.out(op), a=a, a_offset=a_offset, a_width=op.a.width, b=b, b_offset=b_offset,
                               b_width=op.b.width)
                )  # fmt: skip
            case _:
                raise TypeError(f"{type(op).__name__} has no form in a program")

    def _embed(self, op: d.Embed) -> None:
        table = self.table(op.table)
        positions = None if op.positions is None else self.table(op.positions, small=True)
        types = self.vector(op.types)
        self.ops.append(
            fmt.Embed(out=self.out(op), table=table, positions=positions, position_offset=op.position_offset,
                      types=types, scale=op.scale)
        )  # fmt: skip

    def _linear(self, op: d.Linear) -> None:
        parts = _one_scale_a_row(op.weight)
        if len(parts) > 1:
            self._linear_in_parts(op, parts)
            return
        op = replace(op, weight=parts[0])
        source, offset = self.at(op.x)
        residual = None if op.residual is None else self.whole(op.residual)
        weight, bias = self.matrix(op.weight, head=op.head), self.vector(op.bias)
        self.ops.append(
            fmt.Linear(out=self.out(op), source=source, offset=offset, weight=weight, bias=bias, act=op.act,
                       residual=residual)
        )  # fmt: skip

    def _linear_in_parts(self, op: d.Linear, parts: list[d.Matrix]) -> None:
        """The sum of products of slices: int8 by group, of which the engine's int8 has one scale a row."""
        bias, kept = self.vector(op.bias), None if op.residual is None else self.whole(op.residual)
        total = kept if op.act == fmt.Act.NONE else None
        source, offset = self.at(op.x)
        width, per_text = self.draft.widths[op.out], self.draft.per_text[op.out]
        for part in parts:
            out = self.register(width, per_text=per_text)
            weight = self.matrix(part, head=op.head)
            self.ops.append(fmt.Linear(out=out, source=source, offset=offset, weight=weight, bias=bias, residual=total))
            offset, bias, total = offset + part.columns, None, out
        if op.act != fmt.Act.NONE and total is not None:
            out = self.register(width, per_text=per_text)
            self.ops.append(fmt.Activate(out=out, source=total, act=op.act))
            total = out
            if kept is not None:
                out = self.register(width, per_text=per_text)
                self.ops.append(fmt.Add(out=out, a=total, b=kept))
                total = out
        if total is not None:
            self.places[op.out] = (total, 0)

    def _norm(self, op: d.Norm) -> None:
        gamma, beta = self.vector(op.gamma), self.vector(op.beta)
        if op.centred:
            source = self.whole(op.x)
            self.ops.append(fmt.LayerNorm(out=self.out(op), source=source, gamma=gamma, beta=beta, epsilon=op.epsilon))
            return
        if op.head == op.x.width and self.at(op.x)[1] == 0 and self.registers[self.at(op.x)[0]].width == op.head:
            source = self.whole(op.x)
            self.ops.append(fmt.RmsNorm(out=self.out(op), source=source, gamma=gamma, epsilon=op.epsilon))
            return
        target, offset = self.in_place(op)
        head = 0 if op.head == op.x.width else op.head
        self.ops.append(
            fmt.RmsNorm(out=target, source=target, gamma=gamma, epsilon=op.epsilon, offset=offset, width=op.x.width,
                        head=head)
        )  # fmt: skip

    def _attention(self, op: d.Attention) -> None:
        (query, query_offset), (key, key_offset), (value, value_offset) = map(self.at, (op.query, op.key, op.value))
        self.ops.append(
            fmt.Attention(
                out=self.out(op), query=query, query_offset=query_offset, key=key, key_offset=key_offset, value=value,
                value_offset=value_offset, heads=op.query.width // op.head, kv_heads=op.key.width // op.head,
                head=op.head, scale=op.scale, window=op.window, causal=op.causal, integers=self._in_integers(op),
            )
        )  # fmt: skip

    def _in_integers(self, op: d.Attention) -> bool:
        """Where weights are rounded too, but not in decoders: their keys have outliers that one scale would have to
        cover (docs/adr/0010)."""
        return self.precision.quantization in ("int8", "int4") and not op.causal and op.head <= INTEGER_HEAD


def _one_scale_a_row(weight: d.Matrix) -> list[d.Matrix]:
    """int8 by group as matrices side by side, each of columns that share a scale in every row; else the matrix."""
    if weight.bits != 8 or not weight.group:
        return [weight]
    scales = _given(weight.scales)
    changes = np.flatnonzero((scales[:, 1:] != scales[:, :-1]).any(0)) + 1
    first, last = [0, *changes], [*changes, scales.shape[1]]
    slices = [slice(a * weight.group, b * weight.group) for a, b in zip(first, last, strict=True)]
    return [d.Matrix(weight.values[:, s], 8, scales[:, a]) for s, a in zip(slices, first, strict=True)]


def _given(scales: Array | None) -> Array:
    if scales is None:
        raise ValueError("integers without scales")
    return np.asarray(scales)
