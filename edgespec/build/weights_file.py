"""safetensors files as raw tensors, of whatever type: joined, renamed and written so that the same tensors give the
same bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

_WIDTHS: Final = {"I64": 8, "U64": 8, "F64": 8, "I32": 4, "U32": 4, "F32": 4, "I16": 2, "U16": 2, "F16": 2, "BF16": 2}


@dataclass(frozen=True, slots=True)
class RawTensor:
    dtype: str
    """As the format writes it: F32, I8 ..."""
    shape: tuple[int, ...]
    data: bytes | memoryview


def read_header(raw: bytes | memoryview) -> Mapping[str, Any]:
    """Name to type, shape and offsets, without the file's notes. Raises BrokenWeightsError."""
    from edgespec.build.weights import BrokenWeightsError  # its module needs numpy, plans do not

    length = int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or length > len(raw) - 8:
        raise BrokenWeightsError("the header does not fit into the file: it is cut short or not safetensors")
    try:
        header = json.loads(bytes(raw[8 : 8 + length]))
    except ValueError as why:
        raise BrokenWeightsError(f"the header is not JSON: {why}") from None
    return {name: entry for name, entry in header.items() if name != "__metadata__"}


def read_tensors(raw: bytes) -> dict[str, RawTensor]:
    """Views into `raw`."""
    start = 8 + int.from_bytes(raw[:8], "little")
    found = {}
    for name, entry in read_header(raw).items():
        begin, end = entry["data_offsets"]
        found[name] = RawTensor(entry["dtype"], tuple(entry["shape"]), memoryview(raw)[start + begin : start + end])
    return found


def write_tensors(tensors: Mapping[str, RawTensor]) -> bytes:
    """Wide types first, so that each tensor starts at a multiple of its own width, then by name; with the one note
    that transformers asks for."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    parts: list[bytes | memoryview] = []
    position = 0
    for name in sorted(tensors, key=lambda n: (-_WIDTHS.get(tensors[n].dtype, 1), n)):
        tensor = tensors[name]
        size = len(tensor.data)
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [position, position + size]}
        parts.append(tensor.data)
        position += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def join_safetensors(files: Iterable[bytes]) -> bytes:
    """Several files' tensors as one file."""
    found: dict[str, RawTensor] = {}
    for raw in files:
        found |= read_tensors(raw)
    return write_tensors(found)
