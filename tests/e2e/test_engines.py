"""Both engines pass the same tasks, and `auto` says which it takes and why."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgespec.diagnostics import EdgespecError
from edgespec.render.plan import render
from edgespec.render.text import plain
from tests.e2e.conftest import TinyProject

TASKS: dict[str, dict[str, Any]] = {
    "text-classification": {},
    "keyword-extraction": {
        "task": {"type": "keyword-extraction", "max_tokens": 32},
        "model": {"source": "./models/tiny"},
    },
    "embedding": {"task": {"type": "embedding", "max_tokens": 32}, "model": {"source": "./models/tiny"}},
}
TEXTS = ("where is my parcel", "refund my money please", "退款 快递 123", "the cat and the dog, good music!")


def engine_of(project: TinyProject) -> str:
    return next(str(r.outputs["engine"]) for k, r in project.state().records.items() if k.address.type == "model")


@pytest.mark.parametrize("task", TASKS)
def test_an_answer_does_not_depend_on_the_engine(project: TinyProject, task: str) -> None:
    answers = {}
    for engine in ("edge", "onnxruntime"):
        project.write_spec(quantization={"method": "none"}, worker={"engine": engine}, **TASKS[task])
        project.apply_well()
        assert engine_of(project) == engine
        answers[engine] = project.infer("tiny", *TEXTS)
    for ours, theirs in zip(answers["edge"], answers["onnxruntime"], strict=True):
        assert ours["tokens"] == theirs["tokens"]
        if task == "text-classification":
            assert ours["label"] == theirs["label"]
            assert ours["scores"] == pytest.approx(theirs["scores"], abs=1e-4)
        elif task == "embedding":
            np.testing.assert_allclose(ours["embedding"], theirs["embedding"], atol=1e-4)
        else:
            assert [k["text"] for k in ours["keywords"]] == [k["text"] for k in theirs["keywords"]]


@pytest.mark.parametrize("method", ["fp16", "int4"])
def test_small_weights_serve(project: TinyProject, method: str) -> None:
    project.write_spec(quantization={"method": method})
    project.apply_well()
    assert project.infer("tiny", "where is my parcel")[0]["label"] == "delivery"


def write_uncovered_graph(project: TinyProject) -> None:
    """An embedding by a convolution over the ids: onnxruntime runs it, the edge engine has nothing for it."""
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "sequence"])
    out = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", 4])
    kernel = helper.make_tensor("kernel", TensorProto.FLOAT, [4, 1, 1], np.array([0.1, -0.2, 0.3, 0.4]).tolist())
    axes = [helper.make_tensor(n, TensorProto.INT64, [1], [v]) for n, v in (("one", 1), ("two", 2))]
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["floats", "one"], ["channel"]),
        helper.make_node("Conv", ["channel", "kernel"], ["features"], name="the_convolution"),
        helper.make_node("ReduceMean", ["features"], ["embedding"], axes=[2], keepdims=0),
    ]
    graph = helper.make_graph(nodes, "g", [ids], [out], [kernel, *axes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    folder = project.root / "models" / "tiny"
    onnx.save(model, folder / "model.onnx")


def test_a_graph_that_is_not_covered_goes_to_onnxruntime(project: TinyProject) -> None:
    write_uncovered_graph(project)
    fields: dict[str, Any] = {
        "task": {"type": "embedding", "max_tokens": 32},
        "model": {"source": "./models/tiny/model.onnx"},
    }
    project.write_spec(quantization={"method": "none"}, **fields)
    shown = plain(render(project.plan().plan, project.name, "local"))
    assert "onnxruntime: the engine edge does not cover Conv 'the_convolution'" in shown
    project.apply_well()
    assert engine_of(project) == "onnxruntime"
    assert len(project.infer("tiny", "hello")[0]["embedding"]) == 4
    project.write_spec(quantization={"method": "none"}, worker={"engine": "edge"}, **fields)
    with pytest.raises(EdgespecError, match=r"specs/tiny\.yaml:\d+:\d+.*ES540.*Conv 'the_convolution'"):
        project.plan()
