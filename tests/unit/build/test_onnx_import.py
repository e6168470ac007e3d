from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgespec.build.graph import Graph, encode
from edgespec.build.onnx_bert import Encoder, read_config
from edgespec.build.pipeline import Pipeline
from edgespec.build.weights import Tensors
from edgespec.diagnostics import Diagnostic
from edgespec.spec.models import EdgeModel
from tests.tiny import WIDTH, tiny_config, write_tiny_bert
from tests.unit.build.test_pipeline import EMBEDDING, content, encoder

Spec = Callable[..., EdgeModel]
Refused = Callable[[str, Callable[[], object]], Diagnostic]
ONNX: dict[str, Any] = {**EMBEDDING, "model": {"source": "./onnx/model.onnx"}, "quantization": {"method": "none"}}
CLASSES = {"type": "text-classification", "labels": ["refund", "delivery", "other"], "max_tokens": 16}
TEXT = "where is my parcel"


@pytest.fixture
def folder(project: Path) -> Path:
    """onnx/ with a tokenizer and no graph yet."""
    folder = write_tiny_bert(project / "onnx")
    for name in ("config.json", "model.safetensors"):
        (folder / name).unlink()
    return folder


def hidden_model(project: Path) -> onnx.ModelProto:
    """As other exporters write it: the last hidden state, and a pooler that nobody needs."""
    tensors = Tensors((project / "models" / "tiny" / "model.safetensors").read_bytes())
    writer = Encoder(read_config(tiny_config(), "c"), tensors, "w")
    graph = writer.graph
    last = graph.op("Identity", "last_hidden_state", writer.hidden())
    graph.op("MatMul", "pooler_output", last, graph.weight("pooler.weight", np.ones((WIDTH, 77))))
    model = graph.model(("token_type_ids", "input_ids", "attention_mask"), last, WIDTH)
    del model.graph.output[:]
    for name, shape in {"last_hidden_state": ["b", "s", WIDTH], "pooler_output": ["b", "s", 77]}.items():
        model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    model.ir_version, model.producer_name = 10, "somebody"
    return model


def classifier_model(columns: int = 3, name: str = "logits") -> onnx.ModelProto:
    g = Graph()
    rows = g.op("Gather", "rows", g.weight("table", np.random.default_rng(0).normal(size=(300, columns))), "input_ids")
    g.op("ReduceMax", name, rows, axes=[1], keepdims=0)
    return g.model(("input_ids",), name, columns)


def test_the_last_hidden_state_is_pooled(pipeline: Pipeline, spec: Spec, project: Path, folder: Path) -> None:
    onnx.save(hidden_model(project), folder / "model.onnx")
    manifest = pipeline.build(spec(**ONNX))
    assert manifest.model.inputs == ("input_ids", "attention_mask", "token_type_ids")
    assert manifest.model.dimensions == WIDTH
    own = pipeline.build(spec(**EMBEDDING, quantization={"method": "none"}))
    np.testing.assert_allclose(encoder(pipeline, manifest).run(TEXT), encoder(pipeline, own).run(TEXT), atol=1e-6)
    model = onnx.load_from_string(content(pipeline, manifest, "model.onnx"))
    assert [o.name for o in model.graph.output] == ["embedding"]
    assert "pooler.weight" not in {t.name for t in model.graph.initializer}
    assert (model.ir_version, model.producer_name) == (8, "")
    assert pipeline.build(spec(**{**ONNX, "quantization": {"method": "int8"}})).size < manifest.size


def test_the_older_opset_of_published_exports(pipeline: Pipeline, spec: Spec, folder: Path) -> None:
    """sentence-transformers/* on the hub carry opset 11 graphs."""
    table = numpy_helper.from_array(np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32), "table")
    ids = [helper.make_tensor_value_info(n, TensorProto.INT64, ["b", "s"]) for n in ("input_ids", "attention_mask")]
    out = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["b", "s", 8])
    node = helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])
    graph = helper.make_graph([node], "g", ids, [out], [table])
    graph.input.append(helper.make_tensor_value_info("table", TensorProto.FLOAT, [300, 8]))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=6)
    onnx.save(model, folder / "model.onnx")
    assert pipeline.build(spec(**ONNX)).model.inputs == ("input_ids", "attention_mask")
    with_head = {"source": "./onnx/model.onnx", "pipeline": [{"head": {"train": "data/train.jsonl"}}]}
    assert pipeline.build(spec(**{**ONNX, "model": with_head, "task": CLASSES})).model.output == "logits"


def test_an_embedding_output_is_taken_as_it_is(pipeline: Pipeline, spec: Spec, folder: Path) -> None:
    onnx.save(classifier_model(5, "sentence_embedding"), folder / "model.onnx")
    manifest = pipeline.build(spec(**ONNX))
    assert (manifest.model.output, manifest.model.dimensions, manifest.model.inputs) == ("embedding", 5, ("input_ids",))


@pytest.mark.parametrize("labels", [None, ["other", "refund", "delivery"]])
def test_logits_are_used_and_ordered_by_name(
    pipeline: Pipeline, spec: Spec, folder: Path, labels: list[str] | None
) -> None:
    onnx.save(classifier_model(), folder / "model.onnx")
    plain = encoder(pipeline, pipeline.build(spec(**{**ONNX, "task": CLASSES}))).run(TEXT)
    if labels:
        config = onnx_config(labels)
        (folder / "config.json").write_text(config)
    mapped = encoder(pipeline, pipeline.build(spec(**{**ONNX, "task": CLASSES}))).run(TEXT)
    np.testing.assert_array_equal(mapped, plain[[1, 2, 0]] if labels else plain)


def onnx_config(labels: list[str]) -> str:
    import json

    return json.dumps({"id2label": {str(i): label for i, label in enumerate(labels)}})


def test_logits_of_other_labels(pipeline: Pipeline, spec: Spec, folder: Path, refused: Refused) -> None:
    onnx.save(classifier_model(4), folder / "model.onnx")
    fields = {**ONNX, "task": CLASSES}
    assert "4 outputs" in refused("ES512", lambda: pipeline.build(spec(**fields))).detail
    (folder / "config.json").write_text(onnx_config(["a", "b", "c", "d"]))
    assert "[a, b, c, d]" in refused("ES512", lambda: pipeline.build(spec(**fields))).detail


def test_a_classification_of_an_encoder(pipeline: Pipeline, spec: Spec, folder: Path, refused: Refused) -> None:
    onnx.save(classifier_model(5, "sentence_embedding"), folder / "model.onnx")
    refused("ES513", lambda: pipeline.build(spec(**{**ONNX, "task": CLASSES})))


def test_an_embedding_of_a_classifier(pipeline: Pipeline, spec: Spec, folder: Path, refused: Refused) -> None:
    onnx.save(classifier_model(), folder / "model.onnx")
    assert "last_hidden_state" in refused("ES514", lambda: pipeline.build(spec(**ONNX))).detail


def test_a_quantised_graph_stays_as_it_is(pipeline: Pipeline, spec: Spec, project: Path, folder: Path) -> None:
    from edgespec.build.quantization import to_int8

    onnx.save(to_int8(hidden_model(project)), folder / "model.onnx")
    kept = pipeline.build(spec(**ONNX))
    int8 = pipeline.build(spec(**{**ONNX, "quantization": {"method": "int8"}}))
    assert int8.files["model.onnx"] == kept.files["model.onnx"]


def broken(change: Callable[[onnx.ModelProto], object]) -> bytes:
    model = classifier_model(5, "embedding")
    change(model)
    return encode(model)


def rename_input(model: onnx.ModelProto) -> None:
    model.graph.input[0].name = "tokens"


def int32_input(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT32


def fixed_length(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 128


def external(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].data_location = TensorProto.EXTERNAL


def new_opset(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 23


def unknown_node(model: onnx.ModelProto) -> None:
    model.graph.node[0].op_type = "NoSuchOperator"


@pytest.mark.parametrize(
    ("raw", "code", "says"),
    [
        (b"", "ES514", "no ONNX file"),
        (b"this is not protobuf", "ES514", "no ONNX file"),
        (broken(rename_input), "ES514", "tokens"),
        (broken(int32_input), "ES514", "int32"),
        (broken(fixed_length), "ES514", "any length"),
        (broken(external), "ES514", "another file"),
        (broken(new_opset), "ES514", "opset 23"),
        (broken(unknown_node), "ES533", "NoSuchOperator"),
    ],
)
def test_graphs_that_cannot_be_used(
    pipeline: Pipeline, spec: Spec, folder: Path, refused: Refused, raw: bytes, code: str, says: str
) -> None:
    (folder / "model.onnx").write_bytes(raw)
    d = refused(code, lambda: pipeline.build(spec(**ONNX)))
    assert says in d.detail
