"""Reading safetensors from memory: https://huggingface.co/docs/safetensors (8-byte length, JSON header, raw data)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
_DTYPES: Final = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_INTEGERS: Final = {"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1"}


class BrokenWeightsError(ValueError):
    """The bytes are not a safetensors file, or a tensor in it is not of floating point."""


class Tensors:
    """Named tensors of one or more safetensors files; each is converted to float32 when it is asked for."""

    def __init__(self, *files: bytes) -> None:
        self._where: dict[str, tuple[memoryview, Mapping[str, Any]]] = {}
        for raw in files:
            self._index(raw)

    def _index(self, raw: bytes) -> None:
        length = int.from_bytes(raw[:8], "little")
        if len(raw) < 8 or length > len(raw) - 8:
            raise BrokenWeightsError("the header does not fit into the file: it is cut short or not safetensors")
        try:
            header = json.loads(raw[8 : 8 + length])
        except ValueError as why:
            raise BrokenWeightsError(f"the header is not JSON: {why}") from None
        data = memoryview(raw)[8 + length :]
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            if not 0 <= begin <= end <= len(data):
                raise BrokenWeightsError(f"tensor {name!r} reaches beyond the end of the file: it is cut short")
            self._where[name] = data[begin:end], entry

    def __contains__(self, name: object) -> bool:
        return name in self._where

    def names(self) -> list[str]:
        return sorted(self._where)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._where[name][1]["shape"])

    def get(self, name: str) -> FloatArray:
        """Raises KeyError for a name that is not there."""
        return self._read(name, _DTYPES)

    def numbers(self, name: str) -> FloatArray:
        """The same where integers will do too."""
        return self._read(name, _DTYPES | _INTEGERS)

    def _read(self, name: str, dtypes: Mapping[str, str]) -> FloatArray:
        _, entry = self._where[name]
        dtype = dtypes.get(entry["dtype"])
        if dtype is None:
            *others, last = dtypes
            known = f"{', '.join(others)} and {last}"
            raise BrokenWeightsError(f"tensor {name!r} is {entry['dtype']}: only {known} are read")
        flat = self._shaped(name, dtype)
        if entry["dtype"] == "BF16":
            flat = (flat.astype(np.uint32) << 16).view(np.float32)
        return flat.astype(np.float32, copy=False)

    def integers(self, name: str) -> npt.NDArray[Any]:
        """A tensor of integers as it is stored. Raises KeyError for a name that is not there."""
        _, entry = self._where[name]
        dtype = _INTEGERS.get(entry["dtype"])
        if dtype is None:
            raise BrokenWeightsError(f"tensor {name!r} is {entry['dtype']}, not integers")
        return self._shaped(name, dtype)

    def is_float(self, name: str) -> bool:
        return self._where[name][1]["dtype"] in _DTYPES

    def _shaped(self, name: str, dtype: str) -> npt.NDArray[Any]:
        data, entry = self._where[name]
        if len(data) != math.prod(entry["shape"]) * np.dtype(dtype).itemsize:
            count = len(data) // np.dtype(dtype).itemsize
            raise BrokenWeightsError(f"tensor {name!r} has {count} values, its shape {entry['shape']} wants others")
        return np.frombuffer(data, dtype).reshape(entry["shape"])
