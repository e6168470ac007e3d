"""What there is to say of labels given against labels expected. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

BINS: Final = 15
"""Of the reliability diagram and of ECE: equal widths from 0 to 1 (Guo et al. 2017, https://arxiv.org/abs/1706.04599)."""


@dataclass(frozen=True, slots=True)
class LabelScore:
    label: str
    precision: float
    """0 where the label was never given."""
    recall: float
    """0 where it was never expected."""
    f1: float
    support: int
    """Examples that expect it."""
    given: int


@dataclass(frozen=True, slots=True)
class Bin:
    """Answers whose confidence is in (low, high]."""

    low: float
    high: float
    count: int
    confidence: float
    """Their mean, 0 without answers."""
    accuracy: float


@dataclass(frozen=True, slots=True)
class Calibration:
    ece: float
    """Expected calibration error: the mean distance of confidence and accuracy over the bins, by their counts."""
    brier: float
    """Mean squared distance of the probabilities from what is right: over classes summed, over labels averaged."""
    bins: tuple[Bin, ...]


def label_scores(
    expected: Sequence[frozenset[str]], given: Sequence[frozenset[str]], labels: Sequence[str]
) -> tuple[LabelScore, ...]:
    """One a label, in the order of `labels`."""
    found = []
    for label in labels:
        hits = sum(label in e and label in g for e, g in zip(expected, given, strict=True))
        support, times = sum(label in e for e in expected), sum(label in g for g in given)
        f1 = 2 * hits / (support + times) if support + times else 0.0
        precision, recall = hits / times if times else 0.0, hits / support if support else 0.0
        found.append(LabelScore(label, precision, recall, f1, support, times))
    return tuple(found)


def confusion(expected: Sequence[str], given: Sequence[str], labels: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """How often each label (a row) was answered as each (a column)."""
    index = {label: i for i, label in enumerate(labels)}
    counts = [[0] * len(labels) for _ in labels]
    for e, g in zip(expected, given, strict=True):
        counts[index[e]][index[g]] += 1
    return tuple(tuple(row) for row in counts)


def calibration(
    probabilities: Sequence[Sequence[float]], expected: Sequence[frozenset[str]], labels: Sequence[str], *, multi: bool
) -> Calibration:
    """`probabilities` are [examples][labels]. Of one label an example the confidence is the highest probability, and
    right or wrong the answer; of several each label's probability is one, right where the label is expected."""
    truth = [[float(label in e) for label in labels] for e in expected]
    squares = [[(p - t) ** 2 for p, t in zip(ps, ts, strict=True)] for ps, ts in zip(probabilities, truth, strict=True)]
    if multi:
        pairs = [(p, t) for ps, ts in zip(probabilities, truth, strict=True) for p, t in zip(ps, ts, strict=True)]
        brier = sum(map(sum, squares)) / max(1, len(pairs))
    else:
        best = [max(range(len(ps)), key=ps.__getitem__) for ps in probabilities]
        pairs = [(ps[b], ts[b]) for ps, ts, b in zip(probabilities, truth, best, strict=True)]
        brier = sum(map(sum, squares)) / max(1, len(squares))
    bins = _bins(pairs)
    total = max(1, len(pairs))
    ece = sum(b.count / total * abs(b.confidence - b.accuracy) for b in bins)
    return Calibration(ece, brier, bins)


def _bins(pairs: Sequence[tuple[float, float]]) -> tuple[Bin, ...]:
    inside: list[list[tuple[float, float]]] = [[] for _ in range(BINS)]
    for confidence, right in pairs:
        upper = -int(-confidence * BINS // 1)  # the ceiling: a bin holds its upper edge
        inside[min(BINS, max(1, upper)) - 1].append((confidence, right))
    return tuple(_bin(n, found) for n, found in enumerate(inside))


def _bin(n: int, found: Sequence[tuple[float, float]]) -> Bin:
    count = len(found)
    confidence = sum(c for c, _ in found) / count if count else 0.0
    accuracy = sum(r for _, r in found) / count if count else 0.0
    return Bin(n / BINS, (n + 1) / BINS, count, confidence, accuracy)
