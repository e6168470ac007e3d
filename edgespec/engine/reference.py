"""What the kernels compute, in numpy: integer arithmetic exactly, float arithmetic in float64, rounded per operation.

LINEAR with I8 weights, by kind (`Kind`), per token, with f32 meaning one rounding to float32:
    A7, A8   low = min(0, row), high = max(0, row); scale = f32(f32(high - low) / top), top = 127 or 255;
             inverse = f32(1 / scale); zero = round(f32(-low * inverse));
             q = clamp(round(f32(x * inverse)) + zero, 0, top)
    A12      scale = f32(max |x| / 2047); zero = 0; q = round(f32(x * inverse)), between -2047 and 2047
    y = act((sum q w - zero * sum w) * f32(scale * w_scale) + bias) (+ residual)
LINEAR with I4 weights, the same for every kind: q as in A8 but shifted to -128 .. 127 (zero - 128 is its zero point);
    y = act((sum over groups of (sum q (w - w_zero)) * w_scale - zero * correction) * scale + bias) (+ residual)
ATTENTION with `integers`, kinds A8 and A12, texts of at most 8192 tokens; per text and head, with tops (query and key,
share, value) = (127, 255, 127) for A8 and (2047, 1023, 255) for A12, every operation rounded to float32:
    q, k     by token: x_scale = max |x| / top, rounded x * (1 / x_scale);   v the same, by column over the whole text
    score    sum q k * ((q_scale * (scale * log2 e)) * k_scale), and x = max(score - the row's largest, -126)
    share    round(((f * c2 + c1) * f + top) * 2^n), n = round(x), f = x - n, c1 = top * .6931472, c2 = top * .2402265
    out      sum share v * ((1 / sum share) * v_scale)
Sums of integers are exact. Kind A7 computes such an ATTENTION like any other, in floats.
A scale below 1e-20 becomes 1e-20. Rounding is to nearest, ties to even.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from edgespec.engine import pack
from edgespec.engine.format import (
    Act,
    Activate,
    Add,
    Attention,
    Concat,
    DType,
    Embed,
    Glu,
    L2Norm,
    LayerNorm,
    Linear,
    Mul,
    Op,
    Pool,
    PoolTokens,
    Program,
    RmsNorm,
    Rope,
    Scale,
    Tensor,
    decode,
)

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]
F32 = np.float32
SMALLEST_SCALE = F32(1e-20)


class Kind(IntEnum):
    """How wide the activations are that int8 weights meet. A kernel's `kind()` says which it uses."""

    A7 = 0
    A8 = 1
    A8_SIGNED = 2
    """The same numbers as A8, computed from signed bytes (ARM)."""
    A12 = 3


def run(program: bytes | Program, batches: Sequence[Sequence[int]], kind: Kind | int = Kind.A8) -> Floats:
    """The output register's rows for these texts (lists of token ids), packed one after the other."""
    parsed = decode(program) if isinstance(program, bytes) else program
    return trace(parsed, batches, kind)[parsed.output]


def trace(program: Program, batches: Sequence[Sequence[int]], kind: Kind | int = Kind.A8) -> dict[int, Floats]:
    """Every register as the last operation that wrote it left it."""
    machine = _Machine(program, batches, Kind(kind))
    for op in program.ops:
        machine.step(op)
    return machine.registers


class _Machine:
    """The registers of one run, and the places of its tokens."""

    def __init__(self, program: Program, batches: Sequence[Sequence[int]], kind: Kind) -> None:
        if not batches or not all(batches):
            raise ValueError("every text needs at least one token")
        self.program = program
        self.kind = kind
        self.ids = np.concatenate([np.asarray(ids, np.int64) for ids in batches])
        lengths = [len(ids) for ids in batches]
        if program.max_position and max(lengths) > program.max_position:
            raise ValueError(f"a text has more than {program.max_position} tokens")
        self.starts = np.concatenate([[0], np.cumsum(lengths)])
        self.places = np.concatenate([np.arange(n) for n in lengths])
        self.registers: dict[int, Floats] = {}

    def step(self, op: Op) -> None:
        run_op = cast("Callable[[_Machine, Any], tuple[int, NDArray[Any]]]", _STEPS[type(op)])
        out, values = run_op(self, op)
        self.registers[out] = values.astype(np.float32)

    def tensor(self, index: int) -> Tensor:
        return self.program.tensors[index]

    def row(self, index: int | None, default: float) -> Doubles:
        """A vector, or the number that leaves a value as it is."""
        if index is None:
            return np.array([default])
        row: Doubles = pack.rows_of(self.tensor(index))[0].astype(np.float64)
        return row

    def part(self, register: int, offset: int, width: int) -> Doubles:
        values: Doubles = self.registers[register][:, offset : offset + width].astype(np.float64)
        return values

    def value(self, register: int) -> Doubles:
        values: Doubles = self.registers[register].astype(np.float64)
        return values

    def texts(self) -> list[slice]:
        return [slice(int(a), int(b)) for a, b in zip(self.starts[:-1], self.starts[1:], strict=True)]


_erf = np.vectorize(math.erf, otypes=[np.float64])


def activate(values: Doubles, act: Act) -> Doubles:
    """One of the activations, in float64."""
    match act:
        case Act.NONE:
            return values
        case Act.GELU_ERF:
            return values * 0.5 * (1 + cast("Doubles", _erf(values / math.sqrt(2))))
        case Act.GELU_TANH:
            return cast(
                "Doubles", values * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (values + 0.044715 * values**3)))
            )
        case Act.SILU:
            return cast("Doubles", values / (1 + np.exp(-np.clip(values, -700, 700))))
        case Act.RELU:
            return cast("Doubles", np.maximum(values, 0))
        case Act.TANH:
            return np.tanh(values)


def quantize(rows: Floats, kind: Kind) -> tuple[Integers, Floats, Integers]:
    """(q [T, K], scale [T], zero [T]) of float32 rows, as the kernels make them for I8 weights."""
    if kind == Kind.A12:
        scales = np.maximum(np.abs(rows).max(1, initial=0) / F32(2047), SMALLEST_SCALE)
        inverse = F32(1) / scales
        return np.rint(rows * inverse[:, None]).astype(np.int64), scales, np.zeros(len(rows), np.int64)
    top = 127 if kind == Kind.A7 else 255
    low, high = rows.min(1, initial=0), rows.max(1, initial=0)
    scales = np.maximum((high - low) / F32(top), SMALLEST_SCALE)
    inverse = F32(1) / scales
    zero = np.rint(-low * inverse).astype(np.int64)
    q = np.clip(np.rint(rows * inverse[:, None]).astype(np.int64) + zero[:, None], 0, top)
    return q, scales, zero


def linear_i8(rows: Floats, weight: Tensor, kind: Kind) -> Doubles:
    """rows @ W^T without bias."""
    q, scales, zero = quantize(rows, kind)
    w, w_scales = pack.linear_bytes(weight)
    wide = w.astype(np.float64)  # integers below 2^53 are exact, and their products have a fast routine
    sums = q.astype(np.float64) @ wide.T - zero[:, None] * wide.sum(1)
    scale = scales[:, None] * w_scales
    return cast("Doubles", sums * scale)


def linear_i4(rows: Floats, weight: Tensor) -> Doubles:
    """rows @ W^T without bias."""
    q, scales, zero = quantize(rows, Kind.A8)
    q, zero = q - 128, zero - 128
    w, w_scales, zeros = pack.linear_nibbles(weight)
    group, columns = weight.group, weight.columns
    total = np.zeros((len(rows), weight.rows))
    for g, start in enumerate(range(0, columns, group)):
        block = w[:, start : start + group].astype(np.float64) - (8 if zeros is None else zeros[:, g, None])
        total += (q[:, start : start + group].astype(np.float64) @ block.T) * w_scales[:, g].astype(np.float64)
    corrected = total - zero[:, None] * pack.correction_of(weight).astype(np.float64)
    return corrected * scales[:, None]


def _embed(machine: _Machine, op: Embed) -> tuple[int, Doubles]:
    values = pack.rows_of(machine.tensor(op.table))[machine.ids].astype(np.float64) * op.scale
    if op.positions is not None:
        values = values + pack.rows_of(machine.tensor(op.positions))[machine.places + op.position_offset]
    if op.types is not None:
        values = values + pack.rows_of(machine.tensor(op.types))[0]
    return op.out, values


def _linear(machine: _Machine, op: Linear) -> tuple[int, Doubles]:
    weight = machine.tensor(op.weight)
    rows = machine.registers[op.source][:, op.offset : op.offset + weight.columns]
    if weight.dtype == DType.I8:
        sums = linear_i8(rows, weight, machine.kind)
    elif weight.dtype == DType.I4:
        sums = linear_i4(rows, weight)
    else:
        sums = rows.astype(np.float64) @ pack.linear_floats(weight).astype(np.float64).T
    values = activate(sums + machine.row(op.bias, 0), op.act)
    return op.out, values if op.residual is None else values + machine.value(op.residual)


def _layer_norm(machine: _Machine, op: LayerNorm) -> tuple[int, Doubles]:
    values = machine.value(op.source)
    if op.residual is not None:
        values = values + machine.value(op.residual)
    centred = values - values.mean(1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(1, keepdims=True) + op.epsilon)
    return op.out, scaled * machine.row(op.gamma, 1) + machine.row(op.beta, 0)


def _rms_norm(machine: _Machine, op: RmsNorm) -> tuple[int, Doubles]:
    values = machine.value(op.source)
    if op.residual is not None:
        values = values + machine.value(op.residual)
    width = op.width or values.shape[1]
    heads = values[:, op.offset : op.offset + width].reshape(len(values), -1, op.head or width)
    scaled = heads / np.sqrt((heads**2).mean(2, keepdims=True) + op.epsilon) * machine.row(op.gamma, 1)
    values[:, op.offset : op.offset + width] = scaled.reshape(len(values), width)
    return op.out, values


def _rope(machine: _Machine, op: Rope) -> tuple[int, Doubles]:
    values = machine.value(op.target)
    frequencies = pack.rows_of(machine.tensor(op.frequencies))[0]
    angles = (machine.places.astype(np.float32)[:, None] * frequencies).astype(np.float64)
    cos, sin = np.cos(angles)[:, None] * op.scale, np.sin(angles)[:, None] * op.scale
    heads = values[:, op.offset : op.offset + op.heads * op.head].reshape(len(values), op.heads, op.head).copy()
    half = op.rotary // 2
    first, second = heads[:, :, :half].copy(), heads[:, :, half : op.rotary].copy()
    heads[:, :, :half] = first * cos - second * sin
    heads[:, :, half : op.rotary] = second * cos + first * sin
    values[:, op.offset : op.offset + op.heads * op.head] = heads.reshape(len(values), -1)
    return op.target, values


INTEGER_TOKENS = 8192
"""A longer text's ATTENTION is computed in floats, since its sums of integers would not fit 32 bits."""


def _attention(machine: _Machine, op: Attention) -> tuple[int, Doubles]:
    def heads(register: int, offset: int, count: int) -> Doubles:
        part = machine.part(register, offset, count * op.head)
        return part.reshape(len(part), count, op.head).transpose(1, 0, 2)

    query = heads(op.query, op.query_offset, op.heads)
    repeat = op.heads // op.kv_heads
    key = np.repeat(heads(op.key, op.key_offset, op.kv_heads), repeat, axis=0)
    value = np.repeat(heads(op.value, op.value_offset, op.kv_heads), repeat, axis=0)
    out = np.zeros((query.shape[1], op.heads * op.head))
    for text in machine.texts():
        parts = query[:, text], key[:, text], value[:, text]
        count = parts[0].shape[1]
        if op.integers and machine.kind != Kind.A7 and count <= INTEGER_TOKENS:
            found: NDArray[Any] = _attend_integers(*parts, op, machine.kind)
        else:
            found = _attend(*parts, op)
        out[text] = found.transpose(1, 0, 2).reshape(count, -1)
    return op.out, out


def _attend(query: Doubles, key: Doubles, value: Doubles, op: Attention) -> Doubles:
    """One text, all [heads, tokens, head]."""
    scores = query @ key.transpose(0, 2, 1) * op.scale
    scores = np.where(_visible(scores.shape[1], op), scores, -np.inf)
    weights = np.exp(scores - scores.max(2, keepdims=True))
    return cast("Doubles", weights / weights.sum(2, keepdims=True) @ value)


def _attend_integers(query: Doubles, key: Doubles, value: Doubles, op: Attention, kind: Kind) -> Floats:
    """The same in integers."""
    top, top_share, top_value = (2047, 1023, 255) if kind == Kind.A12 else (127, 255, 127)
    q, q_scale = _symmetric(query, top, 2)
    k, k_scale = _symmetric(key, top, 2)
    v, v_scale = _symmetric(value, top_value, 1)
    factor = (q_scale * (F32(op.scale) * F32(1.44269504))) * k_scale.transpose(0, 2, 1)
    scores = (q @ k.transpose(0, 2, 1)).astype(F32) * factor
    scores = np.where(_visible(scores.shape[1], op), scores, F32(-1e30))
    x = np.maximum(scores - scores.max(2, keepdims=True), F32(-126))
    n = np.rint(x)
    f, c1, c2 = x - n, F32(top_share) * F32(0.6931472), F32(top_share) * F32(0.2402265)
    shares = np.rint(np.ldexp((f * c2 + c1) * f + F32(top_share), n.astype(np.int32))).astype(np.float64)
    by = (F32(1) / shares.sum(2, keepdims=True).astype(F32)) * v_scale
    return cast("Floats", (shares @ v).astype(F32) * by)


def _symmetric(values: Doubles, top: int, axis: int) -> tuple[Doubles, Floats]:
    """(whole numbers, scale) along an axis. Products and sums of such numbers are exact in float64."""
    floats = values.astype(F32)
    scale = np.maximum(np.abs(floats).max(axis, keepdims=True) / F32(top), SMALLEST_SCALE)
    return np.rint(floats * (F32(1) / scale)).astype(np.float64), scale


def _visible(count: int, op: Attention) -> NDArray[np.bool_]:
    i, j = np.arange(count)[:, None], np.arange(count)
    visible = np.ones((count, count), bool)
    if op.causal:
        visible &= j <= i
    if op.window:
        visible &= np.abs(i - j) <= op.window // 2
    return visible


def _glu(machine: _Machine, op: Glu) -> tuple[int, Doubles]:
    width = machine.program.registers[op.out].width
    gate = activate(machine.part(op.a, op.a_offset, width), op.act)
    return op.out, gate * machine.part(op.b, op.b_offset, width)


def _scale(machine: _Machine, op: Scale) -> tuple[int, Doubles]:
    values = machine.value(op.source) * op.factor
    return op.out, values * machine.row(op.weight, 1) + machine.row(op.bias, 0)


def _pool(machine: _Machine, op: PoolTokens) -> tuple[int, Doubles]:
    values = machine.value(op.source)
    weights = machine.row(op.weights, 1)
    rows = []
    for text in machine.texts():
        part = values[text]
        match op.mode:
            case Pool.MEAN:
                rows.append(part.mean(0))
            case Pool.CLS:
                rows.append(part[0])
            case Pool.LAST:
                rows.append(part[-1])
            case Pool.WEIGHTED_BY_SUM | Pool.WEIGHTED_BY_COUNT:
                weight = weights[machine.ids[text]][:, None]
                total = weight.sum() if op.mode == Pool.WEIGHTED_BY_SUM else len(part)
                rows.append((part * weight).sum(0) / total)
    return op.out, np.stack(rows)


def _l2_norm(machine: _Machine, op: L2Norm) -> tuple[int, Doubles]:
    values = machine.value(op.source)
    return op.out, values / np.maximum(np.sqrt((values**2).sum(1, keepdims=True)), op.epsilon)


def _concat(machine: _Machine, op: Concat) -> tuple[int, Doubles]:
    parts = [machine.part(op.a, op.a_offset, op.a_width)]
    if op.b is not None:
        parts.append(machine.part(op.b, op.b_offset, op.b_width))
    return op.out, np.concatenate(parts, axis=1)


_STEPS: dict[type[Op], Callable[..., tuple[int, NDArray[Any]]]] = {
    Embed: _embed,
    Linear: _linear,
    LayerNorm: _layer_norm,
    RmsNorm: _rms_norm,
    Rope: _rope,
    Attention: _attention,
    Glu: _glu,
    Add: lambda machine, op: (op.out, machine.value(op.a) + machine.value(op.b)),
    Mul: lambda machine, op: (op.out, machine.value(op.a) * machine.value(op.b)),
    Scale: _scale,
    Activate: lambda machine, op: (op.out, activate(machine.value(op.source), op.act)),
    PoolTokens: _pool,
    L2Norm: _l2_norm,
    Concat: _concat,
}
