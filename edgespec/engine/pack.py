"""Weights as the kernels read them, and back: what each `Tensor.data` and `Tensor.aux` holds.

ROWS: a row is its columns rounded up to 8 elements, the rest zero.
    F32, F16, I32  the elements; no aux
    I8             int8; aux: float32 scale per row; value = q * scale
    I4             two to a byte, the even column in the low nibble; aux: scales [rows, groups] then, with
                   Detail.ZEROS, uint8 zero points [rows, groups], each part starting at a multiple of 64 bytes;
                   value = (q - zero) * scale, zero is 8 without zero points
PANELS, of 8 rows (output channels) each; missing rows are zero:
    F32, F16       [panel, column, 8]
    I8             [panel, column / 4, 8, 4] int8, columns rounded up to 8;
                   aux: float32 scale [rows], int32 sum of the row's q [rows], both with rows rounded up to 8
    I4             [panel, column / 4, 16] bytes, columns rounded up to the group: byte 4 r + c holds row r's column c
                   in the low nibble and row (r + 4)'s in the high one, columns beyond the last being 0;
                   aux parts, each at a multiple of 64 bytes: scales [panel, group, 8] (float32, or float16 with
                   Detail.SCALES_F16), float32 correction [rows] = sum over groups of scale * sum(q - zero), with rows
                   rounded up to 8, then with Detail.ZEROS uint8 zero points [panel, group, 8]

An I8 tensor's `detail` is its depth: how many steps of 4 columns the kernel without exact dot products may add up in 16
bits when activations are 7 bits wide. `depth_of` proves it from the weights; it changes speed, never results.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgespec.engine.format import ALIGNMENT, Detail, DType, Layout, Tensor, padded

Floats = NDArray[np.float32]
Bytes = NDArray[np.int8]
Nibbles = NDArray[np.uint8]
Array = NDArray[Any]

PANEL = 8
LANE_LIMIT = 32767 // 127
"""What a 16-bit lane may hold, in units of the largest 7-bit activation."""
GROUPS = (32, 64, 128)


def _contiguous(values: Array, dtype: str) -> bytes:
    return np.ascontiguousarray(values).astype(dtype).tobytes()


def _parts(*parts: bytes) -> bytes:
    return b"".join(part + bytes(-len(part) % ALIGNMENT) for part in parts)


def _pad(values: Array, rows: int, columns: int) -> Array:
    return np.pad(values, ((0, rows - values.shape[0]), (0, columns - values.shape[1])))


def _finite(values: Array, what: str) -> Array:
    if not np.isfinite(values).all():
        raise ValueError(f"{what} has values that are not finite numbers")
    return values


# Vectors and tables


def vector(values: Array) -> Tensor:
    """A bias, a norm's gamma, frequencies, pooling weights: F32 [1, n]."""
    return table_f32(np.asarray(values, np.float32).reshape(1, -1))


def table_f32(values: Array) -> Tensor:
    rows, columns = values.shape
    data = _contiguous(_pad(_finite(values, "a table"), rows, padded(columns, 8)), "<f4")
    return Tensor(DType.F32, Layout.ROWS, rows, columns, data)


def table_f16(values: Array) -> Tensor:
    rows, columns = values.shape
    halves = _finite(np.asarray(values, np.float32).astype(np.float16), "a table as float16")
    return Tensor(DType.F16, Layout.ROWS, rows, columns, _contiguous(_pad(halves, rows, padded(columns, 8)), "<f2"))


def table_i8(quantized: Bytes, scales: Floats) -> Tensor:
    """int8 [rows, columns] and one scale per row, as `quantize_rows` makes them."""
    rows, columns = quantized.shape
    data = _contiguous(_pad(quantized, rows, padded(columns, 8)), "i1")
    return Tensor(DType.I8, Layout.ROWS, rows, columns, data, _contiguous(_finite(scales, "scales"), "<f4"))


def table_i4(quantized: Nibbles, scales: Array, zeros: Nibbles | None = None, *, group: int) -> Tensor:
    """0..15 [rows, columns], scales and zero points [rows, groups]; float16 scales stay float16."""
    rows, columns = quantized.shape
    wide = _pad(quantized, rows, padded(columns, 8))
    data = (wide[:, 0::2] | wide[:, 1::2] << 4).astype(np.uint8).tobytes()
    aux, detail = _group_aux(scales, zeros, None)
    return Tensor(DType.I4, Layout.ROWS, rows, columns, data, aux, _group(group), detail)


def _group(group: int) -> int:
    if group not in GROUPS:
        raise ValueError(f"groups of {group} are not supported: take one of {GROUPS}")
    return group


def _group_aux(scales: Array, zeros: Array | None, correction: Array | None) -> tuple[bytes, int]:
    half = scales.dtype == np.float16
    parts = [_contiguous(_finite(scales, "scales"), "<f2" if half else "<f4")]
    if correction is not None:
        parts.append(_contiguous(correction, "<f4"))
    if zeros is not None:
        parts.append(_contiguous(zeros, "u1"))
    return _parts(*parts), (Detail.SCALES_F16 if half else 0) | (Detail.ZEROS if zeros is not None else 0)


# Weights of LINEAR, [N, K]


def linear_f32(weight: Array) -> Tensor:
    return _linear_float(np.asarray(weight, np.float32), DType.F32, "<f4")


def linear_f16(weight: Array) -> Tensor:
    return _linear_float(np.asarray(weight, np.float32).astype(np.float16), DType.F16, "<f2")


def _linear_float(weight: Array, dtype: DType, code: str) -> Tensor:
    rows, columns = weight.shape
    panels = _pad(_finite(weight, "a weight"), padded(rows, PANEL), columns).reshape(-1, PANEL, columns)
    return Tensor(dtype, Layout.PANELS, rows, columns, _contiguous(panels.transpose(0, 2, 1), code))


def linear_i8(quantized: Bytes, scales: Floats) -> Tensor:
    """int8 [N, K] and one scale per row: as given, nothing is rounded again."""
    rows, columns = quantized.shape
    wide = _pad(quantized, padded(rows, PANEL), padded(columns, 8))
    data = wide.reshape(-1, PANEL, wide.shape[1] // 4, 4).transpose(0, 2, 1, 3)
    sums = wide.astype(np.int32).sum(1)
    aux = _contiguous(np.pad(_finite(scales, "scales"), (0, len(sums) - rows)), "<f4") + _contiguous(sums, "<i4")
    return Tensor(DType.I8, Layout.PANELS, rows, columns, _contiguous(data, "i1"), aux, 0, depth_of(quantized))


def linear_i4(quantized: Nibbles, scales: Array, zeros: Nibbles | None = None, *, group: int) -> Tensor:
    """0..15 [N, K]; scales, zero points [N, ceil(K / group)]; float16 scales stay float16. Nothing is rounded again."""
    rows, columns = quantized.shape
    groups, high = -(-columns // _group(group)), padded(rows, PANEL)
    wide = _pad(quantized, high, groups * group).astype(np.uint8).reshape(-1, 2, 4, groups * group // 4, 4)
    data = (wide[:, 0] | wide[:, 1] << 4).transpose(0, 2, 1, 3)
    panels = _pad(scales, high, groups).reshape(-1, PANEL, groups).transpose(0, 2, 1)
    zero_panels = None if zeros is None else _pad(zeros, high, groups).reshape(-1, PANEL, groups).transpose(0, 2, 1)
    centred = _centred(quantized, zeros, group).astype(np.int32)
    sums = np.add.reduceat(centred, np.arange(0, columns, group), axis=1)
    correction = np.pad((sums * scales.astype(np.float64)).sum(1), (0, high - rows))
    aux, detail = _group_aux(panels, zero_panels, correction)
    return Tensor(DType.I4, Layout.PANELS, rows, columns, _contiguous(data, "u1"), aux, group, detail)


def _centred(quantized: Array, zeros: Array | None, group: int) -> Array:
    """q - zero, [rows, columns] int16."""
    columns = quantized.shape[1]
    if zeros is None:
        return quantized.astype(np.int16) - np.int16(8)
    return quantized.astype(np.int16) - np.repeat(zeros.astype(np.int16), group, axis=1)[:, :columns]


def depth_of(quantized: Bytes) -> int:
    """The largest of 4, 2 and 1 steps of 4 columns whose sums of products with 0..127 always fit 16 bits."""
    for depth in (4, 2):
        if (_lane_sums(quantized, depth) <= LANE_LIMIT).all():
            return depth
    return 1


def _lane_sums(values: Array, depth: int) -> Array:
    """The largest sum of one sign in each 16-bit lane, [rows, lanes]: what 7-bit activations make of it at worst."""
    rows, columns = values.shape
    wide = _pad(values, rows, padded(columns, 4 * depth)).astype(np.float64)
    lanes = wide.reshape(rows, -1, depth, 2, 2).transpose(0, 1, 3, 2, 4).reshape(rows, -1, 2 * depth)
    result: Array = np.maximum(np.maximum(lanes, 0).sum(2), np.maximum(-lanes, 0).sum(2))
    return result


# Quantisation by rounding to the nearest


def quantize_rows(values: Array) -> tuple[Bytes, Floats]:
    """Symmetric int8 by row, for tables."""
    scales = np.maximum(np.abs(values).max(1, initial=0.0) / 127, 1e-12).astype(np.float32)
    return np.clip(np.rint(values / scales[:, None]), -127, 127).astype(np.int8), scales


def quantize_i8(weight: Array, *, depth: int = 4) -> tuple[Bytes, Floats]:
    """Symmetric int8 by output channel, scaled so that `depth_of` is at least `depth`.

    For the usual bell-shaped weights depth 2 costs nothing: the largest weight decides the scale anyway.
    """
    weight = np.asarray(_finite(weight, "a weight"), np.float32)
    largest = np.abs(weight).max(1, initial=0.0) / 127
    if depth > 1:
        largest = np.maximum(largest, _lane_sums(weight, depth).max(1, initial=0.0) / LANE_LIMIT)
    scales = np.maximum(largest, 1e-12).astype(np.float32)
    while True:
        quantized = np.clip(np.rint(weight / scales[:, None]), -127, 127).astype(np.int8)
        over = (_lane_sums(quantized, depth) > LANE_LIMIT).any(1) if depth > 1 else np.zeros(len(scales), bool)
        if not over.any():
            return quantized, scales
        scales = np.where(over, scales * np.float32(1 + 1 / 256), scales).astype(np.float32)


def quantize_i4(
    weight: Array, *, group: int, symmetric: bool = True, half: bool = True
) -> tuple[Nibbles, Array, Nibbles | None]:
    """0..15 by group: quantised, scales [rows, groups] (float16 where `half`), zero points or None when symmetric."""
    rows, columns = weight.shape
    groups = -(-columns // _group(group))
    blocks = _pad(np.asarray(_finite(weight, "a weight"), np.float32), rows, groups * group).reshape(
        rows, groups, group
    )
    low, high = np.minimum(blocks.min(2), 0), np.maximum(blocks.max(2), 0)
    if symmetric:
        extreme = np.where(high > -low, high, low)
        scales = extreme / -8
    else:
        scales = (high - low) / 15
    scales = np.where(np.abs(scales) < 6e-8, 6e-8, scales).astype(np.float16 if half else np.float32)
    wide = scales.astype(np.float32)
    zeros = np.full((rows, groups), 8) if symmetric else np.clip(np.rint(-low / wide), 0, 15)
    quantized = np.clip(np.rint(blocks / wide[..., None]) + zeros[..., None], 0, 15).astype(np.uint8)
    return quantized.reshape(rows, -1)[:, :columns], scales, None if symmetric else zeros.astype(np.uint8)


# Back


def rows_of(tensor: Tensor) -> Floats:
    """A ROWS tensor's values, [rows, columns]."""
    rows, columns, wide = tensor.rows, tensor.columns, padded(tensor.columns, 8)
    if tensor.dtype == DType.I4:
        packed = np.frombuffer(tensor.data, np.uint8).reshape(rows, wide // 2)
        quantized = np.stack([packed & 15, packed >> 4], axis=2).reshape(rows, wide)[:, :columns]
        groups = -(-columns // tensor.group)
        scales, _, zeros = _read_group_aux(tensor, rows * groups, 0)
        shaped = None if zeros is None else zeros.reshape(rows, groups)
        scale = np.repeat(scales.reshape(rows, groups).astype(np.float32), tensor.group, axis=1)[:, :columns]
        return (_centred(quantized, shaped, tensor.group).astype(np.float32) * scale).astype(np.float32)
    code = {DType.F32: "<f4", DType.F16: "<f2", DType.I8: "i1", DType.I32: "<i4"}[tensor.dtype]
    values = np.frombuffer(tensor.data, code).reshape(rows, wide)[:, :columns].astype(np.float32)
    if tensor.dtype == DType.I8:
        values = values * np.frombuffer(tensor.aux, "<f4")[:, None]
    return values.astype(np.float32)


def _read_group_aux(tensor: Tensor, count: int, corrections: int) -> tuple[Array, Floats, Nibbles | None]:
    code = "<f2" if tensor.detail & Detail.SCALES_F16 else "<f4"
    scales = np.frombuffer(tensor.aux, code, count)
    at = padded(scales.nbytes, ALIGNMENT)
    correction = np.frombuffer(tensor.aux, "<f4", corrections, at)
    at += padded(correction.nbytes, ALIGNMENT)
    zeros = np.frombuffer(tensor.aux, np.uint8, count, at) if tensor.detail & Detail.ZEROS else None
    return scales, correction, zeros


def linear_floats(tensor: Tensor) -> Floats:
    """An F32 or F16 weight's values, [N, K]."""
    code = "<f4" if tensor.dtype == DType.F32 else "<f2"
    panels = np.frombuffer(tensor.data, code).reshape(-1, tensor.columns, PANEL)
    return panels.transpose(0, 2, 1).reshape(-1, tensor.columns)[: tensor.rows].astype(np.float32)


def linear_bytes(tensor: Tensor) -> tuple[Bytes, Floats]:
    """An I8 weight: int8 [N, K], scales [N]."""
    wide = padded(tensor.columns, 8)
    panels = np.frombuffer(tensor.data, np.int8).reshape(-1, wide // 4, PANEL, 4)
    quantized = panels.transpose(0, 2, 1, 3).reshape(-1, wide)[: tensor.rows, : tensor.columns]
    return quantized, np.frombuffer(tensor.aux, "<f4", tensor.rows)


def linear_nibbles(tensor: Tensor) -> tuple[Nibbles, Array, Nibbles | None]:
    """An I4 weight: 0..15 [N, K], scales [N, groups], zero points [N, groups] or None."""
    rows, columns = tensor.rows, tensor.columns
    groups, high = -(-columns // tensor.group), padded(rows, PANEL)
    packed = np.frombuffer(tensor.data, np.uint8).reshape(high // PANEL, -1, 4, 4).transpose(0, 2, 1, 3)
    wide = np.stack([packed & 15, packed >> 4], axis=1).reshape(high, groups * tensor.group)
    scales, _, zeros = _read_group_aux(tensor, high * groups, high)

    def by_row(panels: Array) -> Array:
        return panels.reshape(-1, groups, PANEL).transpose(0, 2, 1).reshape(high, groups)[:rows]

    return wide[:rows, :columns], by_row(scales), None if zeros is None else by_row(zeros)


def correction_of(tensor: Tensor) -> Floats:
    """An I4 weight's correction, [N]: what one unit of an activation's zero point adds to each output."""
    high = padded(tensor.rows, PANEL)
    _, correction, _ = _read_group_aux(tensor, high * -(-tensor.columns // tensor.group), high)
    return correction[: tensor.rows]
