"""The manifest's text and back."""

from __future__ import annotations

import json

import pytest

from edgespec.artifact import Chunk, FileEntry, Manifest, ModelInfo
from edgespec.values import sha256_hex

CHUNKS = (Chunk("a" * 64, 3), Chunk("b" * 64, 2))
MANIFEST = Manifest(
    "edge",
    {"type": "text-classification", "labels": ["ja", "nein", "vielleicht é"], "max_tokens": 32},
    ModelInfo(("input_ids", "attention_mask"), "logits", 3, "int8"),
    {"model.edge": FileEntry("c" * 64, 5, CHUNKS), "tokenizer.bin": FileEntry("b" * 64, 2, CHUNKS[1:])},
)


def test_a_manifest_comes_back_as_it_was() -> None:
    raw = MANIFEST.encode()
    again = Manifest.decode(raw)
    assert again == MANIFEST == Manifest.from_json(json.loads(raw))
    assert again.digest == MANIFEST.digest == sha256_hex(raw) and again.encode() == raw
    assert (again.size, again.chunks) == (7, CHUNKS)


def test_a_newer_format_is_refused_and_never_half_read() -> None:
    newer = {**MANIFEST.to_json(), "format": "edgespec.artifact/v2", "extra": 1}
    with pytest.raises(ValueError, match="a newer edgespec wrote it"):
        Manifest.decode(json.dumps(newer).encode())
    with pytest.raises(ValueError, match="a newer edgespec wrote it"):
        Manifest.from_json(newer)
    with pytest.raises(ValueError, match="a newer edgespec wrote it"):
        Manifest.decode(b'{"format": "edgespec.artifact/v2", "files": ["of another shape"]}')


@pytest.mark.parametrize(
    "raw", [b"", MANIFEST.encode()[:-9], b"[]", MANIFEST.encode().replace(b'"size":3', b'"size":"3"')]
)
def test_what_is_damaged_is_a_value_error(raw: bytes) -> None:
    with pytest.raises(ValueError):  # msgspec's own words
        Manifest.decode(raw)


def test_what_is_no_manifest_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="files"):
        Manifest.from_json({k: v for k, v in MANIFEST.to_json().items() if k != "files"})
