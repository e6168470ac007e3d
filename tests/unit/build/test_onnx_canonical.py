"""Graphs of an exporter in one form: by hand, as torch writes them for weights of all sizes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from edgespec.build.graph import Graph, encode
from edgespec.build.onnx_canonical import canonical
from tests.engine.models import onnx_rows

TABLE = np.random.default_rng(0).normal(size=(97, 8)).astype(np.float32)
WEIGHT = np.random.default_rng(1).normal(size=(4, 8)).astype(np.float32)


def exported(names: str, *, output: str = "v9") -> ModelProto:
    """A table; a large weight before a Transpose, and its copy as torch writes small ones; names that a tool counts."""
    g = Graph()
    x = g.op("Gather", f"{names}embedding", g.weight("wrap.table.weight", TABLE), "input_ids")
    turned = g.op("Transpose", f"{names}t", g.weight("wrap.linear.weight", WEIGHT), perm=[1, 0])
    a = g.op("MatMul", f"{names}a", x, turned)
    b = g.op("MatMul", f"{names}b", x, g.weight(f"{names}folded", WEIGHT.T))
    one = numpy_helper.from_array(np.ones(1, np.float32))
    g.nodes.append(helper.make_node("Constant", [], [f"{names}one"], value=one))
    c = g.op("Add", f"{names}c", g.op("Add", f"{names}s", a, b), f"{names}one")
    out = g.op("ReduceMean", output, c, axes=[1], keepdims=0)
    g.weight(f"{names}unused", TABLE)
    model = g.model(["input_ids", "attention_mask"], out, 4)
    model.graph.node[0].doc_string = names
    return model


def test_the_same_bytes_whatever_was_counted() -> None:
    first, second = (
        encode(canonical(exported(n, output=o), "wrap.", "embedding")) for n, o in (("v", "v9"), ("w", "x"))
    )
    assert first == second
    assert b"doc" not in first


def test_the_graph_computes_what_it_did() -> None:
    ids = [[3], [5, 6, 7]]
    before = onnx_rows(exported("v"), ids)
    model = canonical(exported("v"), "wrap.", "embedding")
    onnx.checker.check_model(model, full_check=True)
    assert all(np.array_equal(a, b) for a, b in zip(onnx_rows(model, ids), before, strict=True))


def test_weights_are_constants_of_their_products_and_written_once() -> None:
    graph = canonical(exported("v"), "wrap.", "embedding").graph
    assert [n.op_type for n in graph.node] == ["Gather", "MatMul", "MatMul", "Add", "Add", "ReduceMean"]
    assert graph.node[1].input[1] == graph.node[2].input[1]
    assert [(t.name, list(t.dims)) for t in graph.initializer] == [
        ("table.weight", [97, 8]), ("constant.1", [8, 4]), ("constant.2", [1]),
    ]  # fmt: skip
    assert [d.dim_param for i in graph.input for d in i.type.tensor_type.shape.dim] == ["batch", "sequence"] * 2


def test_inner_graphs_are_refused() -> None:
    model = exported("v")
    branch = helper.make_graph([], "empty", [], [helper.make_tensor_value_info("va", TensorProto.FLOAT, None)])
    node = helper.make_node("If", ["vone"], ["vif"], then_branch=branch, else_branch=branch)
    model.graph.node.append(node)
    with pytest.raises(ValueError, match="inner graphs"):
        canonical(model, "wrap.", "embedding")
