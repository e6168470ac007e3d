"""Packed integers: read as the tools wrote them, and found again, one by one, in the ONNX graph and in model.edge."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

from edgespec.build.graph import Graph
from edgespec.build.onnx_bert import export_classifier, read_config
from edgespec.build.packed import Checkpoint, Packed, PackedError
from edgespec.build.packed_graph import block_of, product, replace_floats, uncovered, without_eight_bits
from edgespec.engine import format as fmt
from edgespec.engine import pack
from edgespec.engine.compile import compile_graph
from tests.engine.models import Hand, edge_rows, error, onnx_rows, program_of
from tests.unit.build.packing import Rounded, awq, bnb, gptq, linear_names, raw, rounded, words, write_packed_bert

Array = NDArray[Any]


def normal(rows: int, columns: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(0, 0.1, (rows, columns)).astype(np.float32)


SYMMETRIC = {bits: rounded(normal(32, 32), 32, bits=bits, symmetric=True) for bits in (4, 8)}
"""Tells the format of small matrices beside it, which have too few weights to tell it."""


def of_gptq(wanted: Rounded, *, first: bool = True) -> Packed:
    beside = gptq("beside", SYMMETRIC[wanted.bits], first=first)
    return Checkpoint(raw(gptq("x", wanted, first=first) | beside)).packed["x"]


def only(tensors: dict[str, Array]) -> Packed:
    (found,) = Checkpoint(raw(tensors)).packed.values()
    return found


def check_equal(found: Packed, wanted: Rounded) -> None:
    middle = (wanted.zeros == 2 ** (wanted.bits - 1)).all()
    assert found.bits == wanted.bits
    assert np.array_equal(found.q, wanted.q)
    assert np.array_equal(found.scales, wanted.scales.astype(np.float32))
    assert (found.zeros is None) == middle
    assert found.zeros is None or np.array_equal(found.zeros, wanted.zeros)
    assert np.array_equal(found.floats(), wanted.floats)


# Reading


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("rows", "columns", "group"), [(48, 64, 32), (24, 96, 32), (16, 128, 128), (7, 13, 5)])
def test_gptq(rows: int, columns: int, group: int, bits: int, symmetric: bool, first: bool) -> None:
    wanted = rounded(normal(rows, columns), group, bits=bits, symmetric=symmetric)
    check_equal(of_gptq(wanted, first=first), wanted)


@given(
    rows=st.integers(1, 40),
    columns=st.integers(8, 80),
    group=st.integers(2, 80),
    bits=st.sampled_from([4, 8]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_gptq_of_any_integers(rows: int, columns: int, group: int, bits: Literal[4, 8], seed: int) -> None:
    """Every integer in every place."""
    rng = np.random.default_rng(seed)
    group = min(group, columns)
    groups = -(-columns // group)
    q = rng.integers(0, 2**bits, (rows, columns)).astype(np.uint8)
    zeros = rng.integers(0, 2**bits, (rows, groups)).astype(np.uint8)
    wanted = Rounded(q, zeros, rng.uniform(0.01, 1, (rows, groups)).astype(np.float16), group, bits)
    if groups * rows >= 8 and len(np.unique(zeros)) == 1:
        return  # looks like a symmetric matrix
    for first in (True, False):
        check_equal(of_gptq(wanted, first=first), wanted)


@pytest.mark.parametrize("first", [True, False])
def test_the_weights_tell_the_format(first: bool) -> None:
    """Without a symmetric matrix: zero points that are one off shift the mean weight by a scale."""
    wanted = rounded(normal(256, 128), 32)
    check_equal(only(gptq("x", wanted, first=first)), wanted)


@given(rows=st.integers(1, 6), groups=st.integers(1, 5), group=st.sampled_from([8, 32]), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_awq_of_any_integers(rows: int, groups: int, group: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    q = rng.integers(0, 16, (8 * rows, groups * group)).astype(np.uint8)
    zeros = rng.integers(0, 16, (8 * rows, groups)).astype(np.uint8)
    wanted = Rounded(q, zeros, rng.uniform(0.01, 1, zeros.shape).astype(np.float16), group, 4)
    check_equal(only(awq("x", wanted)), wanted)


def test_gptq_with_borrows() -> None:
    """Format 1 takes one from a zero point of zero: the whole word is less, not only its nibble."""
    weight = np.abs(normal(16, 64))  # zero points of zero
    wanted = rounded(weight, 32)
    wanted.zeros[::3] = 1
    assert (wanted.zeros == 0).any()
    check_equal(of_gptq(wanted), wanted)


def test_bitsandbytes() -> None:
    tensors, q = bnb("layer.key", normal(24, 32))
    found = only(tensors)
    assert np.array_equal(found.q, q)
    assert found.q.dtype == np.int8
    assert np.allclose(found.floats(), q * (tensors["layer.key.SCB"] / 127)[:, None], rtol=2e-7, atol=0)


def test_a_checkpoint_answers_like_a_float_model() -> None:
    r = rounded(normal(16, 32), 32, symmetric=True)
    tensors, _ = bnb("b", normal(8, 8))
    model = Checkpoint(raw(gptq("a", r) | tensors | {"a.bias": normal(1, 16)[0], "b.position_ids": np.arange(3)}))
    assert model.float_names() == ["a.bias", "a.weight", "b.weight"]
    assert "a.weight" in model
    assert "c.weight" not in model
    assert np.array_equal(model.get("a.weight"), r.floats)
    assert np.array_equal(model.packed["a"].taking([3, 1]).floats(), r.floats[[3, 1]])


BROKEN: dict[str, tuple[Callable[[dict[str, Array]], dict[str, Array]], str]] = {
    "desc_act": (lambda t: t | {"x.g_idx": t["x.g_idx"][::-1].copy()}, "desc_act"),
    "no scales": (lambda t: {k: v for k, v in t.items() if not k.endswith("scales")}, "x.scales"),
    "three bits": (lambda t: t | {"x.qweight": np.zeros((6, 16), np.int32)}, "3 bits"),
    "zeros cut": (lambda t: t | {"x.qzeros": t["x.qzeros"][:1]}, "qzeros is 1x2"),
    "words of 64 bits": (lambda t: t | {"x.qweight": t["x.qweight"].astype(np.int64)}, "int32"),
    "another layout": (lambda t: t | {"x.qweight": np.zeros((16, 9), np.int32)}, "neither GPTQ's"),
    "nf4": (lambda t: t | {"y.quant_state.bitsandbytes__nf4": np.zeros(3, np.uint8)}, "4-bit floats"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_read_is_said(name: str) -> None:
    change, said = BROKEN[name]
    tensors = change(gptq("x", rounded(normal(16, 64), 32, symmetric=True)))
    with pytest.raises(PackedError, match=said):
        Checkpoint(raw(tensors))


def test_a_format_that_cannot_be_told_is_refused() -> None:
    r = rounded(normal(16, 64), 32)
    r.q[:] = np.arange(64) % 2 + 4
    r.zeros[:] = 5
    r.zeros[0] = 4  # mean weight near -0.5 one way and 0.5 the other
    with pytest.raises(PackedError, match="cannot be told"):
        Checkpoint(raw(gptq("x", r)))


# In a graph


def one_product(weight: Packed) -> ModelProto:
    """y = x W^T, x [tokens, K]."""
    graph = Graph()
    y = product(graph, "p", "x", weight)
    return _model(graph, y, weight.columns, weight.rows)


def _model(graph: Graph, out: str, columns: int, rows: int) -> ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["tokens", columns])
    y = helper.make_tensor_value_info(out, TensorProto.FLOAT, ["tokens", rows])
    tensors = [numpy_helper.from_array(v, k) for k, v in graph.weights.items()]
    made = helper.make_graph(graph.nodes, "one", [x], [y], tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(made, opset_imports=opsets, ir_version=8)


def answer(model: ModelProto, x: Array) -> Array:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found: Array = session.run(None, {"x": x})[0]
    return found


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("rows", "columns", "group"), [(24, 96, 32), (5, 128, 128), (9, 96, 96), (8, 40, 40),
                                                        (6, 144, 48), (8, 72, 32)])  # fmt: skip
def test_onnxruntime_multiplies_by_the_integers(
    rows: int, columns: int, group: int, symmetric: bool, bits: Literal[4, 8]
) -> None:
    """Identity in, weights out: to the last bit but that of a float32 sum of zeros."""
    r = rounded(normal(rows, columns), group, bits=bits, symmetric=symmetric)
    model = one_product(of_gptq(r))
    assert np.allclose(answer(model, np.eye(columns, dtype=np.float32)), r.floats.T, rtol=1e-6, atol=1e-7)
    tensors = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    stored = tensors["p.packed"].reshape(rows, -1)
    values = np.stack([stored & 15, stored >> 4], -1).reshape(rows, -1) if bits == 4 else stored
    assert np.array_equal(values[:, :columns], r.q)
    assert (r.zeros == 2 ** (bits - 1)).all() == ("p.zeros" not in tensors)


@pytest.mark.parametrize("columns", [40, 128])
def test_onnxruntime_multiplies_by_int8_rows(columns: int) -> None:
    tensors, q = bnb("x", normal(24, columns))
    packed = only(tensors)
    model = one_product(packed)
    assert np.allclose(answer(model, np.eye(columns, dtype=np.float32)), packed.floats().T, rtol=1e-6)
    (stored,) = [numpy_helper.to_array(t) for t in model.graph.initializer if t.name == "p.packed"]
    assert np.array_equal(stored.reshape(24, -1)[:, :columns].astype(np.int16) - 128, q)


@pytest.mark.parametrize(("columns", "group"), [(128, 32), (72, 32), (40, 40)])
@pytest.mark.parametrize("symmetric", [True, False])
def test_eight_bits_for_an_older_onnxruntime(columns: int, group: int, symmetric: bool) -> None:
    """Without MatMulNBits of 8 bits, which the Worker's onnxruntime lacks: the same integers, the same answers."""
    r = rounded(normal(24, columns), group, bits=8, symmetric=symmetric)
    model = one_product(of_gptq(r))
    older = without_eight_bits(model)
    assert {n.op_type for n in model.graph.node} == {"MatMulNBits"}, "the graph that came in is left as it was"
    assert {n.domain for n in older.graph.node} == {""}
    assert np.allclose(answer(older, np.eye(columns, dtype=np.float32)), r.floats.T, rtol=1e-6, atol=1e-7)
    (stored,) = [numpy_helper.to_array(t) for t in older.graph.initializer if t.name == "p.packed"]
    assert np.array_equal(stored.reshape(-1, 24)[:columns].T, r.q)


def test_a_group_that_no_block_divides_is_refused() -> None:
    with pytest.raises(PackedError, match="groups of 5"):
        one_product(of_gptq(rounded(normal(7, 13), 5)))


def test_integers_replace_the_floats_that_stand_for_them() -> None:
    """In a MatMul used twice, a Gemm with a bias; a product that only looks alike stays."""
    first, second = (of_gptq(rounded(normal(16, 16, seed), 16)) for seed in (1, 2))
    bias = normal(1, 16, 3)[0]
    g = Graph()
    kernel = g.weight("kernel", first.floats().T)
    x = g.op("MatMul", "b", g.op("MatMul", "a", "x", kernel), kernel)
    y = g.op("Gemm", "c", x, g.weight("turned", second.floats()), g.weight("bias", bias), transB=1)
    near = first.floats().T * np.float32(1.0001)
    model = _model(g, g.op("MatMul", "d", y, g.weight("near", near)), 16, 16)
    x_in = normal(4, 16, 5)
    before = answer(model, x_in)
    assert replace_floats(
        model, {"first": first, "second": second, "unused": of_gptq(rounded(normal(16, 16, 9), 16))}
    ) == {
        "first",
        "second",
    }
    assert [n.op_type for n in model.graph.node] == ["MatMulNBits"] * 3 + ["Add", "MatMul"]
    assert {t.name for t in model.graph.initializer} == {
        "bias", "near", "packed.0.packed", "packed.0.scales", "packed.0.zeros", "packed.1.packed", "packed.1.scales",
        "packed.1.zeros",
    }  # fmt: skip
    assert np.allclose(answer(model, x_in), before, rtol=1e-5, atol=1e-6)


# In a whole model: the own exporter, the edge program

CASES: list[tuple[str, dict[str, Any]]] = [
    ("gptq", {"group": 32}),
    ("gptq", {"group": 32, "symmetric": False}),
    ("gptq", {"bits": 8, "group": 32}),
    ("gptq", {"bits": 8, "group": 128}),
    ("awq", {"group": 32, "symmetric": False}),
    ("bnb", {}),
]


def classifier(folder: Path) -> ModelProto:
    config = read_config(json.loads((folder / "config.json").read_text()), "config.json")
    return export_classifier(config, Checkpoint((folder / "model.safetensors").read_bytes()), [0, 1], "model")


def integers_of(program: fmt.Program) -> list[Array]:
    """[N, K] of each product, less 8 or 0; products of slices of one source side by side again."""
    found: list[Array] = []
    part_of: dict[int, int] = {}
    for op in program.ops:
        if not isinstance(op, fmt.Linear) or program.tensors[op.weight].dtype not in (fmt.DType.I4, fmt.DType.I8):
            continue
        tensor = program.tensors[op.weight]
        q = pack.linear_bytes(tensor)[0] if tensor.dtype == fmt.DType.I8 else pack.linear_nibbles(tensor)[0]
        if op.offset and op.residual in part_of:
            at = part_of[op.residual]
            found[at] = np.concatenate([found[at], q], axis=1)
        else:
            at = len(found)
            found.append(q)
        part_of[op.out] = at
    return found


@pytest.mark.parametrize(("method", "options"), CASES)
def test_a_quantised_classifier(tmp_path: Path, method: str, options: dict[str, Any]) -> None:
    wanted = write_packed_bert(tmp_path, method, **options)
    model = classifier(tmp_path)
    program = program_of(compile_graph(model, quantization="none"))
    less = 128 if options.get("bits") == 8 else 0  # bnb's are int8 already
    layers = []
    for i in range(0, len(wanted), 6):
        q, k, v, *rest = [wanted[n].astype(np.int16) - less for n in linear_names()[i : i + 6]]
        layers += [np.concatenate([q, k, v]), *rest]
    found = integers_of(program)
    assert len(found) == len(layers)
    assert all(np.array_equal(f, w) for f, w in zip(found, layers, strict=True))
    ids = [[2, 7, 9, 30, 3], [2, 3], [2, *range(5, 40), 3]]
    exact = _in_floats(program)
    assert error(edge_rows(exact, ids), onnx_rows(model, ids)) < 2e-6


def _in_floats(program: fmt.Program) -> fmt.Program:
    """The same numbers as float32: takes the rounding of activations out of the comparison with onnxruntime."""

    def floats(tensor: fmt.Tensor) -> fmt.Tensor:
        if tensor.layout != fmt.Layout.PANELS or tensor.dtype not in (fmt.DType.I8, fmt.DType.I4):
            return tensor
        if tensor.dtype == fmt.DType.I8:
            q, scales = pack.linear_bytes(tensor)
            return pack.linear_f32(q * scales[:, None])
        nibbles, scales, zeros = pack.linear_nibbles(tensor)
        wide = [np.repeat(a, tensor.group, axis=1)[:, : tensor.columns] for a in (scales, zeros) if a is not None]
        zero = wide[1].astype(np.float32) if zeros is not None else np.float32(8)
        return pack.linear_f32((nibbles.astype(np.float32) - zero) * wide[0].astype(np.float32))

    tensors = tuple(floats(t) for t in program.tensors)
    return fmt.Program(tensors, program.registers, program.ops, program.output, program.max_position)


@pytest.mark.parametrize(("columns", "group", "block"), [(384, 128, 128), (384, 96, 32), (64, 16, 16), (48, 48, 64),
                                                         (384, 384, 128), (40, 40, 64), (32, 32, 32)])  # fmt: skip
def test_blocks_fill_a_row_with_the_least_at_its_end(columns: int, group: int, block: int) -> None:
    assert block_of(of_gptq(rounded(normal(8, columns), group))) == block


@pytest.mark.parametrize(("bits", "group", "symmetric"), [(4, 16, True), (4, 32, False), (8, 16, True), (8, 32, True),
                                                          (8, 32, False)])  # fmt: skip
def test_what_the_engine_cannot_hold_is_known_from_the_weights(bits: int, group: int, symmetric: bool) -> None:
    """What a plan says before anything is exported, and what the compiler says of the graph."""
    weight = of_gptq(rounded(normal(16, 64), group, bits=bits, symmetric=symmetric))
    h = Hand("input_ids")
    graph = Graph()
    out = product(graph, "p", h.rows(64), weight)
    h.nodes += graph.nodes
    h.tensors += [numpy_helper.from_array(v, k) for k, v in graph.weights.items()]
    compiled = compile_graph(h.model(h.mean(h.op("Tanh", out))), quantization="none")
    assert (uncovered(weight) is None) == (compiled.program is not None) == (group == 32 and (bits == 4 or symmetric))


def test_scales_of_half_floats_stay_half_floats(tmp_path: Path) -> None:
    write_packed_bert(tmp_path, "gptq")
    program = program_of(compile_graph(classifier(tmp_path), quantization="int8"))
    packed = [t for t in program.tensors if t.dtype == fmt.DType.I4]
    assert packed
    assert all(pack.linear_nibbles(t)[1].dtype == np.float16 for t in packed)


def test_eight_bits_with_other_zero_points_are_for_onnxruntime(tmp_path: Path) -> None:
    write_packed_bert(tmp_path, "gptq", bits=8, symmetric=False)
    model = classifier(tmp_path)
    assert np.isfinite(onnx_rows(model, [[2, 7, 3]])[0]).all()
    compiled = compile_graph(model, quantization="int8")
    assert compiled.program is None
    assert "8-bit zero points are not in the middle" in compiled.uncovered[0].why


def test_words_of_the_facts() -> None:
    """Nibble i of a word is row 8 r + i; symmetric zero points are 0x77777777 in format 1."""
    values = np.arange(16, dtype=np.uint8).reshape(16, 1)
    assert [hex(int(w)) for w in words(values, 4).view(np.uint32)[:, 0]] == ["0x76543210", "0xfedcba98"]
    tensors = gptq("x", rounded(normal(8, 32), 32, symmetric=True))
    assert set(tensors["x.qzeros"].view(np.uint32).ravel().tolist()) == {0x77777777}
