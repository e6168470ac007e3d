"""Quality of a model's answers on examples: pure arithmetic; who answers is the caller's business."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from edgespec.build.data import Example, Keyworded, Labelled, Pair, Task
from edgespec.build.evaluation.classification import label_scores
from edgespec.build.evaluation.ranking import ndcg, pearson, reciprocal_rank, spearman
from edgespec.spec.models import TextClassification

Answer: TypeAlias = Mapping[str, Any]
"""One result of the Worker's `/infer`; for a pair `{"similarity", "rank", "tokens"}`, see `answers_to`."""
Infer: TypeAlias = Callable[[Sequence[str]], Sequence[Answer]]
"""Texts to results, in order; it makes its own batches."""
DIGITS: Final = 6
FEW: Final = 5
"""How many of the first places `..._at_5` looks at."""


def measure(examples: Sequence[Example], task: Task, infer: Infer) -> dict[str, float]:
    """Every metric of the task, rounded to 6 decimals."""
    return score(examples, answers_to(examples, infer), task)


def by_language(examples: Sequence[Example], answers: Sequence[Answer], task: Task) -> dict[str, dict[str, float]]:
    """The metrics for the examples of each language that they name."""
    languages = sorted({e.language for e in examples if e.language})
    groups = {lang: [i for i, e in enumerate(examples) if e.language == lang] for lang in languages}
    return {lang: score([examples[i] for i in rows], [answers[i] for i in rows], task) for lang, rows in groups.items()}


def answers_to(examples: Sequence[Example], infer: Infer) -> list[Answer]:
    """One answer an example. Raises ValueError when `infer` gives another number of results than texts.

    A pair's answer has the `similarity` of its texts, the `tokens` of the longer one, and `rank`: the place of its
    second text among all second texts by similarity to its first one, None unless the pair is positive, that is its
    score is at or above the middle between the lowest and the highest score of the data.
    """
    pairs = [e for e in examples if isinstance(e, Pair)]
    if pairs:
        return _pair_answers(pairs, infer)
    return _ask([e.text for e in examples if not isinstance(e, Pair)], infer)


def _pair_answers(pairs: Sequence[Pair], infer: Infer) -> list[Answer]:
    import numpy as np

    from edgespec.build.evaluation.retrieval import retrieval_ranks

    firsts = {t: i for i, t in enumerate(dict.fromkeys(p.text_a for p in pairs))}
    seconds = {t: i for i, t in enumerate(dict.fromkeys(p.text_b for p in pairs))}
    texts = list(dict.fromkeys([*firsts, *seconds]))
    results = dict(zip(texts, _ask(texts, infer), strict=True))
    vectors = {t: np.asarray(r["embedding"], np.float64) for t, r in results.items()}
    middle = (min(p.score for p in pairs) + max(p.score for p in pairs)) / 2
    ranks = retrieval_ranks(
        np.stack([vectors[t] for t in firsts]),
        np.stack([vectors[t] for t in seconds]),
        [(firsts[p.text_a], seconds[p.text_b]) for p in pairs],
        [p.score >= middle for p in pairs],
    )
    return [
        {
            "similarity": cosine(vectors[p.text_a].tolist(), vectors[p.text_b].tolist()),
            "rank": rank,
            "tokens": max(int(results[t].get("tokens", 0)) for t in (p.text_a, p.text_b)),
        }
        for p, rank in zip(pairs, ranks, strict=True)
    ]


def _ask(texts: Sequence[str], infer: Infer) -> list[Answer]:
    results = list(infer(texts))
    if len(results) != len(texts):
        raise ValueError(f"{len(texts)} texts were asked about, {len(results)} results came back")
    return results


def score(examples: Sequence[Example], answers: Sequence[Answer], task: Task) -> dict[str, float]:
    """The metrics of answers that are there already. Raises ValueError for no examples: nothing can be said of them."""
    if not examples:
        raise ValueError("no examples to measure")
    if isinstance(task, TextClassification):
        expected = [frozenset(e.labels) for e in examples if isinstance(e, Labelled)]
        metrics = _classification(expected, [labels_given(a, task) for a in answers], task)
    elif task.type == "keyword-extraction":
        wanted = [frozenset(_fold(k) for k in e.keywords) for e in examples if isinstance(e, Keyworded)]
        found = [[_fold(k["text"]) for k in list(a["keywords"])[: task.top_k]] for a in answers]
        metrics = _keywords(wanted, found, task.top_k)
    else:
        metrics = _pairs([e for e in examples if isinstance(e, Pair)], answers)
    return {name: round(value, DIGITS) + 0.0 for name, value in sorted(metrics.items())}


def labels_given(answer: Answer, task: TextClassification) -> frozenset[str]:
    return frozenset(answer["labels"]) if task.multi_label else frozenset((answer["label"],))


def _fold(text: str) -> str:
    return " ".join(text.casefold().split())


def _classification(
    expected: Sequence[frozenset[str]], given: Sequence[frozenset[str]], task: TextClassification
) -> dict[str, float]:
    """macro_f1 is the mean over the labels that are expected or given anywhere."""
    exact = sum(e == g for e, g in zip(expected, given, strict=True)) / len(expected)
    scores = [s.f1 for s in label_scores(expected, given, task.labels) if s.support or s.given]
    macro = sum(scores) / len(scores) if scores else 1.0
    if task.multi_label:
        return {"exact_match": exact, "macro_f1": macro, "micro_f1": _overlap(expected, given)["f1"]}
    return {"accuracy": exact, "macro_f1": macro}


def _overlap(expected: Sequence[frozenset[str]], given: Sequence[frozenset[str]]) -> dict[str, float]:
    """Micro-averaged. Where nothing is expected and nothing given, all is right."""
    hits = sum(len(e & g) for e, g in zip(expected, given, strict=True))
    wanted, found = sum(map(len, expected)), sum(map(len, given))
    f1 = 2 * hits / (wanted + found) if wanted + found else 1.0
    empty = 1.0 if wanted == found == 0 else 0.0
    return {"f1": f1, "precision": hits / found if found else empty, "recall": hits / wanted if wanted else empty}


def _keywords(wanted: Sequence[frozenset[str]], found: Sequence[list[str]], top_k: int) -> dict[str, float]:
    """Of the whole lists (micro-averaged), of their first places, and of their order."""
    few = min(FEW, top_k)
    ranked = [list(dict.fromkeys(f)) for f in found]
    first = [frozenset(f[:1]) for f in ranked]
    metrics = _overlap(wanted, [frozenset(f) for f in ranked])
    start = _overlap(wanted, [frozenset(f[:few]) for f in ranked])
    metrics |= {"precision_at_1": _overlap(wanted, first)["precision"]}
    metrics |= {"precision_at_5": start["precision"], "recall_at_5": start["recall"]}
    metrics["mrr"] = _mean([reciprocal_rank(f, w) for f, w in zip(ranked, wanted, strict=True)])
    metrics["ndcg"] = _mean([ndcg(f, w, top_k) for f, w in zip(ranked, wanted, strict=True)])
    return metrics


def _pairs(pairs: Sequence[Pair], answers: Sequence[Answer]) -> dict[str, float]:
    """Correlations over all pairs, retrieval over the positive ones; 0 where there is none."""
    truth, similar = [p.score for p in pairs], [float(a["similarity"]) for a in answers]
    ranks = [int(a["rank"]) for a in answers if a.get("rank") is not None]
    return {
        "spearman": spearman(truth, similar),
        "pearson": pearson(truth, similar),
        "recall_at_1": _mean([float(r <= 1) for r in ranks]),
        "recall_at_5": _mean([float(r <= FEW) for r in ranks]),
        "mrr": _mean([1 / r for r in ranks]),
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    """0 where one of them has no direction."""
    length = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(x * x for x in b))
    return sum(x * y for x, y in zip(a, b, strict=True)) / length if length else 0.0
