"""Packed matrices in ONNX graphs: the tool's integers as onnxruntime and the edge compiler take them.

Each is a com.microsoft.MatMulNBits of 4 or 8 bits, without the activations' rounding (accuracy_level 0). int8 rows are
8 bits with 128 as their zero, in blocks of equal scale. Nothing is rounded: integers, scales and zero points are
rearranged only.

Not DequantizeLinear and MatMul: newer onnxruntimes fuse the two and round activations to 8 bits, older ones do not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper, numpy_helper

from edgespec.build.graph import Graph, initializers
from edgespec.build.packed import Packed, PackedError
from edgespec.engine.pack import GROUPS

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

Array = npt.NDArray[Any]
MICROSOFT: Final = "com.microsoft"
BLOCKS: Final = (128, 64, 32, 16)
"""Sizes that MatMulNBits knows; the first that divides a group is taken."""


def product(graph: Graph, name: str, x: str, weight: Packed, weights: str | None = None) -> str:
    """x [..., K] times the matrix, [..., N]. `name` is a prefix of the nodes, `weights` (the same) of the tensors."""
    kept = weights or name
    block = block_of(weight)
    scale, zeros = _by_block(weight.scales, weight, block), weight.zeros
    inputs = [x, graph.weight(f"{kept}.packed", _blocks(weight, block))]
    inputs.append(graph.weight(f"{kept}.scales", np.ascontiguousarray(scale).reshape(-1)))
    if zeros is not None:
        points = _by_block(zeros, weight, block)
        flat = (_nibbles(points) if weight.bits == 4 else np.ascontiguousarray(points)).reshape(-1)
        inputs.append(graph.weight(f"{kept}.zeros", flat))
    sizes = {"K": weight.columns, "N": weight.rows, "bits": weight.bits, "block_size": block}
    return graph.op("MatMulNBits", f"{name}.matmul", *inputs, domain=MICROSOFT, **sizes)


def block_of(weight: Packed) -> int:
    """The block of a node: a group, or a part of one, each with the scale of the whole. Raises PackedError."""
    if not weight.group:  # one scale a row: any block will do, the best fills the row with the least at its end
        return min(GROUPS, key=lambda b: (-weight.columns % b, -b))
    found = next((b for b in BLOCKS if weight.group % b == 0), None)
    if found is None:
        raise PackedError(f"groups of {weight.group}: blocks are of {', '.join(map(str, BLOCKS[::-1]))}")
    return found


def uncovered(weight: Packed) -> str | None:
    """Why the engine edge cannot hold the matrix as it is; None where it can. It says what the compiler would."""
    if block_of(weight) not in GROUPS:
        return f"{weight.bits} bits in groups of {weight.group}: the engine has groups of {', '.join(map(str, GROUPS))}"
    if weight.bits == 8 and weight.zeros is not None:
        less = (
            weight.q.astype(np.int16)
            - np.repeat(weight.zeros, weight.group or weight.columns, axis=1)[:, : weight.columns]
        )
        if less.min() < -128 or less.max() > 127:
            return "8-bit zero points are not in the middle: less them, the weights do not fit the engine's int8"
    return None


def _by_block(groups: Array, weight: Packed, block: int) -> Array:
    """[N, groups] as [N, blocks]."""
    count = -(-weight.columns // block)
    per_group = weight.group // block if weight.group else count
    return np.asarray(np.repeat(groups, per_group, axis=1)[:, :count])


def _blocks(weight: Packed, block: int) -> Array:
    """uint8 [N, blocks, bytes of a block]; of two columns the even one is in the low nibble."""
    count = -(-weight.columns // block)
    q = weight.q if weight.q.dtype == np.uint8 else (weight.q.astype(np.int16) + 128).astype(np.uint8)
    wide = np.pad(q, ((0, 0), (0, count * block - weight.columns)))
    packed = _nibbles(wide) if weight.bits == 4 else wide
    return packed.reshape(weight.rows, count, -1)


def _nibbles(values: Array) -> Array:
    even = np.pad(values, ((0, 0), (0, values.shape[1] % 2)))
    return np.asarray(even[:, 0::2] | even[:, 1::2] << 4, np.uint8)


# Integers in the place of floats that stand for them


def replace_floats(model: ModelProto, packed: Mapping[str, Packed]) -> set[str]:
    """Puts packed matrices, in place, where products have their `floats()` as a constant [K, N] (or Gemm's [N, K]).

    Returns the names of those that were found. A matrix that several products share is written once.
    """
    graph = model.graph
    wanted = {_digest(p.floats().T): name for name, p in packed.items()}
    found = {kernel: wanted[d] for kernel, values in _kernels(graph) if (d := _digest(values)) in wanted}
    tail, nodes = Graph(), []
    places: dict[str, int] = {}
    for node in graph.node:
        name = found.get(node.input[1]) if _is_product(node) else None
        if name is None:
            nodes.append(node)
            continue
        place = places.setdefault(name, len(places))
        nodes += _packed_product(tail, node, f"packed.{place}.at.{len(nodes)}", f"packed.{place}", packed[name])
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in tail.weights.items())
    drop_unused(graph)
    if any(n.domain == MICROSOFT for n in tail.nodes) and all(o.domain != MICROSOFT for o in model.opset_import):
        model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    return set(places)


def _is_product(node: NodeProto) -> bool:
    """A MatMul, or a Gemm that does nothing else but add a bias."""
    if node.op_type == "Gemm":
        odd = {"alpha": 1.0, "beta": 1.0}
        return all(a.f == odd[a.name] if a.name in odd else a.name == "transB" or not a.i for a in node.attribute)
    return bool(node.op_type == "MatMul" and node.domain == "")


def _kernels(graph: GraphProto) -> Iterator[tuple[str, Array]]:
    """The constants that products multiply by, as [K, N]."""
    tensors = initializers(graph)
    for node in graph.node:
        if not _is_product(node) or (tensor := tensors.get(node.input[1])) is None or len(tensor.dims) != 2:
            continue
        transposed = any(a.name == "transB" and a.i for a in node.attribute)
        values = numpy_helper.to_array(tensor)
        yield tensor.name, values.T if transposed else values


def _digest(values: Array) -> str:
    found = hashlib.sha256(repr(values.shape).encode())
    found.update(np.ascontiguousarray(values, "<f4").tobytes())
    return found.hexdigest()


def _packed_product(tail: Graph, node: NodeProto, name: str, weights: str, packed: Packed) -> list[NodeProto]:
    first = len(tail.nodes)
    out = product(tail, name, node.input[0], packed, weights)
    made = tail.nodes[first:]
    if node.op_type == "Gemm" and len(node.input) > 2:
        return [*made, helper.make_node("Add", [out, node.input[2]], [node.output[0]], name=f"{name}.add")]
    made[-1].output[0] = node.output[0]
    return made


# For an older onnxruntime


def is_packed(model: ModelProto) -> bool:
    """Whether it has matrices as `product` writes them."""
    return any(node.op_type == "MatMulNBits" for node in model.graph.node)


def without_eight_bits(model: ModelProto) -> ModelProto:
    """A copy without MatMulNBits of 8 bits, which onnxruntime has since 1.22 and onnxruntime-web 1.18 has not: the same
    integers as [blocks, columns of a block, N], cast, less their zero points, times their scales. 4 bits stay.
    """
    copy = type(model)()
    copy.CopyFrom(model)
    graph, tail = copy.graph, Graph()
    tensors = {name: numpy_helper.to_array(t) for name, t in initializers(graph).items()}
    nodes: list[NodeProto] = []
    for node in graph.node:
        sizes = {a.name: int(a.i) for a in node.attribute}
        if node.op_type != "MatMulNBits" or sizes.get("bits", 4) != 8:
            nodes.append(node)
            continue
        first = len(tail.nodes)
        _in_floats(tail, node, sizes, tensors)
        nodes += tail.nodes[first:]
    replaced = {t for t in tail.weights if t in tensors}
    kept = [t for t in graph.initializer if t.name not in replaced]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend([*kept, *(numpy_helper.from_array(v, k) for k, v in tail.weights.items())])
    drop_unused(graph)
    used = {n.domain for n in graph.node} | {""}
    opsets = [helper.make_opsetid(o.domain, o.version) for o in copy.opset_import if o.domain in used]
    del copy.opset_import[:]
    copy.opset_import.extend(opsets)
    return copy


def _in_floats(tail: Graph, node: NodeProto, sizes: Mapping[str, int], tensors: Mapping[str, Array]) -> None:
    rows, columns, block = sizes["N"], sizes["K"], sizes["block_size"]
    x, packed, scales, *zeros = node.input
    name = node.output[0]
    count = -(-columns // block)

    def turned(values: Array, width: int) -> Array:
        """[blocks, width, N]."""
        return np.ascontiguousarray(values.reshape(rows, count, width).transpose(1, 2, 0))

    wide = tail.op("Cast", f"{name}.wide", tail.weight(packed, turned(tensors[packed], block)), to=TensorProto.FLOAT)
    if zeros:
        point = tail.weight(zeros[0], turned(tensors[zeros[0]], 1))
        less = tail.op("Sub", f"{name}.less", wide, tail.op("Cast", f"{name}.zero", point, to=TensorProto.FLOAT))
    else:
        less = tail.op("Sub", f"{name}.less", wide, tail.number(128))
    scaled = tail.op("Mul", f"{name}.scaled", less, tail.weight(scales, turned(tensors[scales], 1)))
    kernel = tail.op("Reshape", f"{name}.kernel", scaled, tail.ints(-1, rows))
    if columns % block:
        ends = tail.ints(0), tail.ints(columns), tail.ints(0)
        kernel = tail.op("Slice", f"{name}.cut", kernel, *ends)
    tail.op("MatMul", name, x, kernel)


def drop_unused(graph: GraphProto) -> None:
    """Drops tensors that no node reads."""
    used = {name for node in graph.node for name in node.input}
    tensors = [t for t in graph.initializer if t.name in used]
    del graph.initializer[:]
    graph.initializer.extend(tensors)
