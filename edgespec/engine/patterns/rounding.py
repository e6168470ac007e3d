"""Float weights to 4 bits: rounding to the nearest, with the scale of each group that makes the least error."""

from __future__ import annotations

from typing import Final

import numpy as np

from edgespec.engine.patterns.graph import Array

SHRINKS: Final = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75)
"""A scale that cuts the largest weight short may round all the others better. Mean cosine of MiniLM: .968 to .970."""
SMALLEST: Final = 6e-8
"""The smallest float16 above zero."""
_ROWS: Final = 256


def to_four_bits(weight: Array, group: int) -> tuple[Array, Array]:
    """0 .. 15 around 8, [rows, columns], and float16 scales [rows, groups]. The same weights give the same numbers."""
    parts = [_rows(weight[i : i + _ROWS], group) for i in range(0, len(weight), _ROWS)]
    return np.concatenate([q for q, _ in parts]), np.concatenate([s for _, s in parts])


def _rows(weight: Array, group: int) -> tuple[Array, Array]:
    rows, columns = weight.shape
    groups = -(-columns // group)
    blocks = np.pad(weight, ((0, 0), (0, groups * group - columns))).reshape(rows, groups, group).astype(np.float32)
    low, high = blocks.min(2), blocks.max(2)
    extreme, largest = np.where(high > -low, high, low), np.maximum(high, -low)
    best: Array = np.full((rows, groups), np.inf, np.float32)
    scales: Array = np.zeros((rows, groups), np.float16)
    for shrink in SHRINKS:
        # -8 .. 7: the extreme at -8 exactly, or both ends alike
        for candidate in (extreme * np.float32(shrink / -8), largest * np.float32(shrink / 7.5)):
            half = np.where(np.abs(candidate) < SMALLEST, SMALLEST, candidate).astype(np.float16)
            wide = half.astype(np.float32)[..., None]
            error = ((_nearest(blocks, wide) * wide - blocks) ** 2).sum(2)
            better = error < best
            best, scales = np.where(better, error, best), np.where(better, half, scales)
    q = _nearest(blocks, scales.astype(np.float32)[..., None]) + 8
    return q.astype(np.uint8).reshape(rows, -1)[:, :columns], scales


def _nearest(blocks: Array, scales: Array) -> Array:
    return np.asarray(np.clip(np.rint(blocks / scales), -8, 7))
