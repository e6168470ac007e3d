"""Checkpoints that a quantising tool wrote: which layout their integers really have, and how far they are from the
float weights.

GPTQ keeps, for a matrix of K inputs and N outputs, `qweight` int32 [K * bits / 32, N], `qzeros` int32
[K / group, N * bits / 32], `scales` [K / group, N] and `g_idx` int32 [K]. Version 1 stores zero points less one,
version 2 as they are. What config.json says of it is not to be trusted (ms-swift 4.6 writes `gptq_v2` over tensors of
version 1): with symmetric integers the zero point is known, and tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from edgespec.build.problems import fail
from edgespec.build.weights_file import RawTensor

Floats = npt.NDArray[np.float32]
MOST: Final = {8: 0.05, 4: 0.25}
"""By bits: a larger error of a whole matrix means that it was misread, not rounded."""
_TYPES: Final = {"F32": "<f4", "F16": "<f2", "I32": "<i4", "I8": "<i1", "U8": "<u1", "I64": "<i8"}


def array_of(tensor: RawTensor) -> npt.NDArray[Any]:
    """BF16 as float32."""
    if tensor.dtype == "BF16":
        words = np.frombuffer(tensor.data, "<u2").astype(np.uint32) << 16
        return words.view(np.float32).reshape(tensor.shape)
    return np.frombuffer(tensor.data, _TYPES[tensor.dtype]).reshape(tensor.shape)


def matrices(tensors: Mapping[str, RawTensor], suffix: str = ".qweight") -> list[str]:
    """The modules whose weights are packed."""
    return sorted(name.removesuffix(suffix) for name in tensors if name.endswith(suffix))


def unpack(words: npt.NDArray[Any], bits: int, axis: int) -> npt.NDArray[np.int32]:
    """The integers of int32 words, lowest bits first, along an axis."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    parts = (words.astype(np.int64).astype(np.uint32)[..., None] >> shifts) & np.uint32(2**bits - 1)
    moved = np.moveaxis(parts, -1, axis + 1)
    shape = list(words.shape)
    shape[axis] *= len(shifts)
    return moved.reshape(shape).astype(np.int32)


def gptq_version(tensors: Mapping[str, RawTensor], bits: int) -> int:
    """1 or 2, from the zero points of symmetric integers. Raises ES573 when they are neither."""
    middle = 2 ** (bits - 1)
    found: set[int] = set()
    for name in matrices(tensors):
        found |= set(np.unique(unpack(array_of(tensors[f"{name}.qzeros"]), bits, axis=1)).tolist())
    if found == {middle - 1}:
        return 1
    if found == {middle}:
        return 2
    shown = ", ".join(str(z) for z in sorted(found)[:8]) or "nothing packed"
    raise fail("ES573", f"the zero points of the packed weights are {shown}; symmetric {bits}-bit ones are {middle}.")


def gptq_float(tensors: Mapping[str, RawTensor], name: str, bits: int, version: int) -> Floats:
    """A packed matrix in float32, [N, K] as in the checkpoint that it was made from."""
    values = unpack(array_of(tensors[f"{name}.qweight"]), bits, axis=0)
    zeros = unpack(array_of(tensors[f"{name}.qzeros"]), bits, axis=1) + (1 if version == 1 else 0)
    scales = array_of(tensors[f"{name}.scales"]).astype(np.float32)
    groups = array_of(tensors[f"{name}.g_idx"])
    return np.ascontiguousarray(((values - zeros[groups]) * scales[groups]).T.astype(np.float32))


def groups_in_order(tensors: Mapping[str, RawTensor], group_size: int) -> bool:
    """Whether row k of every matrix belongs to group k // group_size."""
    return all(
        np.array_equal(found := array_of(tensors[f"{n}.g_idx"]), np.arange(len(found)) // group_size)
        for n in matrices(tensors)
    )


def bnb_float(tensors: Mapping[str, RawTensor], name: str) -> Floats:
    """A matrix of LLM.int8 in float32, [N, K]: integers from -127 to 127, and SCB, the largest weight of each row."""
    values = array_of(tensors[f"{name}.weight"]).astype(np.float32)
    return values * (array_of(tensors[f"{name}.SCB"]).reshape(-1, 1).astype(np.float32) / np.float32(127))


def relative_error(found: Floats, wanted: Floats) -> float:
    return float(np.linalg.norm(found - wanted) / max(float(np.linalg.norm(wanted)), 1e-30))
