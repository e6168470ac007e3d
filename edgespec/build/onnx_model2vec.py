"""Static embeddings as model2vec saves them, from config.json and safetensors to ONNX: each token's row, their mean.

model2vec tokenises without special tokens, leaves unknown tokens out and takes the mean of the rows that remain, which
may be few (`mapping`: the row of each token) and weighted (`weights`: a factor of each token). A text of which nothing
remains is the zero vector. Here the factors and the mapping are worked into a table with a row for each token, and
tokens that do not count (the unknown one, and those that the tokenizer puts around a text) have a row of zeros.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from onnx import TensorProto

from edgespec.build.embed import read_tokenizer
from edgespec.build.graph import Graph
from edgespec.build.problems import fail
from edgespec.build.weights import BrokenWeightsError, FloatArray, Tensors

if TYPE_CHECKING:
    from onnx import ModelProto

INPUTS: Final = ("input_ids", "attention_mask")
MODEL_TYPE: Final = "model2vec"
HARDLY: Final = 1e-9
"""How much a token counts that does not: beside the 1 of any other it is lost, and it keeps 0 / 0 from texts that have
no other."""


@dataclass(frozen=True, slots=True)
class Static:
    """`table` [tokens, columns] has the rows with mapping and factors worked in; `counts` [tokens] is 1, or HARDLY."""

    table: FloatArray
    counts: FloatArray
    normalise: bool


def is_static(config: Mapping[str, Any]) -> bool:
    return config.get("model_type") == MODEL_TYPE or config.get("architectures") == ["StaticModel"]


def read_static(config: Mapping[str, Any], tensors: Tensors, tokenizer: bytes, where: str) -> Static:
    """Raises EdgespecError (ES506, ES511) where the files do not belong together."""
    table = _get(tensors, "embeddings", 2, where)
    if "mapping" in tensors:
        mapping = _get(tensors, "mapping", 1, where)
        rows = mapping.astype(np.int64)
        if not ((rows == mapping) & (rows >= 0) & (rows < len(table))).all():
            raise fail("ES511", f"{where}: tensor 'mapping' names rows that are not among the {len(table)} there are.")
        table = table[rows]
    if "weights" in tensors:
        weights = _get(tensors, "weights", 1, where)
        if len(weights) != len(table):
            raise fail("ES511", f"{where}: tensor 'weights' has {len(weights)} numbers for {len(table)} tokens.")
        table = table * weights[:, None]
    highest = max(read_tokenizer(tokenizer, None).get_vocab().values(), default=0)
    if highest >= len(table):
        raise fail(
            "ES506",
            f"tokenizer.json has the token id {highest}, {where} has rows for {len(table)} tokens: the tokenizer "
            "belongs to another model.",
        )
    counts = np.ones(len(table), np.float32)
    left_out = sorted(_left_out(tokenizer))
    counts[left_out] = HARDLY
    table = np.array(table, np.float32)
    table[left_out] = 0
    return Static(table, counts, bool(config.get("normalize", False)))


def _get(tensors: Tensors, name: str, rank: int, where: str) -> FloatArray:
    if name not in tensors:
        raise fail("ES511", f"{where} has no tensor {name!r}, which config.json makes one expect.")
    try:
        value = tensors.numbers(name)
    except BrokenWeightsError as why:
        raise fail("ES511", f"{where}: {why}.") from None
    if value.ndim != rank:
        raise fail("ES511", f"{where}: tensor {name!r} has {value.ndim} dimensions, not {rank}.")
    return value


def _left_out(tokenizer: bytes) -> set[int]:
    """Ids that model2vec does not count: the unknown token, and what stands around each text."""
    model, reader = json.loads(tokenizer)["model"], read_tokenizer(tokenizer, None)
    unknown: int | None = model.get("unk_id")
    if unknown is None:
        unknown = reader.token_to_id(model.get("unk_token") or "")
    return {*reader.encode("").ids, *(() if unknown is None else (unknown,))}


def export_static(model: Static) -> ModelProto:
    """Output `embedding` [batch, columns]: of length 1 if config.json says `normalize`."""
    g = Graph()
    rows = g.op("Gather", "embeddings.words", g.weight("embeddings.words.table", model.table), "input_ids")
    seen = g.op("Cast", "mask.seen", "attention_mask", to=TensorProto.FLOAT)
    counts = g.op("Gather", "mask.counts", g.weight("mask.table", model.counts), "input_ids")
    column = g.op("Unsqueeze", "mask", g.op("Mul", "mask.flat", seen, counts), g.ints(2))
    total = g.op("ReduceSum", "pooling.total", g.op("Mul", "pooling.rows", rows, column), g.ints(1), keepdims=0)
    count = g.op("ReduceSum", "pooling.seen", column, g.ints(1), keepdims=0)
    mean = g.op("Div", "pooling.mean", total, g.op("Max", "pooling.count", count, g.number(HARDLY)))
    if model.normalise:
        mean = g.op("LpNormalization", "unit", mean, axis=-1, p=2)
    return g.model(INPUTS, g.op("Identity", "embedding", mean), model.table.shape[1])
