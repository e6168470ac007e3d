"""Engines that run an artifact's model outside of a Worker (edge).

The edge engine runs as the Worker's own WebAssembly in Node, which is some hundred times faster than its numpy
reference and gives the very numbers that workerd gives on this machine; the reference stands in where there is no Node.
"""

from __future__ import annotations

import base64
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from edgespec.build.problems import fail
from edgespec.build.process import end_listener

Floats = NDArray[np.float32]
Run = Callable[[Sequence[str]], Floats]
"""Texts to the model's output rows, in order."""
BATCH: Final = 256
"""Texts of one call: between two of them progress is heard."""


@dataclass(frozen=True, slots=True)
class NodeEngine:
    """What it takes to run the edge engine in Node."""

    node: Path
    script: Path
    """worker_runtime/local-edge/engine.mjs."""
    relaxed: Path
    simd: Path
    digest: str
    """Of the WebAssembly modules: other code may give other numbers."""


@dataclass(frozen=True, slots=True)
class Engine:
    name: str
    """As an evaluation says it."""
    run: Run


@contextmanager
def edge_in_node(parts: NodeEngine, program: bytes, tokenizer: Tokenizer, max_tokens: int) -> Iterator[Engine]:
    """Raises EdgespecError (ES584) where Node cannot run the program."""
    with tempfile.TemporaryDirectory(prefix="edgespec-eval-") as folder:
        file = Path(folder) / "model.edge"
        file.write_bytes(program)
        command = [parts.node, parts.script, parts.relaxed, parts.simd, file, max_tokens]
        process = subprocess.Popen(
            [str(c) for c in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
        try:
            opened = _answer(process)
            columns = int(opened["columns"])

            def run(texts: Sequence[str]) -> Floats:
                if process.stdin is None:
                    raise TypeError("started without pipes")
                ids = [encoding.ids for encoding in tokenizer.encode_batch(list(texts))]
                try:
                    process.stdin.write(json.dumps({"texts": ids}) + "\n")
                    process.stdin.flush()
                except OSError:
                    raise fail("ES584", "Node ended while it ran the edge engine. Run it again.") from None
                values = np.frombuffer(base64.b64decode(_answer(process)["values"]), np.float32)
                return values.reshape(len(texts), columns)

            yield Engine(f"the edge engine in Node ({opened['kind']})", run)
        finally:
            end_listener(process)


def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    line = process.stdout.readline() if process.stdout is not None else ""
    found: dict[str, Any] = json.loads(line) if line else {"error": "Node ended without an answer"}
    if "error" in found:
        raise fail("ES584", f"{found['error']}.")
    return found


def edge_in_numpy(program: bytes, tokenizer: Tokenizer) -> Engine:
    """The reference: slow, and of another rounding of activations than some processors' WebAssembly."""
    from edgespec.engine import reference
    from edgespec.engine.format import decode

    parsed = decode(program)

    def run(texts: Sequence[str]) -> Floats:
        return reference.run(parsed, [encoding.ids for encoding in tokenizer.encode_batch(list(texts))])

    return Engine("the edge engine's numpy reference", run)


def onnxruntime_native(model: bytes, tokenizer: Tokenizer) -> Engine:
    """onnxruntime in this process, one text a run: no padding, so that a text's numbers do not depend on others."""
    from edgespec.build.embed import TextEncoder

    return Engine("onnxruntime", TextEncoder(model, tokenizer).run_all)
