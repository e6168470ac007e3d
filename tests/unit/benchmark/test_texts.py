from __future__ import annotations

from pathlib import Path

import pytest

from edgespec.artifact import Manifest, ModelInfo
from edgespec.benchmark.texts import rows_for, text_of
from edgespec.benchmark.variants import build_variants
from edgespec.diagnostics import EdgespecError, error
from edgespec.spec.models import EdgeModel
from tests.tiny import tiny_spec, tiny_tokenizer, write_examples

TOKENIZER = tiny_tokenizer()


def spec(max_tokens: int = 32) -> EdgeModel:
    document = tiny_spec()
    document["task"]["max_tokens"] = max_tokens
    return EdgeModel.model_validate(document)


def manifest(engine: str) -> Manifest:
    return Manifest(engine, {}, ModelInfo((), "logits", 3, "int8"), {})


@pytest.mark.parametrize(
    ("most", "names"),
    [
        (4, ["4"]), (8, ["8"]), (20, ["8", "16", "20"]), (32, ["8", "16", "32"]),
        (128, ["8", "16", "32", "64", "128"]), (512, ["8", "16", "32", "64", "128"]),
    ],
)  # fmt: skip
def test_lengths_end_at_max_tokens(tmp_path: Path, most: int, names: list[str]) -> None:
    write_examples(tmp_path / "data" / "train.jsonl")
    rows = rows_for(spec(most), tmp_path, TOKENIZER)
    assert [r.name for r in rows] == [*names, "own"]
    for made in rows[:-1]:
        assert set(made.tokens) == {int(made.name)} and len(made.texts) > 1
    assert len(rows[-1].texts) == 18 and max(rows[-1].tokens) <= most


def test_a_text_of_so_many_tokens() -> None:
    text = text_of(["where is my parcel", "hello"], 9, TOKENIZER)
    assert text == "where is my parcel hello where is"
    assert len(TOKENIZER.encode(text).ids) == 9


def test_no_data_no_texts(tmp_path: Path) -> None:
    document = tiny_spec()
    document["model"]["pipeline"] = []
    with pytest.raises(EdgespecError, match="ES410"):
        rows_for(EdgeModel.model_validate(document), tmp_path, TOKENIZER)


def test_variants() -> None:
    def refuse(_: EdgeModel) -> Manifest:
        raise EdgespecError(error("ES514", "the graph", "`Loop` is not covered."))

    made, left = build_variants(spec(), manifest("onnxruntime"), ["onnxruntime"], refuse)
    assert [(v.engine, v.spec.name, v.spec.quality) for v in made] == [
        ("onnxruntime", "onnxruntime", None)
    ] and not left
    made, left = build_variants(spec(), manifest("edge"), ["onnxruntime", "edge"], refuse)
    assert [v.engine for v in made] == ["edge"]
    assert [(e.engine, e.why) for e in left] == [("onnxruntime", "`Loop` is not covered.")]
    made, left = build_variants(spec(), manifest("edge"), ["onnxruntime"], lambda _: manifest("edge"))
    assert not made and left[0].why == "the build gives edge for this model"
    made, left = build_variants(spec(), manifest("edge"), ["onnxruntime"], lambda _: manifest("onnxruntime"))
    assert made[0].spec.worker.engine == "onnxruntime" and not left


def test_an_engine_that_the_language_does_not_have() -> None:
    made, left = build_variants(spec(), manifest("edge"), ["steam"], lambda _: manifest("steam"))
    assert not made and left[0].why == "this edgespec has no `worker.engine: steam`"
