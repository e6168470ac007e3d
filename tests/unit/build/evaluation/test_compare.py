"""A tiny model measured for real: in Node, by the numpy reference and onnxruntime; once, then from the cache."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgespec.artifact import Manifest
from edgespec.assets import schema_error
from edgespec.benchmark.answers import local_answering
from edgespec.build.cache import Cache
from edgespec.build.evaluate import Infer
from edgespec.build.evaluation.compare import Answering, Evaluator
from edgespec.build.evaluation.local import LocalAnswering
from edgespec.build.pipeline import Pipeline
from edgespec.diagnostics import EdgespecError
from edgespec.evaluation import EvaluationDocument
from edgespec.records import replace
from edgespec.render.evaluation import gate_results, render
from edgespec.render.report import html, markdown, plots
from edgespec.render.text import plain
from edgespec.spec.models import EdgeModel
from tests.tiny import WORDS, tiny_spec, write_examples, write_tiny_project

DATA = "data/test.jsonl"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = write_tiny_project(tmp_path_factory.mktemp("evaluation") / "project")
    rng = random.Random(3)
    labels = ["refund", "delivery", "other"]
    rows = [
        {
            "text": " ".join(rng.choices(WORDS, k=rng.randint(1, 24))),
            "label": labels[n % 3],
            "language": ["en", "de"][n % 2],
        }
        for n in range(90)
    ]
    (project / DATA).write_text("".join(json.dumps(r) + "\n" for r in rows))
    return project


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    return Cache(tmp_path_factory.mktemp("evaluation-cache"))


def make(root: Path, cache: Cache, answering: Answering) -> Evaluator:
    return Evaluator(root, cache, lambda progress: Pipeline(root, cache, progress), answering, lambda _: None)


def spec(**fields: Any) -> EdgeModel:
    gate = {"data": DATA, "metrics": {"accuracy": {"max_drop": 0.5}}}
    return EdgeModel.model_validate(tiny_spec(**{"quality": gate, **fields}))


class Silent:
    """Answers nothing: whoever asks it has not found the answers in the cache."""

    def __init__(self, version: str) -> None:
        self.version = version

    @contextmanager
    def open(self, spec: EdgeModel, manifest: Manifest, pipeline: Pipeline) -> Iterator[tuple[str, Infer]]:
        raise AssertionError("asked")
        yield


@pytest.fixture(scope="module")
def document(root: Path, cache: Cache) -> EvaluationDocument:
    return make(root, cache, local_answering()).evaluate(spec(quantization={"method": "int4"}), DATA)


def test_a_document_says_all_of_teacher_and_deployed(document: EvaluationDocument) -> None:
    assert [v.variant for v in document.variants] == ["teacher", "deployed"]
    assert schema_error("evaluation", document.model_dump(mode="json")) is None
    teacher, deployed = document.variants
    assert teacher.artifact != deployed.artifact
    assert teacher.size > deployed.size
    for v in document.variants:
        assert "in Node" in v.computed_by
        assert sum(map(sum, v.confusion)) == 90
        right = sum(v.confusion[i][i] for i in range(3))
        assert v.metrics["accuracy"] == pytest.approx(right / 90, abs=1e-6)
        assert v.calibration is not None
        assert sum(b.count for b in v.calibration.bins) == 90
        assert sum(r.support for r in v.labels) == 90
        assert [(s.name, s.examples) for s in v.by_language] == [("de", 45), ("en", 45)]
        assert sum(s.examples for s in v.by_length) == 90
        whole = sum(s.metrics["accuracy"] * s.examples for s in v.by_length) / 90
        assert whole == pytest.approx(v.metrics["accuracy"], abs=1e-5)
        assert [m.score for m in v.mistakes] == sorted((m.score for m in v.mistakes), reverse=True)
        assert all(m.expected != m.given for m in v.mistakes)


def test_answers_are_asked_for_once(root: Path, cache: Cache, document: EvaluationDocument) -> None:
    asked = spec(quantization={"method": "int4"})
    version = local_answering().version
    assert make(root, cache, Silent(version)).evaluate(asked, DATA) == document
    with pytest.raises(AssertionError, match="asked"):
        make(root, cache, Silent("another engine")).evaluate(asked, DATA)
    other = root / "data" / "other.jsonl"
    other.write_text((root / DATA).read_text().replace('"de"', '"fr"'))
    with pytest.raises(AssertionError, match="asked"):
        make(root, cache, Silent(version)).evaluate(asked, "data/other.jsonl")
    changed = {"head": {"train": "data/train.jsonl", "seed": 7, "l2": 0.1}}
    with pytest.raises(AssertionError, match="asked"):
        model = {"source": "./models/tiny", "pipeline": [changed]}
        make(root, cache, Silent(version)).evaluate(spec(quantization={"method": "int4"}, model=model), DATA)


def test_the_reference_and_node_and_onnxruntime_agree(root: Path, cache: Cache) -> None:
    """In float32: what is quantised is rounded in another way by each."""
    asked = spec(quantization={"method": "none"})
    node = make(root, cache, local_answering()).evaluate(asked, DATA).variants[-1]
    numpy = make(root, cache, LocalAnswering(None)).evaluate(asked, DATA).variants[-1]
    other = spec(quantization={"method": "none"}, worker={"engine": "onnxruntime"})
    onnx = make(root, cache, LocalAnswering(None)).evaluate(other, DATA).variants[-1]
    assert [v.computed_by.split("(")[0].strip() for v in (node, numpy, onnx)] == [
        "the edge engine in Node",
        "the edge engine's numpy reference",
        "onnxruntime",
    ]
    for v in (numpy, onnx):
        assert v.confusion == node.confusion
        assert v.calibration is not None
        assert node.calibration is not None
        assert v.calibration.brier == pytest.approx(node.calibration.brier, abs=1e-4)


def test_embeddings_are_measured_by_pairs(root: Path, cache: Cache) -> None:
    rows = [{"text_a": f"{w} {w}", "text_b": w, "score": 1.0} for w in WORDS[:12]]
    rows += [{"text_a": w, "text_b": v, "score": 0.0} for w, v in zip(WORDS[:12], WORDS[20:32], strict=True)]
    (root / "data" / "pairs.csv").write_text(
        "text_a,text_b,score\n" + "".join(f"{r['text_a']},{r['text_b']},{r['score']}\n" for r in rows)
    )
    asked = EdgeModel.model_validate(
        tiny_spec(model={"source": "./models/tiny"}, task={"type": "embedding", "max_tokens": 16})
    )
    found = make(root, cache, local_answering()).evaluate(asked, "data/pairs.csv")
    metrics = found.variants[-1].metrics
    assert set(metrics) == {"mrr", "pearson", "recall_at_1", "recall_at_5", "spearman"}
    assert metrics["recall_at_5"] >= metrics["recall_at_1"] > 1 / 24
    assert metrics["spearman"] > 0.3  # a word said twice is nearer to itself than another word
    assert schema_error("evaluation", found.model_dump(mode="json")) is None
    assert html(found).count("<svg") == 1


def test_what_cannot_be_measured_is_said(root: Path, cache: Cache) -> None:
    keywords = tiny_spec(model={"source": "./models/tiny"}, task={"type": "keyword-extraction", "max_tokens": 16})
    (root / "data" / "keywords.jsonl").write_text('{"text": "a refund", "keywords": ["refund"]}\n')
    evaluator = make(root, cache, local_answering())
    with pytest.raises(EdgespecError, match=r"ES580.*--edge"):
        evaluator.evaluate(EdgeModel.model_validate(keywords), "data/keywords.jsonl")
    with pytest.raises(EdgespecError, match=r"ES580.*no-such.jsonl"):
        evaluator.evaluate(spec(), "data/no-such.jsonl")


def test_a_teacher_that_cannot_be_made_is_left_out(root: Path, cache: Cache) -> None:
    class Refusing(LocalAnswering):
        @contextmanager
        def open(self, spec: EdgeModel, manifest: Manifest, pipeline: Pipeline) -> Iterator[tuple[str, Infer]]:
            if spec.quantization.method == "none":
                raise EdgespecError()
            with super().open(spec, manifest, pipeline) as answering:
                yield answering

    refusing = Refusing(None)
    refusing.version = "refusing"
    found = make(root, cache, refusing).evaluate(spec(), DATA)
    assert [v.variant for v in found.variants] == ["deployed"]
    assert [left.variant for left in found.left_out] == ["teacher"]
    assert next(iter(gate_results(found)))[0] is False
    assert "no teacher to compare with" in plain(render(found))


def test_numbers_that_are_none_are_refused(root: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgespec.build.evaluation import engines, local

    def broken(program: bytes, tokenizer: Any) -> engines.Engine:
        return engines.Engine("broken", lambda texts: np.full((len(texts), 3), np.nan, np.float32))

    monkeypatch.setattr(local, "edge_in_numpy", broken)
    answering = LocalAnswering(None)
    answering.version = "broken"
    with pytest.raises(EdgespecError, match="ES581"):
        make(root, cache, answering).evaluate(spec(), DATA)


def test_node_says_why_it_cannot_run_a_program(tmp_path: Path) -> None:
    from edgespec.build.embed import read_tokenizer
    from edgespec.build.evaluation.engines import edge_in_node
    from tests.tiny import write_tiny_bert

    folder = write_tiny_bert(tmp_path / "tiny")
    tokenizer = read_tokenizer((folder / "tokenizer.json").read_bytes(), 16)
    parts = local_answering()._node
    assert parts is not None
    with pytest.raises(EdgespecError, match=r"ES584.*refuses"), edge_in_node(parts, b"no program" * 100, tokenizer, 16):
        pass
    gone = replace(parts, script=tmp_path / "none.mjs")
    with pytest.raises(EdgespecError, match=r"ES584"), edge_in_node(gone, b"", tokenizer, 16):
        pass


# --- reports


def test_the_table_names_gates_and_variants(document: EvaluationDocument) -> None:
    text = plain(render(document))
    assert "teacher" in text
    assert "accuracy by tokens" in text
    met, words = next(iter(gate_results(document)))
    assert met
    assert f"(the teacher's {document.variants[0].metrics['accuracy']:.4f} less 0.5)" in words


def test_reports_are_whole_and_the_same_every_time(document: EvaluationDocument) -> None:
    page = html(document)
    assert page == html(document)
    assert page.count("<svg") == page.count("</svg>") == 3
    assert "Mistakes, the surest first" in page
    text = markdown(document, "tiny")
    assert [f"![{p.name}](tiny-{p.name}.svg)" in text for p in plots(document)] == [True] * 3


def test_nothing_in_the_data_becomes_markup(document: EvaluationDocument) -> None:
    nasty = '<script>alert("|x|")</script>'
    deployed = document.variants[-1]
    mistakes = tuple(m.model_copy(update={"text": nasty}) for m in deployed.mistakes)
    labels = tuple(r.model_copy(update={"label": nasty}) for r in deployed.labels)
    changed = deployed.model_copy(update={"mistakes": mistakes, "labels": labels})
    found = document.model_copy(update={"variants": (*document.variants[:-1], changed)})
    assert "<script" not in html(found)
    assert "<script" not in markdown(found, "x")
    assert all("<script" not in p.svg for p in plots(found))
    rows = [r for r in markdown(found, "x").splitlines() if r.startswith("|") and "alert" in r]
    assert rows
    assert all(r.count("|") == len(r.split(" | ")) + 1 for r in rows)


def test_plots_are_well_formed(document: EvaluationDocument) -> None:
    from xml.etree import ElementTree

    for plot in plots(document):
        assert ElementTree.fromstring(plot.svg).tag.endswith("svg")


def test_leaks_are_warned_of(root: Path) -> None:
    from edgespec.build.data import read_examples
    from edgespec.build.datafiles import leakage

    write_examples(root / "data" / "copy.jsonl")
    examples = read_examples((root / "data" / "copy.jsonl").read_bytes(), "data/copy.jsonl", spec().task).unwrap()
    (d,) = leakage(spec(), root, examples, "data/copy.jsonl")
    assert d.code == "ES583"
    assert leakage(spec(), root, read_examples((root / DATA).read_bytes(), DATA, spec().task).unwrap(), DATA) == []


def test_texts_that_were_only_distilled_from_leak_too(root: Path) -> None:
    from edgespec.build.data import read_examples
    from edgespec.build.datafiles import leakage

    examples = read_examples((root / DATA).read_bytes(), DATA, spec().task).unwrap()
    texts = [e.text for e in examples[:2] if not hasattr(e, "text_a")]
    (root / "data" / "texts.txt").write_text("\n".join(["new", *texts]))
    distil = {"distill": {"data": "data/texts.txt", "student": {"layers": 1}}}
    asked = spec(model={"source": "./models/tiny", "pipeline": [distil]})
    (d,) = leakage(asked, root, examples, DATA)
    assert "2 of 90 examples" in d.detail
    assert "line 1 is line 2 of data/texts.txt" in d.detail


def test_each_data_file_is_described_once(root: Path) -> None:
    from edgespec.build.datafiles import described

    found = described(spec(), root)
    assert list(found) == ["data/train.jsonl", DATA]
    assert found[DATA][1] == "languages: de 50%, en 50%"
    assert described(spec(quality={"data": "data/none.jsonl", "metrics": {"accuracy": {"min": 0}}}), root).keys() == {
        "data/train.jsonl"
    }


def test_a_compressed_model_has_a_teacher_and_a_student(root: Path, cache: Cache) -> None:
    pipeline = [{"prune": {"layers": [0]}}, {"head": {"train": "data/train.jsonl", "seed": 7}}]
    asked = spec(model={"source": "./models/tiny", "pipeline": pipeline})
    found = make(root, cache, local_answering()).evaluate(asked, DATA)
    assert [v.variant for v in found.variants] == ["teacher", "student", "deployed"]
    assert [v.what.removeprefix("./models/tiny, ") for v in found.variants] == [
        "head, float32",
        "prune, head, float32",
        "prune, head, int8",
    ]
    sizes = [v.size for v in found.variants]
    assert sizes == sorted(sizes, reverse=True)
    assert len({v.artifact for v in found.variants}) == 3
    teacher = make(root, cache, Silent(local_answering().version)).teacher(asked, DATA)
    assert teacher == found.variants[0].metrics
