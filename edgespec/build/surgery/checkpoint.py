"""A model in memory, its tensors in the number format of the file: rows and columns are taken out without rounding."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from edgespec.build.weights import BrokenWeightsError, FloatArray
from edgespec.build.weights_file import RawTensor, read_tensors, write_tensors

FORMATS: Final = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "<i1",
    "U8": "<u1", "BOOL": "<u1",
}  # fmt: skip
"""How numpy holds each format; it knows no BF16, whose bits are kept as they are."""
Indices = npt.NDArray[np.intp]


@dataclass(slots=True)
class Tensor:
    format: str
    values: npt.NDArray[Any]
    """In the file's bits."""

    def floats(self) -> FloatArray:
        if self.format == "BF16":
            return (self.values.astype(np.uint32) << 16).view(np.float32)
        return self.values.astype(np.float32)

    def like(self, values: FloatArray) -> npt.NDArray[Any]:
        """Values in this tensor's format, rounded to nearest."""
        if self.format != "BF16":
            return values.astype(FORMATS[self.format])
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


@dataclass(slots=True)
class Checkpoint:
    """The tensors by name, and config.json. Functions of this package change it in place."""

    tensors: dict[str, Tensor]
    config: dict[str, Any] = field(default_factory=dict)

    def floats(self, name: str) -> FloatArray:
        return self.tensors[name].floats()

    def take(self, name: str, kept: Indices | slice, axis: int = 0) -> None:
        """Keeps these rows (axis 0) or columns (axis 1) of a tensor, in the order given."""
        tensor = self.tensors[name]
        tensor.values = np.ascontiguousarray(tensor.values[kept] if axis == 0 else tensor.values[:, kept])

    def parameters(self) -> int:
        return sum(t.values.size for t in self.tensors.values())


def read_checkpoint(files: Iterable[bytes], config: Mapping[str, Any]) -> Checkpoint:
    """Raises BrokenWeightsError for bytes that are no safetensors."""
    tensors: dict[str, Tensor] = {}
    for raw in files:
        for name, tensor in read_tensors(raw).items():
            tensors[name] = _values(name, tensor)
    return Checkpoint(tensors, dict(config))


def _values(name: str, tensor: RawTensor) -> Tensor:
    if tensor.dtype not in FORMATS:
        raise BrokenWeightsError(f"tensor {name!r} is {tensor.dtype}: known are {', '.join(FORMATS)}")
    flat = np.frombuffer(tensor.data, FORMATS[tensor.dtype])
    if flat.size != math.prod(tensor.shape):
        raise BrokenWeightsError(f"tensor {name!r} has {flat.size} values, its shape {list(tensor.shape)} wants others")
    return Tensor(tensor.dtype, flat.reshape(tensor.shape))


def encode(tensors: Mapping[str, Tensor]) -> bytes:
    """One safetensors file: the same tensors are always the same bytes."""
    return write_tensors({n: RawTensor(t.format, t.values.shape, t.values.tobytes()) for n, t in tensors.items()})


def encode_json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()
