"""Running an exported encoder on texts, so that the same texts always give the same bits on the same machine.

One text a run, without padding; every run on one thread, sequentially inside. Several runs may be under way at once:
they do not touch each other, so their number changes nothing but the time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
import numpy.typing as npt
import onnxruntime
from tokenizers import Encoding, Tokenizer

from edgespec.build.problems import fail

FloatArray = npt.NDArray[np.float32]
PARALLEL: Final = 4


def read_tokenizer(data: bytes, max_tokens: int | None) -> Tokenizer:
    """A tokenizer.json without its padding, cutting at `max_tokens` (special tokens included)."""
    try:
        tokenizer = Tokenizer.from_str(data.decode())
    except Exception as why:  # noqa: BLE001 - the library raises plain Exception
        raise fail("ES506", f"tokenizer.json: {why}. Save it anew with transformers or tokenizers.") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if max_tokens is not None:
        tokenizer.enable_truncation(max_tokens)
    return tokenizer


class TextEncoder:
    """A model (ONNX bytes) and its tokenizer. Raises EdgespecError where onnxruntime refuses the model."""

    def __init__(self, model: bytes, tokenizer: Tokenizer) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as why:  # noqa: BLE001 - onnxruntime's errors have no common base but Exception
            raise fail("ES533", f"{str(why).strip(' .')}.") from None
        self._tokenizer = tokenizer
        self._inputs = [i.name for i in self._session.get_inputs()]

    def run(self, text: str) -> FloatArray:
        """The model's output for one text: [columns]."""
        encoding = self._tokenizer.encode(text)
        feeds = {name: np.array([_ids(encoding, name)], dtype=np.int64) for name in self._inputs}
        try:
            (out,) = self._session.run(None, feeds)
        except Exception as why:  # noqa: BLE001
            raise fail("ES533", f"{str(why).strip(' .')}.") from None
        row: FloatArray = out[0]
        return row

    def run_all(self, texts: Sequence[str], done: Callable[[float], None] = lambda _: None) -> FloatArray:
        """[texts, columns], in the order of the texts; `done` hears the fraction, now and then."""
        rows = []
        with ThreadPoolExecutor(min(PARALLEL, os.cpu_count() or 1)) as pool:
            for row in pool.map(self.run, texts):
                rows.append(row)
                if len(rows) % 64 == 0:
                    done(len(rows) / len(texts))
        return np.stack(rows)


def _ids(encoding: Encoding, name: str) -> list[int]:
    if name == "input_ids":
        return list(encoding.ids)
    return list(encoding.attention_mask if name == "attention_mask" else encoding.type_ids)


def normalise_rows(x: FloatArray) -> FloatArray:
    """Each row at length 1, as the graph does it."""
    length = np.maximum(np.sqrt((x * x).sum(axis=1, keepdims=True)), np.float32(1e-12))
    unit: FloatArray = (x / length).astype(np.float32)
    return unit
