"""One form for a graph that an exporter wrote: the same bytes for the same model, whatever the exporter counted."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from edgespec.build.graph import IR_VERSION, initializers

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

_SIZES: Final = ("batch", "sequence")


def canonical(model: ModelProto, prefix: str, output: str) -> ModelProto:
    """In place: Transposes of weights computed, equal tensors written once and in the order of their use, values and
    nodes named by their place, the one output `output`. Weights keep their names, without `prefix`. Raises ValueError
    for local functions and inner graphs, which no exporter here writes.
    """
    graph = model.graph
    if model.functions or any(a.HasField("g") or a.graphs for node in graph.node for a in node.attribute):
        raise ValueError("the graph has local functions or inner graphs")
    _constants_to_initializers(graph)
    _fold_transposes(graph)
    _share_equal_tensors(graph)
    _rename(graph, prefix, output)
    for value in graph.input:
        for dim, name in zip(value.type.tensor_type.shape.dim, _SIZES, strict=True):
            dim.Clear()
            dim.dim_param = name
    _sized_output(graph)
    model.ir_version = IR_VERSION
    opsets = [o for o in model.opset_import if o.domain in {n.domain for n in graph.node} | {""}]
    kept = [helper.make_opsetid(o.domain, o.version) for o in opsets]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    return model


def _constants_to_initializers(graph: GraphProto) -> None:
    nodes = []
    for node in graph.node:
        value = next((a.t for a in node.attribute if a.name == "value"), None) if node.op_type == "Constant" else None
        if value is None:
            nodes.append(node)
            continue
        tensor = TensorProto()
        tensor.CopyFrom(value)
        tensor.name = node.output[0]
        graph.initializer.append(tensor)
    _set_nodes(graph, nodes)


def _fold_transposes(graph: GraphProto) -> None:
    """torch keeps a large weight as [out, in] before a Transpose; quantisers look for the constant [in, out]."""
    tensors = initializers(graph)
    nodes = []
    for node in graph.node:
        weight = tensors.get(node.input[0]) if node.op_type == "Transpose" else None
        if weight is None:
            nodes.append(node)
            continue
        perm = next((list(a.ints) for a in node.attribute if a.name == "perm"), None)
        turned = np.ascontiguousarray(np.transpose(numpy_helper.to_array(weight), perm))
        graph.initializer.append(numpy_helper.from_array(turned, node.output[0]))
    _set_nodes(graph, nodes)


def _share_equal_tensors(graph: GraphProto) -> None:
    """Layers that share weights are exported with a copy each. Sorted by use; what nothing reads is dropped."""
    tensors, first, same = initializers(graph), dict[str, str](), dict[str, str]()
    kept: list[TensorProto] = []
    for node in graph.node:
        for i, name in enumerate(node.input):
            if name not in tensors:
                continue
            if name not in same:
                same[name] = first.setdefault(_digest(tensors[name]), name)
                if same[name] == name:
                    kept.append(tensors[name])
            node.input[i] = same[name]
    copies = []
    for tensor in kept:
        copy = numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name)
        copies.append(copy)
    del graph.initializer[:]
    graph.initializer.extend(copies)


def _digest(tensor: TensorProto) -> str:
    values = numpy_helper.to_array(tensor)
    found = hashlib.sha256(f"{tensor.data_type} {list(tensor.dims)}".encode())
    found.update(np.ascontiguousarray(values).tobytes())
    return found.hexdigest()


def _rename(graph: GraphProto, prefix: str, output: str) -> None:
    names = {"": "", **{v.name: v.name for v in graph.input}, graph.output[0].name: output}
    graph.output[0].name = output
    for i, tensor in enumerate(graph.initializer):
        names[tensor.name] = tensor.name.removeprefix(prefix) if "." in tensor.name else f"constant.{i}"
        tensor.name = names[tensor.name]
    for i, node in enumerate(graph.node):
        node.name = f"{node.op_type}.{i}"
        for at, name in enumerate(node.input):
            node.input[at] = names[name]
        for at, name in enumerate(node.output):
            names.setdefault(name, node.name if at == 0 else f"{node.name}.{at}")
            node.output[at] = names[name]


def _sized_output(graph: GraphProto) -> None:
    (out,) = graph.output
    columns = int(out.type.tensor_type.shape.dim[-1].dim_value)
    name = out.name
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", columns]))


def _set_nodes(graph: GraphProto, nodes: list[NodeProto]) -> None:
    del graph.node[:]
    graph.node.extend(nodes)
