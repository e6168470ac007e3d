"""Tables looked up by token ids: floats, int8 rows with scales, 4-bit blocks."""

from __future__ import annotations

import numpy as np

from edgespec.engine.patterns.draft import Affine, Embed, Matrix
from edgespec.engine.patterns.graph import Array, Step
from edgespec.engine.patterns.layout import Slice, View
from edgespec.engine.patterns.linear import GROUPS, centred, narrowed
from edgespec.engine.patterns.recogniser import Recogniser
from edgespec.engine.patterns.values import Const, Tokens, UncoveredError


def embed(r: Recogniser, name: str, step: Step) -> View | None:
    found = _table(r, step)
    if found is None:
        return None
    table, shift = found if isinstance(found, tuple) else (found, None)
    out = r.emit(Embed, table.columns, per_text=False, table=table)
    if shift is not None:
        row = np.full(table.columns, shift, np.float32)
        out = r.emit(Affine, table.columns, per_text=False, x=Slice(out, 0, table.columns), bias=row)
    return r.whole(out, name)


def _table(r: Recogniser, step: Step) -> Matrix | tuple[Matrix, float] | None:
    """The table, and a number that is added to all of it."""
    if step.op == "Gather":
        return _plain(r, step)
    if step.op == "DequantizeLinear":
        return _dequantised(r, step)
    if step.op == "Mul":
        return _int8_rows(r, step)
    if step.op == "com.microsoft.GatherBlockQuantized":
        return _blocks(r, step)
    return None


def _lookup(r: Recogniser, name: str) -> Const | None:
    """The table of a Gather by token ids."""
    step = r.facts.maker(name)
    if step is None or step.op != "Gather" or int(step.attributes.get("axis", 0)) != 0:
        return None
    table, ids = (r.facts.values[n] for n in step.inputs)
    return table if isinstance(table, Const) and isinstance(ids, Tokens) and table.array.ndim == 2 else None


def _plain(r: Recogniser, step: Step) -> Matrix | tuple[Matrix, float] | None:
    table = _lookup(r, step.outputs[0])
    if table is None or table.array.dtype.kind != "f":
        return None
    stored = table.stored
    if stored is not None and not stored.block and (stored.axis is None or stored.axis % 2 == 0):
        exact = _int8(stored.q, stored.scale, stored.zero)
        if exact is not None:
            return exact
        if stored.scale.size == 1:
            return _shifted(stored.q, stored.scale, stored.zero)
    return Matrix(np.asarray(table.array, np.float32))


def _dequantised(r: Recogniser, step: Step) -> Matrix | tuple[Matrix, float] | None:
    """onnxruntime's quantised Gather: one scale for the whole table."""
    table, scale, zero = _lookup(r, step.inputs[0]), r.facts.const(step.inputs[1]), r.facts.const(step.input(2))
    if table is None or scale is None or scale.size != 1:
        return None
    return _int8(table.array, scale, zero) or _shifted(table.array, scale, zero)


def _int8(q: Array, scale: Array, zero: Array | None) -> Matrix | None:
    rows = centred(q, zero)
    if rows is None:
        return None
    scales = np.broadcast_to(np.asarray(scale, np.float32).reshape(-1), (rows.shape[0],))
    return Matrix(rows, 8, scales)


def _shifted(q: Array, scale: Array, zero: Array | None) -> tuple[Matrix, float]:
    """A table whose zero point is far from the middle: the engine's rows are symmetric, the rest is added to them."""
    middle = 128 if q.dtype == np.uint8 else 0
    point = 0 if zero is None else int(zero.ravel()[0])
    scales = np.full(q.shape[0], np.float32(scale.ravel()[0]))
    rows = (q.astype(np.int16) - middle).astype(np.int8)
    return Matrix(rows, 8, scales), float((middle - point) * np.float32(scale.ravel()[0]))


def _int8_rows(r: Recogniser, step: Step) -> Matrix | None:
    """Mul(Cast(Gather(int8 rows)), Gather(scales)): edgespec's own int8 tables."""
    for at in (0, 1):
        cast = r.facts.maker(step.inputs[at])
        scales = _lookup(r, step.inputs[1 - at])
        if cast is None or cast.op != "Cast" or scales is None:
            continue
        table = _lookup(r, cast.inputs[0])
        if table is not None and table.array.dtype == np.int8 and scales.array.shape == (len(table.array), 1):
            return _int8(table.array, scales.array, None)
    return None


def _blocks(r: Recogniser, step: Step) -> Matrix | None:
    table, scales = r.facts.const(step.inputs[0]), r.facts.const(step.inputs[2])
    zeros = r.facts.const(step.input(3))
    block, bits = int(step.attributes.get("block_size", 128)), int(step.attributes.get("bits", 4))
    axis, along = int(step.attributes.get("gather_axis", 0)), int(step.attributes.get("quantize_axis", 1))
    if table is None or scales is None or axis != 0 or along % table.ndim != 1 or block not in GROUPS or bits != 4:
        raise UncoveredError(step, "the engine has 4-bit tables with blocks of 32, 64 or 128 along each row")
    q, points = _four_bits(table), None if zeros is None else _four_bits(zeros)
    if q is None or (zeros is not None and points is None):
        raise UncoveredError(step, f"its table is {table.dtype}, not 4-bit integers")
    if zeros is None and table.dtype == np.uint8:
        points = None  # 8, as in the engine
    return Matrix(q, 4, narrowed(scales), points, block)


def _four_bits(packed: Array) -> Array | None:
    if packed.dtype == np.uint8:
        return np.stack([packed & 15, packed >> 4], axis=-1).reshape(packed.shape[0], -1).astype(np.uint8)
    if packed.dtype.name == "int4":
        return (packed.astype(np.int16) + 8).astype(np.uint8)
    return packed.astype(np.uint8) if packed.dtype.name == "uint4" else None
