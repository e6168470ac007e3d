"""Graphs with something changed: the compiler either refuses them or computes what onnxruntime computes."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, numpy_helper

from edgespec.engine.compile import compile_graph
from tests.engine.models import edge_rows, error, onnx_rows, own_model, texts

BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min")
UNARY = ("Tanh", "Erf", "Sqrt", "Relu", "Sigmoid", "Neg", "Abs", "Exp", "Identity", "Sin")
IDS = texts(1, 3, 9, 24)


def mutate(model: ModelProto, rng: random.Random) -> str:
    """Changes one thing; says what, or nothing when the thing cannot be changed."""
    node: NodeProto = rng.choice(model.graph.node)
    if rng.random() < 0.25:
        tensor = rng.choice([t for t in model.graph.initializer if numpy_helper.to_array(t).size <= 64])
        value = numpy_helper.to_array(tensor)
        changed = (value * rng.choice([2, -1, 3]) + rng.choice([0, 1])).astype(value.dtype)
        tensor.CopyFrom(numpy_helper.from_array(changed, tensor.name))
        return f"{tensor.name} = {changed.ravel()[:4]}"
    if node.op_type in BINARY and rng.random() < 0.3:
        node.input[0], node.input[1] = node.input[1], node.input[0]
        return f"{node.name} swapped"
    for group in (BINARY, UNARY):
        if node.op_type in group:
            node.op_type = rng.choice(group)
            return f"{node.name} = {node.op_type}"
    for attribute in node.attribute:
        if attribute.name == "perm":
            order = list(attribute.ints)
            rng.shuffle(order)
            del attribute.ints[:]
            attribute.ints.extend(order)
            return f"{node.name} perm {order}"
        if attribute.name == "axis" and node.op_type != "LayerNormalization":
            attribute.i = rng.choice([0, 1, 2, -1])
            return f"{node.name} axis {attribute.i}"
    return ""


@pytest.mark.parametrize("kind", ["bert", "roberta"])
@pytest.mark.parametrize("classifier", [False, True])
def test_refused_or_equal(tmp_path: Path, kind: str, classifier: bool) -> None:
    onnxruntime.set_default_logger_severity(4)
    base = own_model(tmp_path, kind, labels=["a", "b", "c"] if classifier else None, hidden_act="gelu_new")
    rng = random.Random(f"{kind} {classifier}")
    compared = 0
    for _ in range(30):
        model = type(base)()
        model.CopyFrom(base)
        what = mutate(model, rng)
        compiled = compile_graph(model, quantization="none")
        if compiled.program is None:
            assert compiled.uncovered, what
            continue
        try:
            wanted = onnx_rows(model, IDS)
        except (onnxruntime.capi.onnxruntime_pybind11_state.Fail, RuntimeError):
            continue  # onnxruntime refuses what the compiler need not notice
        if all(np.isfinite(w).all() for w in wanted):
            compared += bool(what)
            assert error(edge_rows(compiled.program, IDS), wanted) < 1e-4, what
    assert compared > 3
