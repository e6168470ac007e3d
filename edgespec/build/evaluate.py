"""Quality of a model's answers on examples: pure arithmetic; who answers is the caller's business."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from edgespec.build.data import Example, Keyworded, Labelled, Pair, Task
from edgespec.spec.models import TextClassification

Answer: TypeAlias = Mapping[str, Any]
"""One result of the Worker's `/infer`; for a pair, `{"similarity": cosine}`."""
Infer: TypeAlias = Callable[[Sequence[str]], Sequence[Answer]]
"""Texts to results, in order; it makes its own batches."""
DIGITS: Final = 6


def measure(examples: Sequence[Example], task: Task, infer: Infer) -> dict[str, float]:
    """Every metric of the task, rounded to 6 decimals."""
    return score(examples, answers_to(examples, infer), task)


def by_language(examples: Sequence[Example], answers: Sequence[Answer], task: Task) -> dict[str, dict[str, float]]:
    """The metrics for the examples of each language that they name."""
    languages = sorted({e.language for e in examples if e.language})
    groups = {lang: [i for i, e in enumerate(examples) if e.language == lang] for lang in languages}
    return {lang: score([examples[i] for i in rows], [answers[i] for i in rows], task) for lang, rows in groups.items()}


def answers_to(examples: Sequence[Example], infer: Infer) -> list[Answer]:
    """One answer an example. Raises ValueError when `infer` gives another number of results than texts."""
    pairs = [e for e in examples if isinstance(e, Pair)]
    if pairs:
        texts = [t for p in pairs for t in (p.text_a, p.text_b)]
        vectors = [r["embedding"] for r in _ask(texts, infer)]
        return [{"similarity": cosine(a, b)} for a, b in zip(vectors[::2], vectors[1::2], strict=True)]
    return _ask([e.text for e in examples if not isinstance(e, Pair)], infer)


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
        expected = [set(e.labels) for e in examples if isinstance(e, Labelled)]
        given = [set(a["labels"]) if task.multi_label else {a["label"]} for a in answers]
        metrics = _classification(expected, given, task)
    elif task.type == "keyword-extraction":
        wanted = [{_fold(k) for k in e.keywords} for e in examples if isinstance(e, Keyworded)]
        found = [{_fold(k["text"]) for k in list(a["keywords"])[: task.top_k]} for a in answers]
        metrics = _overlap(wanted, found)
    else:
        truth = [e.score for e in examples if isinstance(e, Pair)]
        metrics = {"spearman": spearman(truth, [float(a["similarity"]) for a in answers])}
    return {name: round(value, DIGITS) + 0.0 for name, value in sorted(metrics.items())}


def _fold(text: str) -> str:
    return " ".join(text.casefold().split())


def _classification(
    expected: Sequence[set[str]], given: Sequence[set[str]], task: TextClassification
) -> dict[str, float]:
    """macro_f1 is the mean over the labels that are expected or given anywhere."""
    exact = sum(e == g for e, g in zip(expected, given, strict=True)) / len(expected)
    scores = []
    for label in task.labels:
        hits = sum(label in e and label in g for e, g in zip(expected, given, strict=True))
        total = sum(label in e for e in expected) + sum(label in g for g in given)
        if total:
            scores.append(2 * hits / total)
    macro = sum(scores) / len(scores) if scores else 1.0
    if task.multi_label:
        return {"exact_match": exact, "macro_f1": macro, "micro_f1": _overlap(expected, given)["f1"]}
    return {"accuracy": exact, "macro_f1": macro}


def _overlap(expected: Sequence[set[str]], given: Sequence[set[str]]) -> dict[str, float]:
    """Micro-averaged. Where nothing is expected and nothing given, all is right."""
    hits = sum(len(e & g) for e, g in zip(expected, given, strict=True))
    wanted, found = sum(map(len, expected)), sum(map(len, given))
    f1 = 2 * hits / (wanted + found) if wanted + found else 1.0
    empty = 1.0 if wanted == found == 0 else 0.0
    return {"f1": f1, "precision": hits / found if found else empty, "recall": hits / wanted if wanted else empty}


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    """0 where one of them has no direction."""
    length = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(x * x for x in b))
    return sum(x * y for x, y in zip(a, b, strict=True)) / length if length else 0.0


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Rank correlation, ties at their mean rank; 0 where either side does not vary."""
    x, y = _ranks(a), _ranks(b)
    mean = (len(x) + 1) / 2
    over = sum((p - mean) * (q - mean) for p, q in zip(x, y, strict=True))
    under = math.sqrt(sum((p - mean) ** 2 for p in x) * sum((q - mean) ** 2 for q in y))
    return over / under if under else 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for i in order[start:end]:
            ranks[i] = (start + 1 + end) / 2
        start = end
    return ranks
