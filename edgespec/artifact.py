"""The artifact format: a manifest that names content-addressed chunks. Pure: bytes in, bytes out.

An artifact is identified by the SHA-256 of its manifest's canonical JSON. Every file is the concatenation of its
chunks, in order; a chunk's name is the SHA-256 of its bytes. Nothing in it depends on when or where it was built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from edgespec.values import canonical_json, sha256_hex

FORMAT: Final = "edgespec.artifact/v1"
KEY_PREFIX: Final = "artifacts/"
"""Object and KV keys are this and a SHA-256 in hex."""


class Chunk(Struct, frozen=True, order=True):
    sha256: str
    size: int
    """Bytes."""


class FileEntry(Struct, frozen=True):
    sha256: str
    size: int
    chunks: tuple[Chunk, ...]


class ModelInfo(Struct, frozen=True):
    inputs: tuple[str, ...]
    output: str
    """`logits` or `embedding`: the name of the graph's one output."""
    dimensions: int
    """Columns of the output: labels or embedding width."""
    quantization: str


@dataclass(frozen=True, slots=True)
class Manifest:
    engine: str
    task: Mapping[str, Any]
    model: ModelInfo
    files: Mapping[str, FileEntry]
    _encoded: list[bytes] = field(default_factory=list, init=False, compare=False, repr=False)
    _digest: list[str] = field(default_factory=list, init=False, compare=False, repr=False)
    """Each once it was asked for."""

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "engine": self.engine,
            "task": dict(self.task),
            "model": {
                "inputs": list(self.model.inputs),
                "output": self.model.output,
                "dimensions": self.model.dimensions,
                "quantization": self.model.quantization,
            },
            "files": {
                name: {
                    "sha256": f.sha256,
                    "size": f.size,
                    "chunks": [{"sha256": c.sha256, "size": c.size} for c in f.chunks],
                }
                for name, f in sorted(self.files.items())
            },
        }

    def encode(self) -> bytes:
        """Canonical JSON: what the digest is taken of and what is stored."""
        if not self._encoded:
            self._encoded.append(canonical_json(self.to_json()).encode())
        return self._encoded[0]

    @property
    def digest(self) -> str:
        if not self._digest:
            self._digest.append(sha256_hex(self.encode()))
        return self._digest[0]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(f.size for f in self.files.values())

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """Every distinct chunk, sorted."""
        return tuple(sorted({c for f in self.files.values() for c in f.chunks}))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Manifest:
        """Raises ValueError for another format, and for what is no manifest."""
        _check_format(data.get("format"))
        read = msgspec.convert(data, _Document)
        return cls(read.engine, read.task, read.model, read.files)

    @classmethod
    def decode(cls, raw: bytes) -> Manifest:
        """`raw` is what `encode` made: its digest is the manifest's."""
        try:
            read = _READER.decode(raw)
        except msgspec.ValidationError:  # `from_json` says it where a newer edgespec wrote it
            found = cls.from_json(msgspec.json.decode(raw, type=dict[str, Any]))
        else:
            found = cls(read.engine, read.task, read.model, read.files)
        found._encoded.append(raw)
        return found


def _check_format(found: object) -> None:
    if found != FORMAT:
        raise ValueError(f"artifact format {found!r} is not {FORMAT!r}; a newer edgespec wrote it")


class _Document(Struct, frozen=True):
    """A manifest's JSON."""

    format: Literal["edgespec.artifact/v1"]
    engine: str
    task: dict[str, Any]
    model: ModelInfo
    files: dict[str, FileEntry]


_READER: Final = msgspec.json.Decoder(_Document)


def split(data: bytes | memoryview, chunk_bytes: int) -> list[memoryview]:
    """`data` in pieces of `chunk_bytes`, the last one shorter; an empty file has no chunks."""
    view = memoryview(data)
    return [view[i : i + chunk_bytes] for i in range(0, len(view), chunk_bytes)]
