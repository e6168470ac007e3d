"""model2vec's own ONNX export, and what is near it but something else."""

from __future__ import annotations

import functools
import io
import logging
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
import onnx
import torch
from onnx import ModelProto

from edgespec.engine import format as fmt
from edgespec.engine.compile import compile_graph
from tests.engine.models import VOCABULARY, Hand, edge_rows, error, onnx_rows, program_of, texts
from tests.engine.wasm import Wasm

UNKNOWN, COLUMNS, ROWS = 5, 16, 20
TEXTS = [*texts(1, 7, 12), [UNKNOWN, 9, UNKNOWN, 9, 30], [UNKNOWN, 8]]
NOTHING = [[UNKNOWN], [UNKNOWN] * 6]
"""Texts of which nothing is left: zero vectors."""


class StaticModel(torch.nn.Module):
    """`TorchStaticModel` of model2vec 0.10 (MIT), which its export gives to torch."""

    def __init__(self, form: str) -> None:
        super().__init__()
        rng = np.random.default_rng(3)
        table = rng.normal(size=(ROWS if "mapping" in form else VOCABULARY, COLUMNS)).astype(np.float32)
        self.embeddings = torch.nn.Embedding.from_pretrained(torch.from_numpy(table), freeze=True)
        weights = torch.from_numpy(rng.uniform(0.1, 1, VOCABULARY).astype(np.float32))
        self.register_buffer("weights", weights if "weights" in form else None)
        mapping = torch.from_numpy(rng.integers(0, ROWS, VOCABULARY))
        self.register_buffer("token_mapping", mapping if "mapping" in form else None)
        self.normalize = "unit" in form
        self.unk_token_id = UNKNOWN if "unknown" in form else None

    def forward(self, input_ids: Any, attention_mask: Any) -> Any:
        mask = attention_mask.unsqueeze(-1).to(self.embeddings.weight.dtype)
        if self.unk_token_id is not None:
            mask[input_ids == self.unk_token_id] = 0
        embedding_ids = input_ids if self.token_mapping is None else self.token_mapping[input_ids]
        embeddings = self.embeddings(embedding_ids) * mask
        if self.weights is not None:
            embeddings = embeddings * self.weights[input_ids].unsqueeze(-1)
        embeddings = embeddings.sum(dim=1) / mask.sum(dim=1).clamp(min=1)
        if self.normalize:
            embeddings = torch.nn.functional.normalize(embeddings, p=2, dim=-1)
        return embeddings


FORMS = [
    "",
    "unit",
    "mapping weights",
    "unknown",
    "unknown weights unit",
    "unknown mapping",
    "unknown mapping weights unit",
]


@functools.cache
def exported(form: str, exporter: str = "dynamo") -> ModelProto:
    example = (torch.zeros((2, 3), dtype=torch.long), torch.tensor([[1, 1, 1], [1, 1, 0]]))
    how: dict[str, Any] = {"input_names": ["input_ids", "attention_mask"], "output_names": ["embeddings"]}
    if exporter == "dynamo":
        axes = {0: torch.export.Dim("batch_size"), 1: torch.export.Dim("sequence_length")}
        how |= {"dynamic_shapes": {"input_ids": axes, "attention_mask": axes}, "external_data": False}
        how |= {"opset_version": 18, "verbose": False}
    else:
        how |= {
            "dynamo": False,
            "opset_version": 17,
            "dynamic_axes": {name: {0: "b", 1: "s"} for name in how["input_names"]},
        }
    file = io.BytesIO()
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(StaticModel(form).eval(), example, file, **how)
    finally:
        logging.disable(logging.NOTSET)
    return onnx.load_from_string(file.getvalue())


EXPORTS = [*((form, "dynamo") for form in FORMS), *((form, "legacy") for form in FORMS if "unknown" not in form)]
"""torch's legacy exporter writes `mask[ids == unknown] = 0` wrongly, for one shape of text only."""


@pytest.mark.parametrize(("form", "exporter"), EXPORTS)
def test_it_is_a_table_and_a_mean(engine: Wasm, form: str, exporter: str) -> None:
    model = exported(form, exporter)
    program = program_of(compile_graph(model, quantization="none"))
    assert names(program) == ["Embed", "PoolTokens", *(["L2Norm"] if "unit" in form else [])]
    assert program.tensors[0].rows == VOCABULARY
    wanted = onnx_rows(model, TEXTS)
    assert error(edge_rows(program, TEXTS), wanted) < 2e-6
    assert error(list(engine.run(program, TEXTS).values), wanted) < 2e-6
    small = program_of(compile_graph(model, quantization="int8"))
    assert error(edge_rows(small, TEXTS), wanted) < 0.02


@pytest.mark.parametrize("form", [f for f in FORMS if "unknown" in f])
def test_nothing_but_unknown_tokens_is_zero(engine: Wasm, form: str) -> None:
    program = program_of(compile_graph(exported(form), quantization="none"))
    for rows in (onnx_rows(exported(form), NOTHING), edge_rows(program, NOTHING), engine.run(program, NOTHING).values):
        assert not np.asarray(rows).any()


def test_a_plain_mean_needs_no_weights() -> None:
    program = program_of(compile_graph(exported("mapping weights"), quantization="none"))
    assert [op.mode for op in program.ops if isinstance(op, fmt.PoolTokens)] == [fmt.Pool.MEAN]


def names(program: fmt.Program) -> list[str]:
    return [type(op).__name__ for op in program.ops]


def left_out(
    h: Hand,
    *,
    value: float = 0,
    token: int = UNKNOWN,
    perm: tuple[int, ...] = (1, 0),
    mask: str | None = None,
    **how: Any,
) -> ModelProto:
    """The mean of rows, with a mask as torch writes `mask[ids == token] = value`."""
    minus = h.const([-1], np.int64)
    seen = mask or h.op("Cast", h.op("Unsqueeze", "attention_mask", minus), to=1)
    flags = h.op("Unsqueeze", h.op("Equal", "input_ids", h.const(token, np.int64)), minus)
    at = h.op("Transpose", h.op("NonZero", flags), perm=list(perm))
    count = h.op("ReduceSum", h.op("Cast", h.op("Reshape", flags, minus), to=7), minus, keepdims=1)
    values = h.op("Expand", h.const(value), count)
    kept = h.op("ScatterND", seen, at, values, **how)
    axis = h.const([1], np.int64)
    total = h.op("ReduceSum", h.op("Mul", h.rows(), kept), axis, keepdims=0)
    return h.model(h.op("Div", total, h.op("Max", h.op("ReduceSum", kept, axis, keepdims=0), h.const([1.0]))))


def test_by_hand() -> None:
    model = left_out(Hand())
    program = program_of(compile_graph(model, quantization="none"))
    assert error(edge_rows(program, TEXTS), onnx_rows(model, TEXTS)) < 2e-6


@pytest.mark.parametrize(
    "change",
    [
        lambda h: {"value": 0.5},
        lambda h: {"token": VOCABULARY},
        lambda h: {"perm": (0, 1)},
        lambda h: {"reduction": "mul"},
        lambda h: {
            "mask": h.op("Unsqueeze", h.op("Softmax", h.op("Cast", "attention_mask", to=1)), h.const([-1], np.int64))
        },
    ],
)
def test_other_masks_are_not_taken_for_it(change: Callable[[Hand], dict[str, Any]]) -> None:
    h = Hand()
    compiled = compile_graph(left_out(h, **change(h)), quantization="none")
    assert "NonZero" in {u.op for u in compiled.uncovered}


def test_a_least_count_above_one_is_another_mean() -> None:
    h = Hand()
    column = h.op("Cast", h.op("Unsqueeze", "attention_mask", h.const([2], np.int64)), to=1)
    axis = h.const([1], np.int64)
    total = h.op("ReduceSum", h.op("Mul", h.rows(), column), axis, keepdims=0)
    count = h.op("Max", h.op("ReduceSum", column, axis, keepdims=0), h.const([8.0]))
    assert compile_graph(h.model(h.op("Div", total, count)), quantization="none").program is None


def test_flat_ids_and_offsets_are_named() -> None:
    """The export of model2vec before 0.8, for EmbeddingBag."""
    from onnx import TensorProto, helper, numpy_helper

    table = numpy_helper.from_array(np.ones((VOCABULARY, COLUMNS), np.float32), "table")
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT64, [f"n_{n}"]) for n in ("input_ids", "offsets")]
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["rows"], name="rows"),
        helper.make_node("Gather", ["rows", "offsets"], ["out"], name="bags"),
    ]
    compiled = compile_graph(
        helper.make_model(helper.make_graph(nodes, "g", inputs, [out], [table])), quantization="none"
    )
    (uncovered,) = compiled.uncovered
    assert "flat list of ids with offsets" in uncovered.why
    assert "model.safetensors" in uncovered.why
