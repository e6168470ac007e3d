"""Answers are the Worker's: the same shapes, and the same six digits."""

from __future__ import annotations

import numpy as np
import pytest

from edgespec.build.evaluation.answers import answer_of, significant
from edgespec.spec.models import Embedding, TextClassification

ONE = TextClassification(type="text-classification", labels=("a", "b", "c"))
MANY = TextClassification(type="text-classification", labels=("a", "b", "c"), multi_label=True, threshold=0.4)


def row(*values: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.array(values, np.float32)


def test_one_label() -> None:
    found = answer_of(row(0, 2, 1), ONE)
    assert list(found) == ["label", "score", "scores"]
    assert found["label"] == "b"
    assert found["scores"] == {"a": 0.0900306, "b": 0.665241, "c": 0.244728}
    assert answer_of(row(1, 1, 0), ONE)["label"] == "a"  # of equal ones the first
    assert answer_of(row(1000, 0, 0), ONE)["score"] == 1.0


def test_several_labels_best_first() -> None:
    found = answer_of(row(0, 2, -2), MANY)
    assert found == {"labels": ["b", "a"], "scores": {"a": 0.5, "b": 0.880797, "c": 0.119203}}
    assert answer_of(row(-1000, -9, -9), MANY)["labels"] == []


def test_embeddings() -> None:
    assert answer_of(row(3, 4), Embedding(type="embedding"))["embedding"] == [0.6, 0.8]
    assert answer_of(row(3, 4), Embedding(type="embedding", normalize=False))["embedding"] == [3.0, 4.0]
    assert answer_of(row(0, 0), Embedding(type="embedding"))["embedding"] == [0.0, 0.0]


@pytest.mark.parametrize(("value", "short"), [(1 / 3, 0.333333), (123456.78, 123457.0), (1e-9 / 3, 3.33333e-10)])
def test_six_digits(value: float, short: float) -> None:
    assert significant(value) == short
