"""Products with constant matrices: MatMul, Gemm, and the quantised forms of onnxruntime, whose integers are kept."""

from __future__ import annotations

import numpy as np

from edgespec.engine.patterns import layout
from edgespec.engine.patterns.draft import Linear, Matrix
from edgespec.engine.patterns.graph import Array, Step
from edgespec.engine.patterns.layout import View
from edgespec.engine.patterns.recogniser import Recogniser
from edgespec.engine.patterns.values import Const, Content, Quantised, UncoveredError

GROUPS = (32, 64, 128)


def linear(r: Recogniser, name: str, step: Step) -> View | None:
    if step.op == "MatMul":
        weight = r.facts.values[step.inputs[1]]
        if not isinstance(weight, Const):
            return None
        if weight.array.ndim != 2:
            raise UncoveredError(step, "its constant operand is not a matrix")
        return _emit(r, name, step.inputs[0], matrix(r, weight, transposed=False), None)
    if step.op == "Gemm":
        return _gemm(r, name, step)
    if step.op == "com.microsoft.MatMulNBits":
        bias = r.facts.const(step.input(5))
        return _emit(r, name, step.inputs[0], _matmul_nbits(r, step), bias)
    if step.op == "Mul":
        return _matmul_integer(r, name, step)
    return None


def _emit(r: Recogniser, name: str, source: str, weight: Matrix, bias: Array | None) -> View:
    view = r.view(source)
    x = layout.rows(view)
    flat = None if bias is None else np.broadcast_to(np.asarray(bias, np.float32).reshape(-1), (weight.rows,))
    per_text = r.is_per_text(view)
    head = per_text or name == r.facts.graph.output
    out = r.emit(Linear, weight.rows, per_text=per_text, x=x, weight=weight, bias=flat, head=head)
    return r.whole(out, name)


def _gemm(r: Recogniser, name: str, step: Step) -> View | None:
    weight = r.facts.values[step.inputs[1]]
    bias = r.facts.const(step.input(2))
    plain = step.attributes.get("alpha", 1.0) == 1.0 and not step.attributes.get("transA", 0)
    if not isinstance(weight, Const) or not isinstance(r.facts.values[step.inputs[0]], Content):
        return None
    columns = weight.array.shape[0 if step.attributes.get("transB", 0) else 1]
    if not plain or step.attributes.get("beta", 1.0) != 1.0 or (step.input(2) and bias is None):
        raise UncoveredError(step, "a Gemm with alpha, beta, transA or a bias that is no constant is not covered")
    if bias is not None and bias.size not in (1, columns):
        raise UncoveredError(step, "its bias is not one row")
    return _emit(r, name, step.inputs[0], matrix(r, weight, transposed=bool(step.attributes.get("transB", 0))), bias)


def matrix(r: Recogniser, weight: Const, *, transposed: bool) -> Matrix:
    """[out, in] from a constant [in, out], or [out, in] when `transposed`; stored integers are kept where they fit."""
    if weight.stored is not None:
        exact = _stored(weight.stored, transposed=transposed)
        if exact is not None:
            return exact
        r.note("some weights are stored in a way that the engine has no integers for: they are kept as floats")
    values = weight.array if transposed else weight.array.T
    return Matrix(np.asarray(values, np.float32))


def _stored(stored: Quantised, *, transposed: bool) -> Matrix | None:
    along = 0 if transposed else 1
    if stored.block or (stored.axis is not None and stored.axis % 2 != along):
        return None
    q = centred(stored.q if transposed else stored.q.T, stored.zero)
    if q is None:
        return None
    scales = np.broadcast_to(np.asarray(stored.scale, np.float32).reshape(-1), (q.shape[0],))
    return Matrix(q, 8, scales)


def centred(q: Array, zero: Array | None) -> Array | None:
    """int8 rows without their zero points; None when they do not fit."""
    wide = q.astype(np.int32)
    if zero is not None:
        flat = zero.astype(np.int32).reshape(-1)
        wide = wide - (flat[0] if flat.size == 1 else flat[:, None])
    if wide.size and (wide.min() < -128 or wide.max() > 127):
        return None
    return wide.astype(np.int8)


def _matmul_integer(r: Recogniser, name: str, step: Step) -> View | None:
    """Mul(Cast(MatMulInteger(quantised x, W)), Mul(x's scale, W's scales)), as quantize_dynamic writes it."""
    facts = r.facts
    for at in (0, 1):
        cast = facts.maker(step.inputs[at])
        scale = facts.maker(step.inputs[1 - at])
        if cast is None or scale is None or cast.op != "Cast" or scale.op != "Mul":
            continue
        product = facts.maker(cast.inputs[0])
        if product is None or product.op != "MatMulInteger":
            continue
        quantised = facts.maker(product.inputs[0])
        if quantised is None or quantised.op != "DynamicQuantizeLinear":
            raise UncoveredError(product, "its first operand does not come from DynamicQuantizeLinear")
        weight_scale = next((c for n in scale.inputs if (c := facts.const(n)) is not None), None)
        q = facts.const(product.inputs[1])
        zero = facts.const(product.input(3))
        if quantised.outputs[1] not in scale.inputs or q is None or weight_scale is None or q.ndim != 2:
            raise UncoveredError(product, "its scales or weights are not constants in the usual places")
        return _emit(r, name, quantised.inputs[0], _integers(r, q, weight_scale, zero), None)
    return None


def _integers(r: Recogniser, q: Array, scale: Array, zero: Array | None) -> Matrix:
    scales = np.broadcast_to(np.asarray(scale, np.float32).reshape(-1), (q.shape[1],))
    exact = centred(q.T, zero)
    if exact is not None:
        return Matrix(exact, 8, scales)
    r.note("8-bit weights with a zero point far from the middle do not fit the engine's symmetric int8: kept as floats")
    points = np.zeros(1) if zero is None else zero.astype(np.float64).reshape(-1)
    return Matrix(((q.T - points[:, None]) * scales[:, None]).astype(np.float32))


def _matmul_nbits(r: Recogniser, step: Step) -> Matrix:
    facts = r.facts
    rows, columns, block = (int(step.attributes[k]) for k in ("N", "K", "block_size"))
    bits = int(step.attributes.get("bits", 4))
    q, scales, zeros, order = (facts.const(step.input(i)) for i in range(1, 5))
    if bits not in (4, 8) or block not in GROUPS:
        raise UncoveredError(
            step, f"{bits} bits in blocks of {block}: the engine has 4 and 8 bits in blocks of 32, 64 or 128"
        )
    if q is None or scales is None or (step.input(3) and zeros is None):
        raise UncoveredError(step, "its weights are not constants")
    if step.input(4) and (order is None or not np.array_equal(order, np.arange(columns) // block)):
        raise UncoveredError(step, "its groups are in the order of activation (g_idx)")
    if zeros is not None and zeros.dtype != np.uint8:
        raise UncoveredError(step, f"its zero points are not {bits}-bit integers")
    groups = -(-columns // block)
    unpack = _nibbles if bits == 4 else _as_bytes
    values = unpack(q.reshape(rows, -1))[:, :columns]
    points = None if zeros is None else unpack(zeros.reshape(rows, -1))[:, :groups]
    if bits == 8:
        return _grouped_bytes(step, values, scales.reshape(rows, groups), points, block)
    points = None if points is None or (points == 8).all() else points
    return Matrix(values, 4, narrowed(scales.reshape(rows, groups)), points, block)


def _as_bytes(packed: Array) -> Array:
    return packed


def _grouped_bytes(step: Step, values: Array, scales: Array, points: Array | None, block: int) -> Matrix:
    wide = np.full(values.shape, 128) if points is None else np.repeat(points, block, axis=1)[:, : values.shape[1]]
    q = values.astype(np.int16) - wide.astype(np.int16)
    if q.size and (q.min() < -128 or q.max() > 127):
        raise UncoveredError(
            step, "its 8-bit zero points are not in the middle: less them, the weights do not fit the engine's int8"
        )
    return Matrix(q.astype(np.int8), 8, np.asarray(scales, np.float32), None, block)


def narrowed(scales: Array) -> Array:
    """float16 where that loses nothing, as with scales that were float16 in the graph."""
    with np.errstate(over="ignore"):
        half = scales.astype(np.float16)
    return half if np.array_equal(half.astype(np.float32), scales) else np.asarray(scales, np.float32)


def _nibbles(packed: Array) -> Array:
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(packed.shape[0], -1).astype(np.uint8)
