"""Dynamic int8: matrices by onnxruntime's own quantiser, one scale a column; embedding tables as int8 rows.

onnxruntime would quantise a table with one scale for all of it, and nearest neighbours get lost by that (measured by
bench/quantization.py); one scale a row costs 4 bytes a row and keeps them. A row is gathered as int8, cast and
multiplied by its gathered scale, which any onnxruntime runs and no optimiser can fold back to float32.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgespec.build.graph import initializers

if TYPE_CHECKING:
    from onnx import ModelProto

TABLE_MIN: Final = 64 * 1024
"""Bytes: smaller tables stay as they are."""
_QUANTISED: Final = frozenset(
    {"DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "MatMulNBits", "QLinearMatMul"}
)


def is_quantised(model: ModelProto) -> bool:
    return any(node.op_type in _QUANTISED for node in model.graph.node)


def to_int8(model: ModelProto) -> ModelProto:
    """A new model; Gemm (classifiers) and attention products stay float32. Equal models give equal results."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    copy = type(model)()
    copy.CopyFrom(model)
    quantise_tables(copy)
    note = copy.metadata_props.add()  # tells the quantiser that there is nothing to prepare; it warns otherwise
    note.key, note.value = "onnx.quant.pre_process", "onnxruntime.quant"
    with tempfile.TemporaryDirectory(prefix="edgespec-quantize-") as folder:
        out = Path(folder) / "model.onnx"
        kinds = ["MatMul"]
        quantize_dynamic(copy, out, op_types_to_quantize=kinds, per_channel=True, weight_type=QuantType.QInt8)
        return onnx.load(out)


def quantise_tables(model: ModelProto) -> None:
    """Replaces, in place, each large float table that is only gathered by rows with int8 rows and their scales."""
    graph = model.graph
    tables = initializers(graph)
    uses: dict[str, int] = {}
    for node in graph.node:
        for name in node.input:
            uses[name] = uses.get(name, 0) + 1
    nodes = []
    for node in graph.node:
        table = tables.get(node.input[0]) if node.op_type == "Gather" else None
        if table is None or uses[table.name] > 1 or not _is_large_matrix(table) or _axis(node) != 0:
            nodes.append(node)
            continue
        nodes += _gather_rows(graph, node, table)
    del graph.node[:]
    graph.node.extend(nodes)


def _is_large_matrix(table: TensorProto) -> bool:
    return table.data_type == TensorProto.FLOAT and len(table.dims) == 2 and 4 * int(np.prod(table.dims)) >= TABLE_MIN


def _axis(node: onnx.NodeProto) -> int:
    return next((int(a.i) for a in node.attribute if a.name == "axis"), 0)


def _gather_rows(graph: onnx.GraphProto, node: onnx.NodeProto, table: TensorProto) -> list[onnx.NodeProto]:
    values = numpy_helper.to_array(table)
    peak = np.abs(values).max(axis=1, keepdims=True)
    scale = np.where(peak > 0, peak / np.float32(127), np.float32(1)).astype(np.float32)
    rows = np.clip(np.rint(values / scale), -127, 127).astype(np.int8)
    name, ids, out = table.name, node.input[1], node.output[0]
    table.CopyFrom(numpy_helper.from_array(rows, f"{name}.int8"))
    graph.initializer.append(numpy_helper.from_array(scale, f"{name}.scale"))
    return [
        helper.make_node("Gather", [f"{name}.int8", ids], [f"{out}.int8"], name=f"{out}.int8"),
        helper.make_node("Cast", [f"{out}.int8"], [f"{out}.wide"], name=f"{out}.wide", to=TensorProto.FLOAT),
        helper.make_node("Gather", [f"{name}.scale", ids], [f"{out}.scale"], name=f"{out}.scale"),
        helper.make_node("Mul", [f"{out}.wide", f"{out}.scale"], [out], name=f"{out}.rows"),
    ]
