"""Models to compile: the project's own exporter, graphs written by hand; and onnxruntime's answers to compare with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

from edgespec.build.onnx_bert import export_classifier, export_embedding, read_config
from edgespec.build.weights import Tensors
from edgespec.engine import reference
from edgespec.engine.compile import Compiled, compile_graph
from edgespec.engine.format import Program
from tests.tiny import write_tiny_bert

Floats = NDArray[np.float32]
VOCABULARY = 97
MICROSOFT = ("MatMulNBits", "GatherBlockQuantized", "Attention", "SkipLayerNormalization")
LENGTHS = (1, 2, 3, 7, 12, 20, 41)


def texts(*lengths: int, seed: int = 0, vocabulary: int = VOCABULARY) -> list[list[int]]:
    """Token ids of ragged texts, none of which is one of the first four, special ones."""
    rng = np.random.default_rng(seed)
    return [[int(i) for i in rng.integers(4, vocabulary, n)] for n in lengths or LENGTHS]


def own_model(
    folder: Path, kind: str, *, pooling: str = "mean", labels: Sequence[str] | None = None, **config: Any
) -> ModelProto:
    """A tiny model of the project's own exporter: an embedding, or with labels a classifier."""
    write_tiny_bert(folder, kind, labels=labels, **config)
    read = read_config(json.loads((folder / "config.json").read_text()), "config.json")
    tensors = Tensors((folder / "model.safetensors").read_bytes())
    if labels is not None:
        return export_classifier(read, tensors, [*range(1, len(labels)), 0], "model")
    return export_embedding(read, tensors, pooling, "model")


def onnx_rows(model: ModelProto | bytes, ids: Sequence[Sequence[int]]) -> list[Floats]:
    """onnxruntime's answer to each text by itself: [columns], or [tokens, columns] of a token classifier."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    raw = model if isinstance(model, bytes) else model.SerializeToString()
    session = onnxruntime.InferenceSession(raw, options)
    found = []
    for text in ids:
        row = np.array([text], np.int64)
        feed = {"input_ids": row, "attention_mask": np.ones_like(row), "token_type_ids": np.zeros_like(row)}
        found.append(session.run(None, {i.name: feed[i.name] for i in session.get_inputs()})[0][0])
    return found


def program_of(compiled: Compiled) -> Program:
    assert compiled.program is not None, "; ".join(map(str, compiled.uncovered))
    return compiled.program


def edge_rows(program: Program, ids: Sequence[Sequence[int]], kind: int = 1) -> list[Floats]:
    """The reference's answer to the texts as one batch, through the file's bytes."""
    rows = reference.run(program.encode(), ids, kind)
    if len(rows) == len(ids):
        return list(rows)
    return np.split(rows, np.cumsum([len(text) for text in ids])[:-1])


def error(got: Sequence[Floats], wanted: Sequence[Floats]) -> float:
    """The largest difference, relative to the largest number (or 1)."""
    scale = max(1.0, *(float(np.abs(w).max()) for w in wanted))
    return max(float(np.abs(g - w).max()) for g, w in zip(got, wanted, strict=True)) / scale


def cosine(got: Sequence[Floats], wanted: Sequence[Floats]) -> float:
    """Mean over the texts."""
    pairs = [(g.ravel(), w.ravel()) for g, w in zip(got, wanted, strict=True)]
    return float(np.mean([(g @ w) / (np.linalg.norm(g) * np.linalg.norm(w)) for g, w in pairs]))


def check_float(model: ModelProto | bytes, *, bound: float = 1e-5, output: str | None = None) -> Compiled:
    """Compiles without quantisation; the reference must answer as onnxruntime does."""
    compiled = compile_graph(model, quantization="none", output=output)
    ids = texts()
    assert error(edge_rows(program_of(compiled), ids), onnx_rows(model, ids)) <= bound
    return compiled


class Hand:
    """A graph written by hand: `h.op("Add", x, h.const(...))`."""

    def __init__(self, *inputs: str) -> None:
        self.inputs = inputs or ("input_ids", "attention_mask")
        self.nodes: list[Any] = []
        self.tensors: list[Any] = []

    def const(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.ops(kind, 1, *inputs, **attributes)[0]

    def ops(self, kind: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        name = f"n{len(self.nodes)}"
        domain = "com.microsoft" if kind in MICROSOFT else ""
        outputs = [f"{name}.{i}" for i in range(count)]
        self.nodes.append(helper.make_node(kind, inputs, outputs, name=name, domain=domain, **attributes))
        return outputs

    def model(self, output: str, *, opset: int = 17) -> ModelProto:
        ids = [helper.make_tensor_value_info(n, TensorProto.INT64, ["b", "s"]) for n in self.inputs]
        out = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "hand", ids, [out], self.tensors)
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def rows(self, width: int = 16, *, seed: int = 0) -> str:
        """[1, tokens, width]: a table looked up by the token ids."""
        table = np.random.default_rng(seed).normal(size=(VOCABULARY, width))
        return self.op("Gather", self.const(table), "input_ids")

    def linear(self, x: str, fan_in: int, fan_out: int, *, seed: int = 1) -> str:
        weight = np.random.default_rng(seed).normal(size=(fan_in, fan_out)) / np.sqrt(fan_in)
        return self.op("MatMul", x, self.const(weight))

    def mean(self, x: str) -> str:
        return self.op("ReduceMean", x, axes=[1], keepdims=0)
