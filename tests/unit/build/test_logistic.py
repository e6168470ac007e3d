from __future__ import annotations

import numpy as np
import pytest

from edgespec.build.logistic import GRID, Problem, cross_validate, fit, round_weights


def sample(*, independent: bool = False, labels: int = 3, rows: int = 90, l2: float = 1.0) -> Problem:
    rng = np.random.default_rng(1)
    centres = rng.normal(size=(labels, 8))
    kind = np.arange(rows) % labels
    x = centres[kind] + rng.normal(0, 0.8, (rows, 8))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = np.eye(labels)[kind]
    if independent:
        y[::5] = np.roll(y[::5], 1, axis=1) + y[::5]
    return Problem(x, y, l2, independent)


def gradient(p: Problem, kernel: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    z = p.x @ kernel + bias
    chances = 1 / (1 + np.exp(-z)) if p.independent else np.exp(z) / np.exp(z).sum(1, keepdims=True)
    return p.x.T @ (chances - p.y) + p.l2 * kernel, (chances - p.y).sum(0)


@pytest.mark.parametrize("independent", [False, True])
@pytest.mark.parametrize("l2", [0.01, 1.0, 100.0])
def test_the_fit_is_the_optimum(independent: bool, l2: float) -> None:
    problem = sample(independent=independent, l2=l2)
    by_weights, by_bias = gradient(problem, *fit(problem))
    assert np.abs(by_weights).max() < 1e-6
    assert np.abs(by_bias).max() < 1e-4  # the bias has a penalty of a millionth of l2


def test_more_penalty_gives_smaller_weights() -> None:
    sizes = [np.abs(fit(sample(l2=l2))[0]).sum() for l2 in (0.01, 0.1, 1, 10, 100)]
    assert sizes == sorted(sizes, reverse=True)


def test_separable_data_and_one_sided_labels_converge() -> None:
    x = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    y = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    kernel, bias = fit(Problem(x, y, 1e-3, independent=False))
    assert ((x @ kernel + bias).argmax(1) == y.argmax(1)).all()
    kernel, bias = fit(Problem(x, np.array([[1.0, 0.0]] * 3 + [[1.0, 1.0]]), 1.0, independent=True))
    assert np.isfinite(kernel).all()
    assert np.isfinite(bias).all()


def test_noise_in_the_last_bits_does_not_reach_the_rounded_weights() -> None:
    problem = sample()
    rng = np.random.default_rng(5)
    exact = round_weights(*fit(problem))
    noisy = Problem(problem.x + rng.normal(0, 1e-9, problem.x.shape), problem.y, problem.l2, problem.independent)
    for a, b in zip(exact, round_weights(*fit(noisy)), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, np.rint(a / GRID) * GRID)


def test_cross_validation_is_seeded_and_wants_enough_rows() -> None:
    problem = sample()
    first = cross_validate(problem, folds=5, seed=7)
    assert first == cross_validate(problem, folds=5, seed=7)
    assert first is not None
    assert first > 0.6
    assert cross_validate(sample(rows=9), folds=5, seed=7) is None
