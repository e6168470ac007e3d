"""Models that came quantised, through the whole build: for the engine edge and for onnxruntime."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import onnx
import pytest
from onnx import numpy_helper
from safetensors.numpy import load_file, save_file

from edgespec.build.embed import TextEncoder, read_tokenizer
from edgespec.build.graph import initializers
from edgespec.build.pipeline import Pipeline
from edgespec.diagnostics import Diagnostic
from edgespec.engine import format as fmt
from edgespec.spec.models import EdgeModel
from tests.engine.models import cosine, edge_rows
from tests.tiny import tiny_tokenizer
from tests.unit.build.packing import write_packed_bert
from tests.unit.build.test_pipeline import content

Spec = Callable[..., EdgeModel]
Refused = Callable[[str, Callable[[], object]], Diagnostic]
LABELS = ["yes", "no"]
TASK = {"type": "text-classification", "labels": LABELS, "max_tokens": 32}
TEXT = "where is my parcel"


def classifier(spec: Spec, engine: str, **more: Any) -> EdgeModel:
    fields = {"task": TASK, "model": {"source": "./models/packed"}, "worker": {"engine": engine}, **more}
    return spec(**fields)


@pytest.mark.parametrize(
    ("method", "options"),
    [("gptq", {}), ("gptq", {"symmetric": False}), ("gptq", {"bits": 8}), ("awq", {"symmetric": False}), ("bnb", {})],
)
def test_both_engines(pipeline: Pipeline, spec: Spec, method: str, options: dict[str, Any]) -> None:
    integers = write_packed_bert(pipeline.root / "models" / "packed", method, **options)
    manifest = pipeline.build(classifier(spec, "auto"))
    program = content(pipeline, manifest, "model.edge")
    tensors = [t for t in fmt.decode(program).tensors if t.layout == fmt.Layout.PANELS]
    kinds = {fmt.DType.I4} if "bits" not in options and method != "bnb" else {fmt.DType.I8}
    assert {t.dtype for t in tensors} == kinds | {fmt.DType.F32}, "the layers and the classifier"

    older = pipeline.build(classifier(spec, "onnxruntime"))
    model = onnx.load_from_string(content(pipeline, older, "model.onnx"))
    eight = "bits" in options or method == "bnb"
    assert any(n.op_type == "MatMulNBits" for n in model.graph.node) == (not eight)
    stored = sum(numpy_helper.to_array(t).size for t in initializers(model.graph).values() if t.data_type == 2)
    zeros = 0 if options.get("symmetric", True) else 1
    assert stored >= sum(q.size for q in integers.values()) // (1 if eight else 2) + zeros

    tokenizer = tiny_tokenizer()
    row = TextEncoder(model.SerializeToString(), read_tokenizer(tokenizer.to_str().encode(), 32)).run(TEXT)
    (edge,) = edge_rows(fmt.decode(program), [tokenizer.encode(TEXT).ids])
    assert cosine([edge], [row]) > 0.999


def test_tables_become_int8_rows_beside_packed_matrices(pipeline: Pipeline, spec: Spec) -> None:
    write_packed_bert(pipeline.root / "models" / "packed", "gptq")
    plain = pipeline.build(classifier(spec, "edge", quantization={"method": "none"}))
    small = pipeline.build(classifier(spec, "edge"))
    tables = [
        next(t for t in fmt.decode(content(pipeline, m, "model.edge")).tensors if t.layout == fmt.Layout.ROWS)
        for m in (plain, small)
    ]
    assert [t.dtype for t in tables] == [fmt.DType.F32, fmt.DType.I8]


def test_what_the_engine_cannot_hold_goes_to_onnxruntime(pipeline: Pipeline, spec: Spec, refused: Refused) -> None:
    write_packed_bert(pipeline.root / "models" / "packed", "gptq", bits=8, symmetric=False)
    facts = pipeline.facts(classifier(spec, "auto"))
    assert facts.inputs["engine"] == "onnxruntime"
    diagnostic = refused("ES540", lambda: pipeline.facts(classifier(spec, "edge")))
    assert "8-bit zero points are not in the middle" in str(diagnostic.detail)
    manifest = pipeline.build(classifier(spec, "auto"))
    assert "model.onnx" in manifest.files


def test_packed_weights_that_cannot_be_read(pipeline: Pipeline, spec: Spec, refused: Refused) -> None:
    folder = pipeline.root / "models" / "packed"
    write_packed_bert(folder, "gptq")
    tensors = load_file(folder / "model.safetensors")
    name = "bert.encoder.layer.1.output.dense.g_idx"
    save_file({**tensors, name: tensors[name][::-1].copy()}, folder / "model.safetensors")
    diagnostic = refused("ES577", lambda: pipeline.build(classifier(spec, "onnxruntime")))
    assert "desc_act" in str(diagnostic.detail)


def test_other_families_are_listed(pipeline: Pipeline, spec: Spec, refused: Refused) -> None:
    config = pipeline.root / "models" / "tiny" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "model_type": "mamba"}))
    diagnostic = refused("ES510", lambda: pipeline.facts(spec()))
    listed = "albert, bert, distilbert, model2vec, modernbert, qwen2, qwen3, roberta, xlm-roberta"
    assert listed in str(diagnostic.detail)
