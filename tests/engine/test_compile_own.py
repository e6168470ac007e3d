"""The project's own exporter, compiled: float programs answer as onnxruntime does, int8 ones no worse than its int8."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from edgespec.build.graph import encode, join_head
from edgespec.build.quantization import to_int8
from edgespec.engine.compile import compile_graph
from edgespec.engine.format import Attention, DType, Embed, LayerNorm, Layout, Linear, PoolTokens
from tests.engine.models import check_float, cosine, edge_rows, error, onnx_rows, own_model, program_of, texts
from tests.engine.wasm import Wasm

KINDS = ("bert", "distilbert", "roberta", "xlm-roberta")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_embeddings(tmp_path: Path, kind: str, pooling: str) -> None:
    compiled = check_float(own_model(tmp_path, kind, pooling=pooling), bound=2e-6)
    assert program_of(compiled).max_position == (62 if "roberta" in kind else 64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("act", ["gelu", "gelu_new", "relu"])
def test_classifiers_and_activations(tmp_path: Path, kind: str, act: str) -> None:
    field = "activation" if kind == "distilbert" else "hidden_act"
    check_float(own_model(tmp_path, kind, labels=["a", "b", "c"], **{field: act}), bound=2e-6)


def test_a_head_on_the_normalised_embedding(tmp_path: Path) -> None:
    model = own_model(tmp_path, "bert")
    kernel = np.random.default_rng(1).normal(size=(32, 3)).astype(np.float32)
    compiled = check_float(join_head(model, kernel, np.zeros(3, np.float32)), bound=2e-6)
    names = [type(op).__name__ for op in program_of(compiled).ops]
    assert names[-3:] == ["PoolTokens", "L2Norm", "Linear"]


def test_a_bert_layer_is_six_operations(tmp_path: Path) -> None:
    """One product for q, k and v; biases, GELU and residuals inside products; positions and types inside the lookup."""
    program = program_of(compile_graph(own_model(tmp_path, "bert"), quantization="none"))
    layer = [Linear, Attention, Linear, LayerNorm, Linear, Linear, LayerNorm]
    assert [type(op) for op in program.ops] == [Embed, LayerNorm, *layer, *layer, PoolTokens]
    qkv = program.ops[2]
    assert isinstance(qkv, Linear)
    assert program.registers[qkv.out].width == 3 * 32


def test_the_first_token_is_taken_before_the_last_layer_s_products(tmp_path: Path) -> None:
    program = program_of(compile_graph(own_model(tmp_path, "bert", pooling="cls"), quantization="none"))
    names = [type(op).__name__ for op in program.ops]
    assert names.index("PoolTokens") < len(names) - 6


def test_bytes_are_the_same_every_time(tmp_path: Path) -> None:
    raw = encode(own_model(tmp_path, "bert"))
    for quantization in ("none", "fp16", "int8", "int4"):
        first, second = (program_of(compile_graph(raw, quantization=quantization)).encode() for _ in range(2))
        assert first == second


def test_types_of_weights(tmp_path: Path) -> None:
    model = own_model(tmp_path, "bert", labels=["a", "b", "c"])
    kinds = {"none": DType.F32, "fp16": DType.F16, "int8": DType.I8, "int4": DType.I4}
    for quantization, dtype in kinds.items():
        program = program_of(compile_graph(model, quantization=quantization))
        linears = [program.tensors[op.weight] for op in program.ops if isinstance(op, Linear)]
        assert [t.dtype for t in linears[:-2]] == [dtype] * (len(linears) - 2)
        assert [t.dtype for t in linears[-2:]] == [DType.F32, DType.F32], "heads are not quantised"
        table = program.tensors[next(op.table for op in program.ops if isinstance(op, Embed))]
        assert table.layout == Layout.ROWS
        assert table.dtype == (DType.I8 if quantization == "int4" else dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_int8_is_no_worse_than_onnxruntime_s(tmp_path: Path, kind: str) -> None:
    model = own_model(tmp_path, kind)
    ids = texts(*range(3, 35))
    exact = onnx_rows(model, ids)
    theirs = cosine(onnx_rows(to_int8(model), ids), exact)
    program = program_of(compile_graph(model, quantization="int8"))
    for arithmetic in (1, 3):
        assert cosine(edge_rows(program, ids, arithmetic), exact) >= min(theirs, 0.999)
    assert cosine(edge_rows(program, ids, 0), exact) >= 0.995


def test_int8_agrees_with_float_on_labels(tmp_path: Path) -> None:
    model = own_model(tmp_path, "bert", labels=["a", "b", "c"])
    ids = texts(*range(3, 67 - 3))
    exact = np.argmax(onnx_rows(model, ids), axis=1)
    theirs = np.mean(np.argmax(onnx_rows(to_int8(model), ids), axis=1) == exact)
    ours = edge_rows(program_of(compile_graph(model, quantization="int8")), ids)
    assert np.mean(np.argmax(ours, axis=1) == exact) >= theirs


def test_onnxruntime_s_int8_keeps_its_integers(tmp_path: Path) -> None:
    quantised = to_int8(own_model(tmp_path, "bert"))
    compiled = compile_graph(quantised, quantization="int8")
    counts = Counter((t.dtype, t.layout) for t in program_of(compiled).tensors)
    assert counts[DType.I8, Layout.PANELS] == 8
    ids = texts()
    assert cosine(edge_rows(program_of(compiled), ids), onnx_rows(quantised, ids)) > 0.999


@pytest.mark.parametrize("kind", KINDS)
def test_in_the_engine(tmp_path: Path, engine: Wasm, kind: str) -> None:
    model = own_model(tmp_path, kind)
    ids = texts(1, 7, 12, 30)
    program = program_of(compile_graph(model, quantization="none"))
    assert error(list(engine.run(program, ids).values), onnx_rows(model, ids)) < 1e-5
    small = program_of(compile_graph(model, quantization="int8"))
    answer = engine.run(small, ids)
    # a number halfway between two steps of an activation may be rounded either way
    assert error(list(answer.values), edge_rows(small, ids, answer.raw["kind"])) < 5e-3
