"""A variant's answers as its part of an evaluation document. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edgespec.build.data import Example, Labelled, Task
from edgespec.build.evaluate import DIGITS, Answer, by_language, labels_given, score
from edgespec.build.evaluation.classification import calibration, confusion, label_scores
from edgespec.evaluation import BinResult, CalibrationResult, LabelResult, Mistake, Slice
from edgespec.spec.models import TextClassification

MISTAKES: Final = 20
_TEXT: Final = 300
"""Characters of a text that a mistake shows."""
BUCKETS: Final = (8, 16, 32, 64, 128, 256, 512)
"""Upper ends of the ranges of tokens."""


def labels_of(examples: Sequence[Example], answers: Sequence[Answer], task: Task) -> tuple[LabelResult, ...]:
    if not isinstance(task, TextClassification):
        return ()
    found = label_scores(_expected(examples), [labels_given(a, task) for a in answers], task.labels)
    return tuple(
        LabelResult(
            label=s.label,
            precision=_short(s.precision),
            recall=_short(s.recall),
            f1=_short(s.f1),
            support=s.support,
        )
        for s in found
    )


def confusion_of(examples: Sequence[Example], answers: Sequence[Answer], task: Task) -> tuple[tuple[int, ...], ...]:
    if not isinstance(task, TextClassification) or task.multi_label:
        return ()
    expected = [next(iter(e)) for e in _expected(examples)]
    return confusion(expected, [str(a["label"]) for a in answers], task.labels)


def calibration_of(examples: Sequence[Example], answers: Sequence[Answer], task: Task) -> CalibrationResult | None:
    if not isinstance(task, TextClassification):
        return None
    probabilities = [[float(a["scores"][label]) for label in task.labels] for a in answers]
    found = calibration(probabilities, _expected(examples), task.labels, multi=task.multi_label)
    bins = tuple(
        BinResult(
            low=_short(b.low),
            high=_short(b.high),
            count=b.count,
            confidence=_short(b.confidence),
            accuracy=_short(b.accuracy),
        )
        for b in found.bins
    )
    return CalibrationResult(ece=_short(found.ece), brier=_short(found.brier), bins=bins)


def languages_of(examples: Sequence[Example], answers: Sequence[Answer], task: Task) -> tuple[Slice, ...]:
    return tuple(
        Slice(name=language, examples=sum(e.language == language for e in examples), metrics=metrics)
        for language, metrics in by_language(examples, answers, task).items()
    )


def lengths_of(
    examples: Sequence[Example], answers: Sequence[Answer], task: Task, tokens: Sequence[int]
) -> tuple[Slice, ...]:
    """`tokens` of each example; only ranges that hold one."""
    rows: dict[int, list[int]] = {}
    for i, count in enumerate(tokens):
        rows.setdefault(next((n for n, end in enumerate(BUCKETS) if count <= end), len(BUCKETS)), []).append(i)
    return tuple(
        Slice(
            name=bucket_name(n),
            examples=len(found),
            metrics=score([examples[i] for i in found], [answers[i] for i in found], task),
        )
        for n, found in sorted(rows.items())
    )


def bucket_name(n: int) -> str:
    low = 1 if n == 0 else BUCKETS[n - 1] + 1
    return f"{low}-{BUCKETS[n]}" if n < len(BUCKETS) else f"{low}+"


def mistakes_of(examples: Sequence[Example], answers: Sequence[Answer], task: Task) -> tuple[Mistake, ...]:
    """The wrong answers that the model is surest of."""
    if not isinstance(task, TextClassification):
        return ()
    found = []
    for example, answer in zip(examples, answers, strict=True):
        given = labels_given(answer, task)
        if not isinstance(example, Labelled) or given == frozenset(example.labels):
            continue
        wrong = given ^ frozenset(example.labels) if task.multi_label else given
        surest = max(_sureness(answer, label, label in given) for label in wrong)
        shown = tuple(label for label in task.labels if label in given)
        text = example.text if len(example.text) <= _TEXT else f"{example.text[:_TEXT]}…"
        found.append(Mistake(line=example.line, text=text, expected=example.labels, given=shown, score=_short(surest)))
    return tuple(sorted(found, key=lambda m: (-m.score, m.line))[:MISTAKES])


def _sureness(answer: Answer, label: str, given: bool) -> float:
    probability = float(answer["scores"][label])
    return probability if given else 1 - probability


def _expected(examples: Sequence[Example]) -> list[frozenset[str]]:
    return [frozenset(e.labels) for e in examples if isinstance(e, Labelled)]


def _short(value: float) -> float:
    return round(value, DIGITS) + 0.0
