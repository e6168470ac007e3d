"""Somebody else's ONNX graph, made to fit: known inputs, one output `embedding` or `logits`, nothing superfluous."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgespec.build.embed import TextEncoder, read_tokenizer
from edgespec.build.graph import INPUT_NAMES, IR_VERSION, MAX_OPSET, Graph, opset, pool
from edgespec.build.problems import fail
from edgespec.engine.patterns.graph import reads

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, ValueInfoProto

MIN_OPSET: Final = 8
POOLED: Final = ("embedding", "sentence_embedding", "sentence_embeddings", "embeddings")
HIDDEN: Final = ("last_hidden_state", "token_embeddings")
EXPORT_ADVICE: Final = "Export it with opset_version=17, external_data=False and dynamic batch and sequence axes."


def read_graph(raw: bytes, source: str) -> ModelProto:
    """The model with its inputs checked and in order. Raises EdgespecError (ES514)."""
    try:
        model = onnx.load_from_string(raw)
    except Exception as why:  # noqa: BLE001 - protobuf's DecodeError, which onnx does not export
        raise fail("ES514", f"{source} is no ONNX file: {why}.") from None
    graph = model.graph
    if not graph.node:
        raise fail("ES514", f"{source} is no ONNX file, or an empty one.")
    if any(t.data_location == TensorProto.EXTERNAL for t in graph.initializer):
        raise fail("ES514", f"{source} keeps its weights in another file. {EXPORT_ADVICE}")
    if not MIN_OPSET <= opset(model) <= MAX_OPSET:
        bounds = f"the engine in the Worker is sure of {MIN_OPSET} to {MAX_OPSET}"
        raise fail("ES514", f"{source} is written in opset {opset(model)}; {bounds}. {EXPORT_ADVICE}")
    constants = {t.name for t in graph.initializer}
    inputs = {i.name: i for i in graph.input if i.name not in constants}
    _check_inputs(inputs.values(), source)
    del graph.input[:]
    graph.input.extend(inputs[name] for name in INPUT_NAMES if name in inputs)
    model.ir_version = IR_VERSION
    return model


def _check_inputs(inputs: Iterable[ValueInfoProto], source: str) -> None:
    names = [i.name for i in inputs]
    if strange := [n for n in names if n not in INPUT_NAMES]:
        allowed = ", ".join(INPUT_NAMES)
        if "offsets" in strange:
            detail = f"{source} wants a flat list of ids with offsets, as earlier releases of model2vec exported it."
            raise fail(
                "ES514", f"{detail} Write `source: ./DIR`, the model2vec folder with model.safetensors, instead."
            )
        raise fail("ES514", f"{source} wants {', '.join(strange)}; a text encoder's inputs are {allowed}.")
    if "input_ids" not in names:
        raise fail("ES514", f"{source} has no input named input_ids; it has {', '.join(names) or 'none'}.")
    for each in inputs:
        tensor = each.type.tensor_type
        if tensor.elem_type != TensorProto.INT64:
            kind = TensorProto.DataType.Name(tensor.elem_type).lower()
            raise fail("ES514", f"{source}: the input {each.name} is {kind}; it must be int64. {EXPORT_ADVICE}")
        dims = tensor.shape.dim
        if len(dims) != 2 or dims[1].HasField("dim_value"):
            detail = f"{source}: the input {each.name} must be [batch, sequence] with a sequence of any length."
            raise fail("ES514", f"{detail} {EXPORT_ADVICE}")


def to_embedding(model: ModelProto, pooling: str, source: str) -> ModelProto:
    """Output `embedding`: the graph's own, or its last hidden state, pooled."""
    outputs = [o.name for o in model.graph.output]
    ranks = {o.name: len(o.type.tensor_type.shape.dim) for o in model.graph.output}
    only = outputs[0] if len(outputs) == 1 and outputs[0] != "logits" else None
    pooled = _first(POOLED, outputs) or (only if only and ranks[only] == 2 else None)
    if pooled:
        return _finish(model, pooled, "embedding")
    hidden = _first(HIDDEN, outputs) or (only if only and ranks[only] == 3 else None)
    if hidden is None:
        wanted = " or ".join((*HIDDEN[:1], *POOLED[:2]))
        raise fail("ES514", f"{source} gives {', '.join(outputs)}; an embedding needs the output {wanted}.")
    if all(i.name != "attention_mask" for i in model.graph.input):
        mask = helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", "sequence"])
        model.graph.input.insert(1, mask)
    tail = Graph()
    result = pool(tail, hidden, "attention_mask", pooling)
    _append(model.graph, tail)
    return _finish(model, result, "embedding")


def to_logits(model: ModelProto, order: Sequence[int]) -> ModelProto:
    """Output `logits`, its columns in `order`. The graph has an output that `logits_of` found."""
    name = logits_of(model)
    if name is None:
        raise ValueError("the graph has no logits")
    if list(order) != list(range(len(order))):
        tail = Graph()
        columns = tail.weight("edgespec.order", np.array(order, np.int64))
        name = tail.op("Gather", "edgespec.ordered", name, columns, axis=1)
        _append(model.graph, tail)
    return _finish(model, name, "logits")


def logits_of(model: ModelProto) -> str | None:
    """The name of a classifier's output."""
    outputs = [o.name for o in model.graph.output]
    if "logits" in outputs:
        return "logits"
    only = model.graph.output[0]
    rank = len(only.type.tensor_type.shape.dim)
    return only.name if len(outputs) == 1 and rank == 2 and only.name not in POOLED else None


def label_names(config: bytes | None) -> tuple[str, ...] | None:
    """id2label of a config.json beside the graph, when there is one."""
    try:
        table = json.loads(config).get("id2label") if config else None
        return tuple(str(table[k]) for k in sorted(table, key=int)) if table else None
    except (ValueError, AttributeError, TypeError):
        return None


def count_columns(model: ModelProto, tokenizer: bytes, source: str) -> int:
    """Runs the model once: it must give one vector a text, of finite numbers."""
    out = TextEncoder(model.SerializeToString(), read_tokenizer(tokenizer, 16)).run("edgespec")
    if out.ndim != 1 or not np.isfinite(out).all():
        raise fail("ES514", f"{source} does not give one vector of finite numbers for a text.")
    return int(out.shape[0])


def set_columns(model: ModelProto, columns: int) -> None:
    name = model.graph.output[0].name
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", columns]))


def _first(names: Sequence[str], among: Sequence[str]) -> str | None:
    return next((n for n in names if n in among), None)


def _append(graph: GraphProto, tail: Graph) -> None:
    graph.node.extend(tail.nodes)
    graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in tail.weights.items())


def _finish(model: ModelProto, result: str, name: str) -> ModelProto:
    graph = model.graph
    if result != name:
        _rename(graph, name, f"edgespec.inner.{name}")
        graph.node.append(helper.make_node("Identity", [result], [name], name=name))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    _prune(graph, name)
    return model


def _rename(graph: GraphProto, old: str, new: str) -> None:
    """Gives a value, and a node of its name, another one, in inner graphs too."""
    for node in graph.node:
        node.name = new if node.name == old else node.name
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                if name == old:
                    names[i] = new
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                _rename(inner, old, new)
    for each in (*graph.initializer, *graph.output):
        if each.name == old:
            each.name = new


def _prune(graph: GraphProto, wanted: str) -> None:
    """Drops what the output does not depend on, other outputs' weights above all."""
    needed, kept = {wanted}, []
    for node in reversed(graph.node):
        if needed.isdisjoint(node.output):
            continue
        kept.append(node)
        needed.update(reads(node))
    del graph.node[:]
    graph.node.extend(reversed(kept))
    tensors = [t for t in graph.initializer if t.name in needed]
    del graph.initializer[:]
    graph.initializer.extend(tensors)
