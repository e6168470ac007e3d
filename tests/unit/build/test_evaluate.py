from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from edgespec.build.data import Example, Keyworded, Labelled, Pair
from edgespec.build.evaluate import answers_to, by_language, measure, score
from edgespec.build.evaluation.ranking import spearman
from edgespec.spec.models import Embedding, KeywordExtraction, TextClassification, metrics_of

CLASSES = TextClassification(type="text-classification", labels=("a", "b", "c"))
TAGS = TextClassification(type="text-classification", labels=("a", "b", "c"), multi_label=True)
KEYWORDS = KeywordExtraction(type="keyword-extraction", top_k=3)
PAIRS = Embedding(type="embedding")


def answering(answers: dict[str, Any]) -> Any:
    return lambda texts: [answers[t] for t in texts]


def test_classification() -> None:
    examples = [
        Labelled("1", ("a",), "en"),
        Labelled("2", ("a",), "de"),
        Labelled("3", ("b",), "de"),
        Labelled("4", ("b",)),
    ]
    infer = answering({t: {"label": label} for t, label in zip("1234", "abba", strict=True)})
    assert measure(examples, CLASSES, infer) == {"accuracy": 0.5, "macro_f1": 0.5}
    split = by_language(examples, answers_to(examples, infer), CLASSES)
    assert split == {
        "de": {"accuracy": 0.5, "macro_f1": pytest.approx(1 / 3, abs=1e-6)},
        "en": {"accuracy": 1.0, "macro_f1": 1.0},
    }


def test_multi_label() -> None:
    examples = [Labelled("1", ("a", "b")), Labelled("2", ()), Labelled("3", ("b",))]
    infer = answering({"1": {"labels": ["a"]}, "2": {"labels": []}, "3": {"labels": ["b", "a"]}})
    # a: tp 1 fp 1; b: tp 1 fn 1; c never: 2/3, 2/3; micro: 2*2 / (3 + 3)
    assert measure(examples, TAGS, infer) == {"exact_match": 0.333333, "macro_f1": 0.666667, "micro_f1": 0.666667}


def test_keywords_fold_case_and_spaces_and_stop_at_top_k() -> None:
    examples = [Keyworded("1", ("Battery life", "screen")), Keyworded("2", ("STRASSE",))]
    found = ["battery  LIFE", "phone", "camera", "screen"]
    infer = answering({"1": {"keywords": [{"text": k} for k in found]}, "2": {"keywords": [{"text": "straße"}]}})
    found_1 = measure(examples, KEYWORDS, infer)
    assert {k: found_1[k] for k in ("f1", "precision", "recall")} == {
        "f1": 0.571429,
        "precision": 0.5,
        "recall": 0.666667,
    }
    nothing = answering({"1": {"keywords": []}, "2": {"keywords": []}})
    assert set(measure(examples, KEYWORDS, nothing).values()) == {0.0}


def test_keywords_by_their_order() -> None:
    examples = [Keyworded("1", ("a", "b")), Keyworded("2", ("c",))]
    infer = answering({"1": {"keywords": [{"text": k} for k in "xab"]}, "2": {"keywords": [{"text": "c"}]}})
    found = measure(examples, KEYWORDS, infer)
    assert found["mrr"] == 0.75
    assert found["precision_at_1"] == 0.5
    assert (found["precision_at_5"], found["recall_at_5"]) == (0.75, 1.0)
    # places 2 and 3 of two wanted: (1/log2(3) + 1/log2(4)) / (1/log2(2) + 1/log2(3)) = 0.693426
    assert found["ndcg"] == pytest.approx((0.693426 + 1) / 2, abs=1e-6)


def test_embeddings_rank_by_cosine() -> None:
    vectors = {"x": [1.0, 0.0], "y": [2.0, 0.1], "z": [0.0, 3.0], "w": [1.0, 1.0]}
    asked: list[Sequence[str]] = []

    def infer(texts: Sequence[str]) -> list[dict[str, Any]]:
        asked.append(texts)
        return [{"embedding": vectors[t]} for t in texts]

    pairs = [Pair("x", "y", 0.9), Pair("x", "w", 0.5), Pair("x", "z", 0.1)]
    found = measure(pairs, PAIRS, infer)
    assert found["spearman"] == 1.0
    assert found["pearson"] == pytest.approx(0.964, abs=0.01)
    assert len(asked) == 1
    assert sorted(asked[0]) == ["w", "x", "y", "z"]  # each text once


def test_embeddings_find_their_text_again() -> None:
    vectors = {"q1": [1.0, 0.0], "q2": [0.0, 1.0], "a": [0.9, 0.1], "b": [1.0, 0.05], "c": [0.1, 1.0], "d": [-1.0, 0]}
    infer = answering({t: {"embedding": v, "tokens": len(t)} for t, v in vectors.items()})
    pairs = [Pair("q1", "a", 1.0), Pair("q2", "c", 0.9), Pair("q1", "d", 0.0), Pair("q2", "b", 0.1)]
    answers = answers_to(pairs, infer)
    assert [a["rank"] for a in answers] == [2, 1, None, None]  # b is nearer to q1 than a
    assert [a["tokens"] for a in answers] == [2, 2, 2, 2]
    found = score(pairs, answers, PAIRS)
    assert (found["recall_at_1"], found["recall_at_5"], found["mrr"]) == (0.5, 1.0, 0.75)
    both = [*pairs, Pair("q1", "b", 0.8)]
    assert [a["rank"] for a in answers_to(both, infer)] == [1, 1, None, None, 1]  # friends do not compete


def test_a_model_that_finds_everything_alike_finds_nothing() -> None:
    infer = answering({t: {"embedding": [1.0, 1.0]} for t in "abcd"})
    answers = answers_to([Pair("a", "b", 1.0), Pair("c", "d", 1.0)], infer)
    assert [a["rank"] for a in answers] == [2, 2]


def test_spearman_with_ties_and_without_variation() -> None:
    assert spearman([1, 2, 2, 3], [10, 20, 30, 40]) == pytest.approx(0.9486832980505138)  # scipy.stats.spearmanr
    assert spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert spearman([1, 1, 1], [1, 2, 3]) == 0


@pytest.mark.parametrize(
    ("task", "examples", "answers"),
    [
        (CLASSES, [Labelled("1", ("a",))], [{"label": "a"}]),
        (TAGS, [Labelled("1", ())], [{"labels": []}]),
        (KEYWORDS, [Keyworded("1", ("k",))], [{"keywords": [{"text": "k"}]}]),
        (PAIRS, [Pair("1", "2", 1.0)], [{"similarity": 0.3, "rank": 1}]),
    ],
)
def test_exactly_the_metrics_that_a_spec_may_name(task: Any, examples: list[Example], answers: list[Any]) -> None:
    assert tuple(score(examples, answers, task)) == metrics_of(task)


def test_answers_that_do_not_match_the_questions() -> None:
    with pytest.raises(ValueError, match="2 texts were asked about, 1 results"):
        measure([Labelled("1", ("a",)), Labelled("2", ("a",))], CLASSES, lambda texts: [{"label": "a"}])
    with pytest.raises(ValueError, match="no examples"):
        measure([], CLASSES, lambda texts: [])
