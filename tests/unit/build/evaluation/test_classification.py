from __future__ import annotations

import random

import pytest

from edgespec.build.evaluation.classification import BINS, calibration, confusion, label_scores


def sets(*labels: str) -> list[frozenset[str]]:
    return [frozenset(word) for word in labels]


def test_label_scores() -> None:
    a, b, c = label_scores(sets("a", "a", "b", "b"), sets("a", "b", "b", "b"), ("a", "b", "c"))
    assert (a.precision, a.recall, a.f1, a.support, a.given) == (1, 0.5, pytest.approx(2 / 3), 2, 1)
    assert (b.precision, b.recall, b.f1, b.support, b.given) == (pytest.approx(2 / 3), 1, 0.8, 2, 3)
    assert (c.precision, c.recall, c.f1, c.support, c.given) == (0, 0, 0, 0, 0)


def test_confusion_has_what_was_expected_in_rows() -> None:
    assert confusion("aabb", "abbb", "abc") == ((1, 1, 0), (0, 2, 0), (0, 0, 0))


def test_calibration_of_one_label() -> None:
    probabilities = [[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [1.0, 0.0]]
    found = calibration(probabilities, sets("a", "b", "b", "a"), ("a", "b"), multi=False)
    # 0.9 twice, once right: 2/4 * |0.9 - 0.5|; 0.6 right: 1/4 * 0.4; 1.0 right: 0
    assert found.ece == pytest.approx(0.5 * 0.4 + 0.25 * 0.4)
    assert found.brier == pytest.approx((0.02 + 1.62 + 0.32 + 0) / 4)
    assert len(found.bins) == BINS
    assert sum(b.count for b in found.bins) == 4
    assert found.bins[-1].count == 1  # 1.0 belongs to the last one, 0.9 to the one before
    assert found.bins[13].count == 2


def test_calibration_of_several_labels_looks_at_each_probability() -> None:
    found = calibration([[1.0, 0.0], [0.5, 0.5]], sets("a", "a"), ("a", "b"), multi=True)
    assert found.brier == pytest.approx((0 + 0 + 0.25 + 0.25) / 4)
    assert found.ece == pytest.approx(0)  # of the two at 0.5 one is right
    assert sum(b.count for b in found.bins) == 4


def test_honest_probabilities_are_calibrated_and_boasting_ones_are_not() -> None:
    rng = random.Random(7)
    rows = [(p := 0.5 + 0.5 * rng.random(), 1 - p) for _ in range(5000)]
    truth = sets(*("a" if rng.random() < p else "b" for p, _ in rows))
    assert calibration(rows, truth, ("a", "b"), multi=False).ece < 0.03
    boasting = [(1.0, 0.0)] * len(rows)
    assert calibration(boasting, truth, ("a", "b"), multi=False).ece == pytest.approx(0.25, abs=0.02)


def test_edges_of_bins() -> None:
    for n in range(1, BINS + 1):
        found = calibration([[n / BINS]], sets("a"), ("a",), multi=True)
        assert [i for i, b in enumerate(found.bins) if b.count] == [n - 1]
    assert calibration([[0.0]], sets("b"), ("a",), multi=True).bins[0].count == 1
