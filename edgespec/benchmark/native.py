"""onnxruntime in this process on one thread, with the artifact's own ONNX and tokenizer: what hardware could do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from edgespec.artifact import Manifest
from edgespec.build.embed import TextEncoder, read_tokenizer

MODEL: Final = "model.onnx"


class NativeModel:
    """`blob` gives a chunk's file; `tokenizer` is a tokenizer.json. Tokenisation is measured; HTTP, JSON and labels
    are not there."""

    def __init__(self, manifest: Manifest, blob: Callable[[str], Path], tokenizer: bytes, max_tokens: int) -> None:
        self._encoder = TextEncoder(file_bytes(manifest, MODEL, blob), read_tokenizer(tokenizer, max_tokens))

    def run(self, texts: Sequence[str]) -> list[tuple[float, float]]:
        """(CPU ms of this thread, wall ms) of each text."""
        found = []
        for text in texts:
            cpu, wall = time.thread_time_ns(), time.perf_counter_ns()
            self._encoder.run(text)
            found.append(((time.thread_time_ns() - cpu) / 1e6, (time.perf_counter_ns() - wall) / 1e6))
        return found


def file_bytes(manifest: Manifest, name: str, blob: Callable[[str], Path]) -> bytes:
    """One of the artifact's files from its chunks."""
    return b"".join(blob(chunk.sha256).read_bytes() for chunk in manifest.files[name].chunks)
