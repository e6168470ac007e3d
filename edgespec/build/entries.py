"""What a stage gave for a key, as text: in the cache's folder and in a bucket alike."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from edgespec.values import canonical_json, digest

FORMAT: Final = "edgespec.build-cache/v1"
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class Blob(Struct, frozen=True):
    sha256: str
    size: int


class Entry(Struct, frozen=True):
    """What a stage gave for a key."""

    outputs: Mapping[str, Blob]
    notes: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """Of the outputs alone: what later stages read."""
        return digest({name: blob.sha256 for name, blob in self.outputs.items()})


def encode_entry(entry: Entry) -> bytes:
    outputs = {k: {"sha256": b.sha256, "size": b.size} for k, b in entry.outputs.items()}
    body = {"outputs": outputs, "notes": dict(entry.notes)}
    return canonical_json({"format": FORMAT, "digest": digest(body), "body": body}).encode()


def decode_entry(raw: bytes) -> Entry:
    """Raises ValueError for what is damaged or was not written by `encode_entry`."""
    try:
        data = msgspec.json.decode(raw)
        body = data["body"]
        if data["format"] != FORMAT or data["digest"] != digest(body):
            raise ValueError("damaged")
        outputs = {_name(k): _blob(v) for k, v in body["outputs"].items()}
        notes = body["notes"]
    except (KeyError, TypeError, AttributeError, RecursionError) as why:
        raise ValueError("damaged") from why
    if not isinstance(notes, dict):
        raise ValueError("damaged")
    return Entry(outputs, notes)


def _name(name: str) -> str:
    """Outputs become files of that name in a tool's folder: never one outside of it."""
    if not name or name.startswith("/") or "\\" in name or ".." in name.split("/"):
        raise ValueError(f"{name!r} names no output")
    return name


def _blob(value: Any) -> Blob:
    sha256, size = value["sha256"], value["size"]
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256) or type(size) is not int or size < 0:
        raise ValueError("damaged")
    return Blob(sha256, size)
