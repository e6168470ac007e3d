"""A model's rows as the Worker's answers: what worker_runtime/src/tasks makes of them, so that one arithmetic measures
both. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgespec.spec.models import Embedding, TextClassification


def answer_of(row: NDArray[np.float32], task: TextClassification | Embedding) -> dict[str, Any]:
    """One text's answer; `tokens` are added by who has counted them."""
    if isinstance(task, TextClassification):
        return _labels(row.astype(float).tolist(), task)
    values = row.astype(float)
    length = math.sqrt(float((values * values).sum()))
    scaled = values / length if task.normalize and length > 0 else values
    return {"embedding": [significant(v) for v in scaled.tolist()]}


def _labels(logits: Sequence[float], task: TextClassification) -> dict[str, Any]:
    if task.multi_label:
        scores = [sigmoid(v) for v in logits]
        chosen = sorted((i for i, s in enumerate(scores) if s >= task.threshold), key=lambda i: (-scores[i], i))
        return {"labels": [task.labels[i] for i in chosen], "scores": _scores(scores, task)}
    scores = softmax(logits)
    best = max(range(len(scores)), key=scores.__getitem__)
    return {"label": task.labels[best], "score": significant(scores[best]), "scores": _scores(scores, task)}


def _scores(scores: Sequence[float], task: TextClassification) -> dict[str, float]:
    return {label: significant(s) for label, s in zip(task.labels, scores, strict=True)}


def softmax(logits: Sequence[float]) -> list[float]:
    top = max(logits)
    weights = [math.exp(v - top) for v in logits]
    total = math.fsum(weights)
    return [w / total for w in weights]


def sigmoid(value: float) -> float:
    small = math.exp(-abs(value))
    return 1 / (1 + small) if value >= 0 else small / (1 + small)


def significant(value: float) -> float:
    """Six digits, as the Worker rounds."""
    return float(f"{value:.5e}")
