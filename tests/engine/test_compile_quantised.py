"""Graphs that onnxruntime has quantised: their integers arrive in the program as they are."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from edgespec.engine import format as fmt
from edgespec.engine import pack
from edgespec.engine.compile import compile_graph
from tests.engine.models import (
    VOCABULARY,
    Hand,
    check_float,
    cosine,
    edge_rows,
    error,
    onnx_rows,
    own_model,
    program_of,
    texts,
)
from tests.engine.wasm import Wasm


def quantised(model: ModelProto, folder: Path, **options: Any) -> ModelProto:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    copy = type(model)()
    copy.CopyFrom(model)
    note = copy.metadata_props.add()
    note.key, note.value = "onnx.quant.pre_process", "onnxruntime.quant"
    target = folder / "quantised.onnx"
    quantize_dynamic(copy, target, **{"weight_type": QuantType.QInt8, **options})
    return onnx.load(target)


def linears(program: fmt.Program) -> list[fmt.Tensor]:
    return [program.tensors[op.weight] for op in program.ops if isinstance(op, fmt.Linear)]


def integers(model: ModelProto) -> list[np.ndarray]:
    """[out, in] of every MatMulInteger, in the order of the graph."""
    tensors = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    return [tensors[n.input[1]].T for n in model.graph.node if n.op_type == "MatMulInteger"]


def with_float_weights(program: fmt.Program) -> fmt.Program:
    """The same numbers as float32 matrices: takes the rounding of activations out of a comparison."""

    def floats(tensor: fmt.Tensor) -> fmt.Tensor:
        if tensor.layout != fmt.Layout.PANELS or tensor.dtype not in (fmt.DType.I8, fmt.DType.I4):
            return tensor
        if tensor.dtype == fmt.DType.I8:
            q, scales = pack.linear_bytes(tensor)
            return pack.linear_f32(q * scales[:, None])
        nibbles, scales, zeros = pack.linear_nibbles(tensor)
        each = [np.repeat(a, tensor.group, axis=1)[:, : tensor.columns] for a in (scales, zeros) if a is not None]
        zero = each[1].astype(np.float32) if zeros is not None else np.float32(8)
        return pack.linear_f32((nibbles.astype(np.float32) - zero) * each[0].astype(np.float32))

    tensors = tuple(floats(t) for t in program.tensors)
    return fmt.Program(tensors, program.registers, program.ops, program.output, program.max_position)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_dynamic_int8(tmp_path: Path, kind: str, per_channel: bool) -> None:
    """Matrices and tables, the positions' table too, which quantize_dynamic also stores as bytes."""
    model = quantised(own_model(tmp_path, kind), tmp_path, per_channel=per_channel)
    found = program_of(compile_graph(model, quantization="none"))
    wanted = integers(model)
    got = [pack.linear_bytes(t)[0] for t in linears(found)]
    assert np.array_equal(got[0], np.concatenate(wanted[:3])), "q, k and v are one product"
    assert all(np.array_equal(g, w) for g, w in zip(got[1:4], wanted[3:6], strict=True))
    embed = next(op for op in found.ops if isinstance(op, fmt.Embed))
    assert found.tensors[embed.table].dtype == fmt.DType.I8
    assert embed.positions is not None
    assert found.tensors[embed.positions].dtype == fmt.DType.I8
    ids = texts()
    assert cosine(edge_rows(found, ids), onnx_rows(model, ids)) > 0.999


def test_dynamic_int8_equals_its_weights_exactly(tmp_path: Path) -> None:
    """With the activations' rounding taken out of both, nothing is left: the same graph with MatMul on q * scale."""
    model = quantised(own_model(tmp_path, "bert"), tmp_path, per_channel=True)
    found = program_of(compile_graph(model, quantization="none"))
    exact = with_float_weights(found)
    ids = texts()
    assert error(edge_rows(exact, ids), onnx_rows(_without_activations(model), ids)) < 2e-6


def _without_activations(model: ModelProto) -> ModelProto:
    """DynamicQuantizeLinear, MatMulInteger, Cast, Mul, Mul replaced by a MatMul with dequantised weights."""
    copy = type(model)()
    copy.CopyFrom(model)
    makers = {o: n for n in copy.graph.node for o in n.output}
    tensors = {t.name: numpy_helper.to_array(t) for t in copy.graph.initializer}
    nodes = []
    for node in copy.graph.node:
        cast = next((makers[i] for i in node.input if i in makers and makers[i].op_type == "Cast"), None)
        product = makers.get(cast.input[0]) if cast is not None and node.op_type == "Mul" else None
        if product is None or product.op_type != "MatMulInteger":
            nodes.append(node)
            continue
        scale = next(makers[i] for i in node.input if makers[i].op_type == "Mul")
        scales = next(tensors[i] for i in scale.input if i in tensors)
        zero = tensors[product.input[3]].astype(np.float32)
        weight = (tensors[product.input[1]].astype(np.float32) - zero) * scales
        name = f"{node.name}.weight"
        copy.graph.initializer.append(numpy_helper.from_array(weight.astype(np.float32), name))
        nodes.append(helper.make_node("MatMul", [makers[product.input[0]].input[0], name], list(node.output)))
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


def test_unsigned_weights_stay_exact_as_floats(tmp_path: Path) -> None:
    from onnxruntime.quantization import QuantType

    model = quantised(own_model(tmp_path, "bert"), tmp_path, weight_type=QuantType.QUInt8)
    compiled = compile_graph(model, quantization="int8")
    assert any("zero point" in note for note in compiled.notes)
    ids = texts()
    exact = with_float_weights(program_of(compile_graph(model, quantization="none")))
    assert error(edge_rows(exact, ids), onnx_rows(_without_activations(model), ids)) < 2e-6


def nbits(rng: np.random.Generator, rows: int, columns: int, block: int, *, zeros: bool, half: bool) -> dict[str, Any]:
    groups = -(-columns // block)
    q = rng.integers(0, 16, (rows, groups * block)).astype(np.uint8)
    packed = (q[:, 0::2] | q[:, 1::2] << 4).reshape(rows, groups, block // 2)
    scales = (rng.normal(size=(rows, groups)) * 0.05).astype(np.float16 if half else np.float32)
    points = rng.integers(0, 16, (rows, groups)).astype(np.uint8) if zeros else None
    return {"q": q[:, :columns], "packed": packed, "scales": scales, "zeros": points}


@pytest.mark.parametrize("block", [32, 64, 128])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(("columns", "half"), [(128, False), (96, True)])
def test_four_bits(block: int, zeros: bool, columns: int, half: bool) -> None:
    """MatMulNBits: nibbles, scales and zero points equal; the answer as onnxruntime's. Half scales stay half."""
    parts = nbits(np.random.default_rng(block), 24, columns, block, zeros=zeros, half=half)
    h = Hand("input_ids")
    inputs = [h.rows(columns), h.const(parts["packed"], np.uint8), h.const(parts["scales"].reshape(-1))]
    if zeros:
        points = np.pad(parts["zeros"], ((0, 0), (0, parts["zeros"].shape[1] % 2)))
        inputs.append(h.const((points[:, 0::2] | points[:, 1::2] << 4).reshape(-1), np.uint8))
    out = h.op("MatMulNBits", *inputs, K=columns, N=24, bits=4, block_size=block)
    model = h.model(h.mean(h.op("Tanh", out)))
    found = program_of(compile_graph(model, quantization="int4"))
    (tensor,) = linears(found)
    assert tensor.dtype == fmt.DType.I4
    q, scales, points_ = pack.linear_nibbles(tensor)
    assert np.array_equal(q, parts["q"])
    assert scales.dtype == (np.float16 if half else np.float32)
    assert np.array_equal(scales, parts["scales"])
    assert (points_ is None) == (parts["zeros"] is None)
    assert points_ is None or np.array_equal(points_, parts["zeros"])
    plain = with_float_weights(program_of(compile_graph(model, quantization="none")))
    assert error(edge_rows(plain, texts()), onnx_rows(model, texts())) < 2e-6


def test_four_bits_of_a_whole_model(tmp_path: Path, engine: Wasm) -> None:
    quantizers = pytest.importorskip("onnxruntime.quantization.matmul_nbits_quantizer", exc_type=ImportError)
    quantizer = quantizers.MatMulNBitsQuantizer(own_model(tmp_path, "bert"), block_size=32, is_symmetric=False)
    quantizer.process()
    model = quantizer.model.model
    program = program_of(compile_graph(model, quantization="int4"))
    ids = texts(1, 7, 12, 30)
    assert cosine(list(engine.run(program, ids).values), onnx_rows(model, ids)) > 0.999


def test_other_widths_are_named() -> None:
    for bits, block in ((4, 16), (8, 256), (2, 32)):
        h = Hand("input_ids")
        packed = h.const(np.zeros((8, 256 // block, block * bits // 8)), np.uint8)
        scales = h.const(np.ones(8 * 256 // block))
        out = h.op("MatMulNBits", h.rows(256), packed, scales, K=256, N=8, bits=bits, block_size=block)
        compiled = compile_graph(h.model(h.mean(out)), quantization="int8")
        assert compiled.program is None
        assert f"{bits} bits in blocks of {block}: the engine has 4 and 8 bits" in compiled.uncovered[0].why


def eight_bits(h: Hand, x: str, q: np.ndarray, scales: np.ndarray, *, points: np.ndarray | None = None) -> str:
    """A MatMulNBits of 8 bits in blocks of 32."""
    inputs = [x, h.const(q.reshape(len(q), -1, 32), np.uint8), h.const(scales.reshape(-1))]
    inputs += [] if points is None else [h.const(points.reshape(-1), np.uint8)]
    return h.op("MatMulNBits", *inputs, K=q.shape[1], N=len(q), bits=8, block_size=32)


@pytest.mark.parametrize("after", ["", "Relu", "sum", "Relu sum"])
def test_eight_bits_by_group(engine: Wasm, after: str) -> None:
    """A product for each group, summed up: the engine's int8 has one scale a row. What follows is not lost by it."""
    rng = np.random.default_rng(5)
    q = rng.integers(0, 256, (96, 96)).astype(np.uint8)
    scales = rng.uniform(0.001, 0.002, (96, 3)).astype(np.float32)
    h = Hand("input_ids")
    x = h.op("Tanh", h.rows(96))
    y = h.op("Add", eight_bits(h, x, q, scales), h.const(rng.normal(size=96)))
    y = h.op("Relu", y) if "Relu" in after else y
    y = h.op("Add", y, x) if "sum" in after else y
    model = h.model(h.mean(h.op("Tanh", y)))
    program = program_of(compile_graph(model, quantization="int8"))
    parts = linears(program)
    assert np.array_equal(np.concatenate([pack.linear_bytes(t)[0] for t in parts], axis=1), q.astype(np.int16) - 128)
    assert np.array_equal(np.stack([pack.linear_bytes(t)[1] for t in parts], axis=1), scales)
    plain = with_float_weights(program_of(compile_graph(model, quantization="none")))
    ids = texts(1, 7, 12, 30)
    assert error(edge_rows(plain, ids), onnx_rows(model, ids)) < 2e-6
    assert cosine(list(engine.run(program, ids).values), onnx_rows(model, ids)) > 0.9999


def test_groups_of_one_scale_are_one_product() -> None:
    """Blocks are a form of MatMulNBits; a scale a row is what the engine's int8 has."""
    rng = np.random.default_rng(6)
    q, points = rng.integers(0, 200, (24, 64)).astype(np.uint8), rng.integers(90, 120, (24, 2)).astype(np.uint8)
    h = Hand("input_ids")
    scales = np.repeat(rng.uniform(0.01, 0.02, (24, 1)), 2, axis=1).astype(np.float32)
    model = h.model(h.mean(h.op("Tanh", eight_bits(h, h.rows(64), q, scales, points=points))))
    (tensor,) = linears(program_of(compile_graph(model, quantization="none")))
    found, found_scales = pack.linear_bytes(tensor)
    assert np.array_equal(found, q.astype(np.int16) - np.repeat(points, 32, axis=1))
    assert np.array_equal(found_scales, scales[:, 0])


def test_eight_bits_with_far_zero_points_are_named() -> None:
    q, points = np.full((8, 32), 255, np.uint8), np.zeros((8, 1), np.uint8)
    h = Hand("input_ids")
    out = eight_bits(h, h.rows(32), q, np.ones((8, 1), np.float32), points=points)
    compiled = compile_graph(h.model(h.mean(out)), quantization="int8")
    assert [u.why.partition(":")[0] for u in compiled.uncovered] == ["its 8-bit zero points are not in the middle"]


def test_a_table_of_four_bits() -> None:
    rng = np.random.default_rng(2)
    packed = rng.integers(0, 256, (VOCABULARY, 32)).astype(np.uint8)
    scales = (rng.normal(size=(VOCABULARY, 2)) * 0.1).astype(np.float32)
    h = Hand("input_ids")
    inputs = [h.const(packed, np.uint8), "input_ids", h.const(scales)]
    rows = h.op("GatherBlockQuantized", *inputs, block_size=32, bits=4, gather_axis=0, quantize_axis=1)
    found = program_of(compile_graph(h.model(h.mean(rows)), quantization="none"))
    table = next(found.tensors[op.table] for op in found.ops if isinstance(op, fmt.Embed))
    assert table.dtype == fmt.DType.I4
    q = np.stack([packed & 15, packed >> 4], -1).reshape(VOCABULARY, 64).astype(np.float32)
    assert np.allclose(pack.rows_of(table), (q - 8) * np.repeat(scales, 32, axis=1))


@pytest.mark.parametrize("transposed", [False, True])
def test_dequantised_weights_keep_their_integers(transposed: bool) -> None:
    """DequantizeLinear on a weight, straight or through a Transpose."""
    rng = np.random.default_rng(3)
    q = rng.integers(-127, 128, (24, 16)).astype(np.int8)
    scales = rng.uniform(0.01, 0.02, 24).astype(np.float32)
    h = Hand("input_ids")
    if transposed:
        wide = h.op("DequantizeLinear", h.const(q, np.int8), h.const(scales), axis=0)
        weight = h.op("Transpose", wide, perm=[1, 0])
    else:
        weight = h.op("DequantizeLinear", h.const(q.T, np.int8), h.const(scales), axis=1)
    model = h.model(h.mean(h.op("Relu", h.op("MatMul", h.rows(16), weight))))
    (tensor,) = linears(program_of(compile_graph(model, quantization="none")))
    found, found_scales = pack.linear_bytes(tensor)
    assert np.array_equal(found, q)
    assert np.array_equal(found_scales, scales)


def test_static_quantisation_is_named() -> None:
    h = Hand("input_ids")
    zero = h.const(0, np.int8)
    rows = h.op("QuantizeLinear", h.rows(16), h.const(0.02), zero)
    model = h.model(h.mean(h.op("DequantizeLinear", rows, h.const(0.02), zero)))
    assert TensorProto.INT8 == 3
    compiled = compile_graph(model, quantization="int8")
    assert [u.op for u in compiled.uncovered] == ["QuantizeLinear"]


# onnxruntime's other rewritings: fused operators, half floats


@pytest.mark.parametrize("kind", ["bert", "distilbert", "roberta"])
def test_fused_by_a_session(tmp_path: Path, kind: str) -> None:
    """FusedMatMul, BiasGelu and their kin, as a session saves its optimised graph."""
    model = own_model(tmp_path, kind, labels=["a", "b", "c"])
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(tmp_path / "fused.onnx")
    onnxruntime.InferenceSession(model.SerializeToString(), options)
    fused = onnx.load(tmp_path / "fused.onnx")
    assert any(node.domain == "com.microsoft" for node in fused.graph.node)
    check_float(fused, bound=2e-6)


def test_fused_attention(tmp_path: Path) -> None:
    """com.microsoft.Attention and SkipLayerNormalization, with a mask over tokens."""
    rng = np.random.default_rng(4)
    h = Hand()
    x, weight, bias = h.rows(), h.const(rng.normal(size=(16, 48)) / 4), h.const(rng.normal(size=48))
    mask = h.op("Cast", "attention_mask", to=TensorProto.INT32)
    mixed = h.op("Attention", x, weight, bias, mask, num_heads=2)
    norm = h.op("SkipLayerNormalization", mixed, x, h.const(rng.normal(size=16)), h.const(np.zeros(16)), epsilon=1e-6)
    program = program_of(check_float(h.model(h.mean(norm))))
    assert [type(op).__name__ for op in program.ops] == [
        "Embed",
        "Linear",
        "Attention",
        "Add",
        "LayerNorm",
        "PoolTokens",
    ]


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_half_floats(tmp_path: Path, kind: str) -> None:
    """A graph in float16 is computed in float32: nearer to the float32 model than float16 arithmetic is."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    model = own_model(tmp_path, kind)
    exact = onnx_rows(model, texts())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numbers below the smallest half float
        half = convert_float_to_float16(model, keep_io_types=True, disable_shape_infer=True)
    program = program_of(compile_graph(half, quantization="none"))
    assert error(edge_rows(program, texts()), exact) < 2e-3
