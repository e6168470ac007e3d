"""Models of transformers as torch exports them, compiled: float programs answer as onnxruntime does."""

from __future__ import annotations

import importlib.util

import pytest

from edgespec.engine import format as fmt
from edgespec.engine.compile import compile_graph
from tests.engine.models import check_float, cosine, edge_rows, error, onnx_rows, program_of, texts
from tests.engine.wasm import Wasm

pytest.importorskip("torch", reason="torch is not installed: pip install torch transformers")
pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")

from tests.engine.exported import exported

needs_onnxscript = pytest.mark.skipif(
    importlib.util.find_spec("onnxscript") is None,
    reason="the dynamo exporter needs onnxscript: pip install onnxscript",
)
LEGACY = [
    ("bert", "mean", "eager"),
    ("bert", "sequence", "sdpa"),
    ("bert", "token", "sdpa"),
    ("roberta", "sequence", "eager"),
    ("roberta", "token", "sdpa"),
    ("distilbert", "cls", "sdpa"),
    ("distilbert", "sequence", "eager"),
    ("albert", "mean", "eager"),
    ("albert", "sequence", "sdpa"),
    ("electra", "sequence", "eager"),
    ("modernbert", "mean", "eager"),
    ("modernbert", "sequence", "sdpa"),
    ("modernbert", "token", "sdpa"),
    ("qwen2", "sequence", "eager"),
    ("qwen2", "last", "sdpa"),
    ("qwen3", "last", "eager"),
    ("qwen3", "sequence", "sdpa"),
    ("mistral", "last", "sdpa"),
    ("gemma", "mean", "sdpa"),
    ("llama", "last", "eager"),
    ("phi", "mean", "eager"),
    ("gpt2", "sequence", "eager"),
]
DYNAMO = [
    ("roberta", "sequence", "eager"),
    ("modernbert", "sequence", "sdpa"),
    ("qwen3", "last", "sdpa"),
]


def program(name: str, what: str, attention: str = "eager", quantization: str = "none") -> fmt.Program:
    return program_of(compile_graph(exported(name, what, attention), quantization=quantization))


@pytest.mark.parametrize(("name", "what", "attention"), LEGACY)
def test_legacy_exporter(name: str, what: str, attention: str) -> None:
    check_float(exported(name, what, attention), bound=3e-6)


@needs_onnxscript
@pytest.mark.parametrize(("name", "what", "attention"), DYNAMO)
def test_dynamo_exporter(name: str, what: str, attention: str) -> None:
    check_float(exported(name, what, attention, "dynamo"), bound=3e-6)


def test_exporters_and_attentions_give_the_same_operations() -> None:
    first, second = (
        [(type(op), getattr(op, "act", None), getattr(op, "window", None)) for op in program("bert", "mean", a).ops]
        for a in ("eager", "sdpa")
    )
    assert first == second


def test_albert_shares_one_layer() -> None:
    ops = program("albert", "mean").ops
    assert len({op.weight for op in ops if isinstance(op, fmt.Linear)}) == 5  # the projection and one layer's four


def test_modernbert_is_local_in_some_layers() -> None:
    attentions = [op for op in program("modernbert", "mean").ops if isinstance(op, fmt.Attention)]
    assert [(a.window, a.causal) for a in attentions] == [(0, False), (8, False), (0, False)]


def test_mistral_looks_back_a_few_tokens() -> None:
    attentions = [op for op in program("mistral", "last", "sdpa").ops if isinstance(op, fmt.Attention)]
    assert {(a.window, a.causal, a.heads, a.kv_heads) for a in attentions} == {(10, True, 4, 2)}


def test_qwen3_normalises_and_turns_heads_in_place() -> None:
    found = program("qwen3", "last")
    layer = [
        "Linear",
        "RmsNorm",
        "Rope",
        "RmsNorm",
        "Rope",
        "Attention",
        "Linear",
        "RmsNorm",
        "Linear",
        "Glu",
        "Linear",
    ]
    names = [type(op).__name__ for op in found.ops]
    assert names[1:3] == ["RmsNorm", "Linear"]
    assert sorted(names[2:13]) == sorted(layer)
    assert names.count("PoolTokens") == 2, "the last token's row and its residual, before the last layer's products"
    assert "Concat" not in names


@pytest.mark.parametrize("name", ["bert", "modernbert", "qwen3"])
def test_int8_stays_near_float(name: str) -> None:
    what = "last" if name == "qwen3" else "mean"
    ids = texts()
    exact = onnx_rows(exported(name, what), ids)
    for quantization, least in (("fp16", 0.99999), ("int8", 0.997), ("int4", 0.93)):
        assert cosine(edge_rows(program(name, what, quantization=quantization), ids), exact) > least


@pytest.mark.parametrize(
    ("name", "what"),
    [("bert", "mean"), ("roberta", "sequence"), ("distilbert", "sequence"), ("albert", "mean"), ("modernbert", "mean"),
     ("qwen2", "sequence"), ("qwen3", "last")],
)  # fmt: skip
def test_in_the_engine(engine: Wasm, name: str, what: str) -> None:
    ids = texts(1, 7, 12, 30)
    found = engine.run(program(name, what), ids).values
    assert error(list(found), onnx_rows(exported(name, what), ids)) < 1e-5


def test_token_classification_in_the_engine(engine: Wasm) -> None:
    ids = texts(1, 7, 12)
    found = engine.run(program("bert", "token", "sdpa"), ids).values
    assert error([found[:1], found[1:8], found[8:]], onnx_rows(exported("bert", "token", "sdpa"), ids)) < 1e-5


def test_relative_positions_are_not_covered() -> None:
    compiled = compile_graph(exported("mpnet", "mean"), quantization="none")
    assert compiled.program is None
    reason = ("Add", "something other than a mask is added to the attention scores")
    assert [(u.op, u.why) for u in compiled.uncovered] == [reason, reason], "one for each layer"


def test_every_unknown_operator_is_named() -> None:
    compiled = compile_graph(exported("convbert", "mean"), quantization="none")
    assert compiled.program is None
    assert {u.op for u in compiled.uncovered} >= {"Conv", "Pad"}
    assert all(f"{u.op} is not an operation of the edge engine" == u.why and u.node for u in compiled.uncovered)
