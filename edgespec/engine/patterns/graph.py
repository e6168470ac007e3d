"""An ONNX graph as plain steps: functions inlined, attributes decoded, constants apart, only what the output needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Array = npt.NDArray[Any]
MICROSOFT = "com.microsoft"
_STANDARD = ("", "ai.onnx")


class BrokenModelError(ValueError):
    """The bytes are no ONNX model that stands on its own."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One node. `op` carries the domain when it is not ONNX's own: `com.microsoft.MatMulNBits`."""

    index: int
    name: str
    op: str
    inputs: tuple[str, ...]
    """Empty strings stand for inputs left out."""
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"{self.op} {self.name!r}"

    def input(self, at: int) -> str:
        return self.inputs[at] if at < len(self.inputs) else ""


@dataclass(frozen=True, slots=True)
class Graph:
    steps: tuple[Step, ...]
    """In an order in which they can run."""
    constants: Mapping[str, Array]
    inputs: Mapping[str, int]
    """Name to rank."""
    output: str
    outputs: tuple[str, ...]
    makers: Mapping[str, Step]
    half: bool = False
    """Whether some constants were float16: numbers of formulas are then near what was meant, and no more."""


def load(model: ModelProto | bytes, output: str | None = None) -> Graph:
    """Raises BrokenModelError. `output` names the wanted output; the first one without it."""
    proto = _parse(model)
    if any(t.data_location == TensorProto.EXTERNAL for t in proto.graph.initializer):
        raise BrokenModelError("the weights are in another file; export with external_data=False")
    if proto.functions:
        from onnx import inliner

        proto = inliner.inline_local_functions(proto)
    graph = proto.graph
    constants = {t.name: to_array(t) for t in graph.initializer}
    inputs = {i.name: len(i.type.tensor_type.shape.dim) for i in graph.input if i.name not in constants}
    names = tuple(o.name for o in graph.output)
    wanted = output or (names[0] if names else "")
    if wanted not in names:
        raise BrokenModelError(f"there is no output {wanted!r}; there are {', '.join(names) or 'none'}")
    nodes = _needed(graph.node, wanted)
    steps = tuple(_step(i, node) for i, node in enumerate(nodes))
    makers = {name: step for step in steps for name in step.outputs if name}
    tensors = [*graph.initializer, *(a.t for node in nodes for a in node.attribute if a.HasField("t"))]
    half = any(t.data_type in (TensorProto.FLOAT16, TensorProto.BFLOAT16) for t in tensors)
    return Graph(steps, constants, inputs, wanted, names, makers, half)


def _parse(model: ModelProto | bytes) -> ModelProto:
    if not isinstance(model, bytes):
        return model
    try:
        return onnx.load_from_string(model)
    except Exception as why:  # noqa: BLE001 - protobuf's DecodeError, which onnx does not export
        raise BrokenModelError(f"no ONNX file: {why}") from None


def _needed(nodes: Sequence[NodeProto], output: str) -> list[NodeProto]:
    wanted, kept = {output}, []
    for node in reversed(nodes):
        if wanted.isdisjoint(node.output):
            continue
        kept.append(node)
        wanted.update(reads(node))
    return kept[::-1]


def reads(node: NodeProto) -> set[str]:
    """What a node reads, the outer values of its inner graphs included."""
    names = set(node.input)
    for attribute in node.attribute:
        for inner in (attribute.g, *attribute.graphs):
            for each in inner.node:
                names |= reads(each)
            names.update(o.name for o in inner.output)
    return names


def _step(index: int, node: NodeProto) -> Step:
    op = node.op_type if node.domain in _STANDARD else f"{node.domain}.{node.op_type}"
    attributes = {a.name: _attribute(a) for a in node.attribute}
    name = node.name or (node.output[0] if node.output else "")
    return Step(index, name, op, tuple(node.input), tuple(node.output), attributes)


def _attribute(attribute: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, TensorProto):
        return to_array(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value


def to_array(tensor: TensorProto) -> Array:
    """Half floats become float32: the engine computes in float32 whatever the graph says."""
    value: Array = numpy_helper.to_array(tensor)
    if value.dtype == np.float16 or value.dtype.name == "bfloat16":
        return np.asarray(value.astype(np.float32))
    return value
