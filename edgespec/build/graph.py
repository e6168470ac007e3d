"""Writing ONNX graphs: a builder with names that depend on nothing but the code, and a canonical form of bytes.

The graphs are for onnxruntime-web 1.18: opset 17 (LayerNormalization is in it), IR version 8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

OPSET: Final = 17
IR_VERSION: Final = 8
MAX_OPSET: Final = 18
"""Highest opset of a graph that somebody else wrote."""
INPUT_NAMES: Final = ("input_ids", "attention_mask", "token_type_ids")
PROTOBUF_LIMIT: Final = 2**31 - 1

Array = npt.NDArray[Any]


class Graph:
    """Nodes in the order in which they are written; a node, its output and its name are one string."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, Array] = {}

    def op(self, op_type: str, name: str, *inputs: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], name=name, **attributes))
        return name

    def weight(self, name: str, value: Array) -> str:
        """An initialiser; float weights become float32. Equal names must mean equal values."""
        kind = np.float32 if value.dtype.kind == "f" else value.dtype
        self.weights[name] = np.asarray(value, dtype=kind, order="C")
        return name

    def number(self, value: float) -> str:
        return self.weight(f"const.{value:g}", np.array(value, dtype=np.float32))

    def ints(self, *values: int) -> str:
        return self.weight("ints." + ".".join(map(str, values)), np.array(values, dtype=np.int64))

    def linear(self, name: str, x: str, kernel: Array, bias: Array | None) -> str:
        """`x @ kernel + bias`; `kernel` is [in, out], as the quantiser wants it."""
        y = self.op("MatMul", f"{name}.matmul", x, self.weight(f"{name}.kernel", kernel))
        return y if bias is None else self.op("Add", f"{name}.add", y, self.weight(f"{name}.bias", bias))

    def model(self, inputs: Sequence[str], output: str, columns: int) -> ModelProto:
        """The finished model: int64 [batch, sequence] inputs, one float32 [batch, columns] output."""
        ids = [helper.make_tensor_value_info(n, TensorProto.INT64, ["batch", "sequence"]) for n in inputs]
        out = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", columns])
        tensors = [numpy_helper.from_array(v, k) for k, v in self.weights.items()]
        graph = helper.make_graph(self.nodes, "edgespec", ids, [out], tensors)
        others = sorted({node.domain for node in self.nodes} - {""})
        opsets = [helper.make_opsetid("", OPSET), *(helper.make_opsetid(domain, 1) for domain in others)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def encode(model: ModelProto) -> bytes:
    """The model's bytes, without anything that tells who wrote it and how: producer, comments, metadata, value_info."""
    model.producer_name = model.producer_version = model.domain = model.doc_string = ""
    model.model_version = 0
    del model.metadata_props[:]
    graph = model.graph
    graph.name, graph.doc_string = "edgespec", ""
    del graph.metadata_props[:], graph.value_info[:]
    for node in graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    opsets = sorted((o.domain, o.version) for o in model.opset_import)
    del model.opset_import[:]
    model.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in opsets)
    return bytes(model.SerializeToString(deterministic=True))


def initializers(graph: GraphProto) -> Mapping[str, TensorProto]:
    return {t.name: t for t in graph.initializer}


def columns(model: ModelProto) -> int:
    """Columns of the model's one output."""
    return int(model.graph.output[0].type.tensor_type.shape.dim[1].dim_value)


def pool(graph: Graph, hidden: str, mask: str, mode: str) -> str:
    """[batch, sequence, hidden] to [batch, hidden]: the mean over the attention mask, or the first token.

    Written with nodes that no opset since 8 has changed, so that it can be added to any graph.
    """
    if mode == "cls":
        return graph.op("Gather", "pooling.first", hidden, graph.weight("const.first", np.array(0)), axis=1)
    seen = graph.op("Cast", "pooling.mask", mask, to=TensorProto.FLOAT)
    row = graph.op("Reshape", "pooling.row", seen, graph.ints(0, 1, -1))
    column = graph.op("Reshape", "pooling.column", seen, graph.ints(0, -1, 1))
    total = graph.op("MatMul", "pooling.total", row, hidden)
    count = graph.op("Max", "pooling.count", graph.op("MatMul", "pooling.seen", row, column), graph.number(1e-9))
    mean = graph.op("Div", "pooling.mean", total, count)
    return graph.op("Reshape", "pooling.flat", mean, graph.ints(0, -1))


def join_head(model: ModelProto, kernel: Array, bias: Array) -> ModelProto:
    """The encoder with a classifier on its L2-normalised embedding; the output becomes `logits`.

    The classifier's weights come last in the file: models that differ only in their heads share all other chunks.
    """
    joined = type(model)()
    joined.CopyFrom(model)
    graph = joined.graph
    (out,) = graph.output
    unit = helper.make_node("LpNormalization", [out.name], ["head.unit"], name="head.unit", axis=-1, p=2)
    gemm = helper.make_node("Gemm", ["head.unit", "head.kernel", "head.bias"], ["logits"], name="logits")
    graph.node.extend([unit, gemm])
    for name, value in {"head.kernel": kernel, "head.bias": bias}.items():
        graph.initializer.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", bias.shape[0]]))
    return joined


def opset(model: ModelProto) -> int:
    return next(int(o.version) for o in model.opset_import if o.domain in ("", "ai.onnx"))
