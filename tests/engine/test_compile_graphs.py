"""Small graphs written by hand: other spellings, static embeddings, and what the compiler must refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest

from edgespec.engine import format as fmt
from edgespec.engine.compile import BrokenModelError, compile_graph
from edgespec.engine.patterns.lower import Quantization
from tests.engine.models import VOCABULARY, Hand, check_float, edge_rows, error, onnx_rows, program_of, texts
from tests.engine.wasm import Wasm

RNG = np.random.default_rng(5)


def names(program: fmt.Program) -> list[str]:
    return [type(op).__name__ for op in program.ops]


def refused(h: Hand, output: str) -> list[tuple[str, str]]:
    compiled = compile_graph(h.model(output), quantization="none")
    assert compiled.program is None
    return [(u.op, u.why) for u in compiled.uncovered]


def layer_norm(h: Hand, x: str, how: str, width: int = 16) -> str:
    gamma, beta = h.const(RNG.normal(size=width)), h.const(RNG.normal(size=width))
    mean = h.op("ReduceMean", x, axes=[-1])
    centred = h.op("Sub", x, mean)
    square = h.op("Mul", centred, centred) if how == "mul" else h.op("Pow", centred, h.const(2.0))
    spread = h.op("Sqrt", h.op("Add", h.op("ReduceMean", square, axes=[-1]), h.const(1e-6)))
    if how == "reciprocal":
        scaled = h.op("Mul", centred, h.op("Mul", h.op("Reciprocal", spread), gamma))
    else:
        scaled = h.op("Mul", gamma, h.op("Div", centred, spread))
    return h.op("Add", beta, scaled)


@pytest.mark.parametrize("how", ["pow", "mul", "reciprocal"])
def test_layer_norm_spelled_out(how: str) -> None:
    h = Hand("input_ids")
    compiled = check_float(h.model(h.mean(layer_norm(h, h.rows(), how))))
    assert names(program_of(compiled)) == ["Embed", "LayerNorm", "PoolTokens"]


def test_rms_norm_spelled_out() -> None:
    h = Hand("input_ids")
    x = h.rows()
    power = h.op("Add", h.op("ReduceMean", h.op("Pow", x, h.const(2.0)), axes=[-1]), h.const(1e-6))
    unit = h.op("Mul", x, h.op("Reciprocal", h.op("Sqrt", power)))
    scale = h.op("Add", h.const(RNG.normal(size=16)), h.const(1.0))
    compiled = check_float(h.model(h.mean(h.op("Mul", unit, scale))))
    assert names(program_of(compiled)) == ["Embed", "RmsNorm", "PoolTokens"]


def curve(h: Hand, x: str, kind: str) -> str:
    if kind == "erf":
        half = h.op("Mul", x, h.const(0.5))
        return h.op("Mul", half, h.op("Add", h.const(1.0), h.op("Erf", h.op("Mul", x, h.const(math.sqrt(0.5))))))
    if kind == "tanh form":
        cube = h.op("Mul", h.op("Mul", x, x), x)
        inner = h.op("Mul", h.op("Add", x, h.op("Mul", cube, h.const(0.044715))), h.const(math.sqrt(2 / math.pi)))
        return h.op("Mul", h.op("Mul", h.op("Add", h.op("Tanh", inner), h.const(1.0)), x), h.const(0.5))
    if kind == "silu":
        return h.op("Mul", h.op("Sigmoid", x), x)
    if kind == "silu by exp":
        return h.op("Div", x, h.op("Add", h.op("Exp", h.op("Neg", x)), h.const(1.0)))
    return h.op("Clip", x, h.const(0.0)) if kind == "relu by clip" else h.op("Tanh", x)


@pytest.mark.parametrize(
    ("kind", "act"),
    [("erf", "GELU_ERF"), ("tanh form", "GELU_TANH"), ("silu", "SILU"), ("silu by exp", "SILU"),
     ("relu by clip", "RELU"), ("tanh", "TANH")],
)  # fmt: skip
def test_activations_spelled_out(kind: str, act: str) -> None:
    h = Hand("input_ids")
    product = h.op("Add", h.linear(h.rows(), 16, 24), h.const(RNG.normal(size=24)))
    compiled = check_float(h.model(h.mean(curve(h, product, kind))))
    ops = program_of(compiled).ops
    assert [type(op) for op in ops] == [fmt.Embed, fmt.Linear, fmt.PoolTokens]
    assert isinstance(ops[1], fmt.Linear)
    assert ops[1].act.name == act


def attention(h: Hand, x: str, how: str, bias: str | None = None) -> str:
    """Two heads of 8 over 16 columns, in one of the spellings."""

    def split(y: str) -> str:
        return h.op("Transpose", h.op("Reshape", y, h.const([0, 0, 2, 8], np.int64)), perm=[0, 2, 1, 3])

    if how == "one product":
        parts = h.ops("Split", 3, h.linear(x, 16, 48), h.const([16, 16, 16], np.int64), axis=2)
        q, k, v = (split(p) for p in parts)
    elif how == "five axes":
        wide = h.op("Reshape", h.linear(x, 16, 48), h.const([0, 0, 3, 2, 8], np.int64))
        moved = h.op("Transpose", wide, perm=[2, 0, 3, 1, 4])
        q, k, v = (h.op("Gather", moved, h.const(i, np.int64), axis=0) for i in range(3))
    else:
        q, k, v = (split(h.linear(x, 16, 16, seed=i)) for i in range(3))
    if how == "scaled query":
        q = h.op("Div", q, h.const(math.sqrt(8)))
    scores = h.op("MatMul", q, h.op("Transpose", k, perm=[0, 1, 3, 2]))
    if how != "scaled query":
        scores = h.op("Mul", scores, h.const(1 / math.sqrt(8)))
    if bias is not None:
        scores = h.op("Add", scores, bias)
    mixed = h.op("MatMul", h.op("Softmax", scores, axis=-1), v)
    return h.op("Reshape", h.op("Transpose", mixed, perm=[0, 2, 1, 3]), h.const([0, 0, 16], np.int64))


def padding(h: Hand) -> str:
    seen = h.op("Cast", h.op("Unsqueeze", "attention_mask", h.const([1, 2], np.int64)), to=1)
    return h.op("Mul", h.op("Sub", h.const(1.0), seen), h.const(-1e9))


@pytest.mark.parametrize("how", ["three products", "one product", "five axes", "scaled query"])
def test_attention_spelled_out(how: str) -> None:
    h = Hand()
    compiled = check_float(h.model(h.mean(attention(h, h.rows(), how, padding(h)))))
    program = program_of(compiled)
    assert names(program) == ["Embed", "Linear", "Attention", "PoolTokens"]
    (found,) = (op for op in program.ops if isinstance(op, fmt.Attention))
    assert (found.heads, found.head, found.window, found.causal) == (2, 8, 0, False)
    assert math.isclose(found.scale, 1 / math.sqrt(8), rel_tol=1e-6)


def distances(h: Hand) -> str:
    length = h.op("Gather", h.op("Shape", "input_ids"), h.const(1, np.int64))
    places = h.op("Range", h.const(0, np.int64), length, h.const(1, np.int64))
    return h.op(
        "Sub",
        h.op("Unsqueeze", places, h.const([1], np.int64)),
        h.op("Unsqueeze", places, h.const([0], np.int64)),
    )


@pytest.mark.parametrize(("reach", "window"), [(3, 6), (150, 300)])
def test_a_window_around_each_token(reach: int, window: int) -> None:
    h = Hand("input_ids")
    far = h.op("Greater", h.op("Abs", distances(h)), h.const(reach, np.int64))
    bias = h.op("Where", far, h.const(-np.inf), h.const(0.0))
    compiled = check_float(h.model(h.mean(attention(h, h.rows(), "one product", bias))))
    (found,) = (op for op in program_of(compiled).ops if isinstance(op, fmt.Attention))
    assert (found.window, found.causal) == (window, False)


@pytest.mark.parametrize("quantization", ["none", "fp16", "int8", "int4"])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_in_integers_where_the_weights_are(quantization: Quantization, causal: bool) -> None:
    """Not in decoders."""
    h = Hand("input_ids")
    far = h.op("Greater", h.op("Abs", distances(h)), h.const(3, np.int64))
    hidden = h.op("Less", distances(h), h.const(0, np.int64)) if causal else far
    bias = h.op("Where", hidden, h.const(-np.inf), h.const(0.0))
    model = h.model(h.mean(attention(h, h.rows(), "one product", bias)))
    ops = program_of(compile_graph(model, quantization=quantization)).ops
    (found,) = (op for op in ops if isinstance(op, fmt.Attention))
    assert found.causal == causal
    assert found.integers == (quantization in ("int8", "int4") and not causal)


def test_a_window_wider_than_the_samples_limits_the_length() -> None:
    h = Hand("input_ids")
    far = h.op("Greater", h.op("Abs", distances(h)), h.const(900, np.int64))
    bias = h.op("Where", far, h.const(-np.inf), h.const(0.0))
    compiled = check_float(h.model(h.mean(attention(h, h.rows(), "one product", bias))))
    assert program_of(compiled).max_position == 900
    assert "more than 900 tokens" in compiled.notes[0]


def test_capped_scores_are_refused() -> None:
    h = Hand("input_ids")

    def cap(scores: str) -> str:
        return h.op("Mul", h.op("Tanh", h.op("Div", scores, h.const(50.0))), h.const(50.0))

    x = h.rows()
    q, k = (h.op("Reshape", h.linear(x, 16, 16, seed=i), h.const([0, 0, 16], np.int64)) for i in range(2))
    scores = cap(h.op("MatMul", q, h.op("Transpose", k, perm=[0, 2, 1])))
    out = h.op("MatMul", h.op("Softmax", scores, axis=-1), x)
    assert refused(h, h.mean(out)) == [("Mul", "the attention scores are changed by more than a factor")]


def test_every_layer_is_reported() -> None:
    h = Hand("input_ids")
    x = h.linear(h.rows(), 16, 16)
    for seed in range(3):
        x = h.linear(h.op("Softplus", x), 16, 16, seed=seed)
    assert len(refused(h, h.mean(x))) == 3


def test_a_bias_of_the_distance_is_refused() -> None:
    h = Hand("input_ids")
    slope = h.op("Mul", h.op("Cast", distances(h), to=1), h.const(0.1))
    wrong = attention(h, h.rows(), "one product", slope)
    assert refused(h, h.mean(wrong)) == [("Add", "something other than a mask is added to the attention scores")]


def test_a_mask_that_is_no_padding_mask_is_refused() -> None:
    """Tokens with mask 0 are seen, and those with mask 1 are not seen once there is a 0: no engine text has a 0."""
    h = Hand()
    seen = h.op("Cast", h.op("Unsqueeze", "attention_mask", h.const([1, 2], np.int64)), to=1)
    none = h.op("ReduceMin", seen, axes=[3])
    strange = h.op("Mul", h.op("Sub", seen, none), h.const(-1e9))
    (found,) = refused(h, h.mean(attention(h, h.rows(), "one product", strange)))
    assert found[1] == "the attention mask is neither padding, nor causal, nor a window around each token"


def test_a_mask_in_a_sum_is_refused() -> None:
    h = Hand()
    column = h.op("Cast", h.op("Unsqueeze", "attention_mask", h.const([2], np.int64)), to=1)
    assert refused(h, h.mean(h.op("Pow", h.rows(), h.op("Add", column, h.const(1.0)))))


def test_token_ids_in_arithmetic_are_refused() -> None:
    h = Hand("input_ids")
    wide = h.op("Cast", h.op("Mul", "input_ids", "input_ids"), to=1)
    ((op, why),) = refused(h, h.mean(h.op("Add", h.rows(), h.op("Unsqueeze", wide, h.const([2], np.int64)))))
    assert op == "Mul"
    assert "token ids" in why


def test_largest_of_all_tokens_is_refused() -> None:
    h = Hand("input_ids")
    ((op, why),) = refused(h, h.op("ReduceMax", h.linear(h.rows(), 16, 8), axes=[1], keepdims=0))
    assert (op, why) == ("ReduceMax", "ReduceMax is not used here in a way that the edge engine knows")


def test_reports_read_as_sentences() -> None:
    h = Hand("input_ids")
    out = h.op("Conv", h.rows(), h.const(np.ones((1, 1, 3))))
    compiled = compile_graph(h.model(out), quantization="int8")
    assert compiled.program is None
    assert [str(u) for u in compiled.uncovered] == ["Conv 'n1': Conv is not an operation of the edge engine"]


def test_strange_inputs_are_refused() -> None:
    h = Hand("input_ids", "pixel_values")
    out = h.op("Add", h.rows(), h.op("Cast", h.op("Unsqueeze", "pixel_values", h.const([2], np.int64)), to=1))
    compiled = compile_graph(h.model(h.mean(out)), quantization="none")
    assert "pixel_values" in str(compiled.uncovered[0])


def test_no_model_at_all() -> None:
    with pytest.raises(BrokenModelError):
        compile_graph(b"no model", quantization="none")
    h = Hand("input_ids")
    with pytest.raises(BrokenModelError, match="no output 'logits'"):
        compile_graph(h.model(h.mean(h.rows())), quantization="none", output="logits")


def test_weights_that_cannot_be_packed() -> None:
    h = Hand("input_ids")
    huge = h.op("MatMul", h.rows(), h.const(np.full((16, 8), 1e30)))
    model = h.model(h.mean(h.linear(h.op("Tanh", huge), 8, 8)))
    compiled = compile_graph(model, quantization="fp16")
    assert compiled.program is None
    assert "cannot be packed as fp16" in str(compiled.uncovered[0])


def test_groups() -> None:
    with pytest.raises(ValueError, match="groups of 48"):
        compile_graph(b"", quantization="int4", group=48)


# Static embeddings


def test_mean_of_rows() -> None:
    h = Hand("input_ids")
    found = program_of(check_float(h.model(h.op("LpNormalization", h.mean(h.rows()), axis=-1, p=2))))
    assert names(found) == ["Embed", "PoolTokens", "L2Norm"]
    assert found.max_position == 0


def test_mean_of_rows_over_the_mask() -> None:
    h = Hand()
    column = h.op("Cast", h.op("Unsqueeze", "attention_mask", h.const([2], np.int64)), to=1)
    total = h.op("ReduceSum", h.op("Mul", h.rows(), column), h.const([1], np.int64), keepdims=0)
    count = h.op("Clip", h.op("ReduceSum", column, h.const([1], np.int64), keepdims=0), h.const(1e-9))
    assert names(program_of(check_float(h.model(h.op("Div", total, count))))) == ["Embed", "PoolTokens"]


@pytest.mark.parametrize("by", ["sum", "count"])
def test_weighted_mean_of_rows(engine: Wasm, by: str) -> None:
    """A weight for each token of the vocabulary, as model2vec learns them."""
    h = Hand("input_ids")
    weight = h.op("Gather", h.const(RNG.uniform(0.1, 1, (VOCABULARY, 1))), "input_ids")
    weighted = h.op("Mul", h.rows(), weight)
    axis = h.const([1], np.int64)
    if by == "count":
        out = h.mean(weighted)
    else:
        total = h.op("ReduceSum", weighted, axis, keepdims=0)
        out = h.op("Div", total, h.op("ReduceSum", weight, axis, keepdims=0))
    model = h.model(out)
    program = program_of(compile_graph(model, quantization="none"))
    assert names(program) == ["Embed", "PoolTokens"]
    assert error(edge_rows(program, texts()), onnx_rows(model, texts())) < 2e-6
    assert error(list(engine.run(program, texts(1, 7, 12)).values), onnx_rows(model, texts(1, 7, 12))) < 2e-6
    small = program_of(compile_graph(model, quantization="int8"))
    assert error(edge_rows(small, texts()), onnx_rows(model, texts())) < 0.02


def test_positions_with_a_constant_row() -> None:
    """Positions from a slice of a table, plus a row that every token gets."""
    h = Hand("input_ids")
    table = h.const(RNG.normal(size=(1, 50, 16)))
    length = h.op("Gather", h.op("Shape", "input_ids"), h.const([1], np.int64))
    places = h.op("Slice", table, h.const([0], np.int64), length, h.const([1], np.int64))
    row = h.op("Add", places, h.const(RNG.normal(size=16)))
    compiled = check_float(h.model(h.mean(layer_norm(h, h.op("Add", h.rows(), row), "pow"))))
    assert names(program_of(compiled)) == ["Embed", "LayerNorm", "PoolTokens"]
    assert program_of(compiled).max_position == 50


def test_named_output() -> None:
    h = Hand("input_ids")
    rows = layer_norm(h, h.rows(), "pow")
    model = h.model(h.mean(rows))
    from onnx import TensorProto, helper

    model.graph.output.append(helper.make_tensor_value_info(rows, TensorProto.FLOAT, None))
    found = program_of(compile_graph(model, quantization="none", output=rows))
    assert found.registers[found.output].kind == fmt.RegisterKind.TOKENS
