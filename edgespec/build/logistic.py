"""Regularised logistic regression by Newton's method with conjugate gradients: exact, deterministic, numpy only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
GRID: Final = 2.0**-7
"""Weights are rounded to this, for noise in the last bits of the embeddings not to show in the artifact."""
TOLERANCE: Final = 1e-10
MAX_STEPS: Final = 100


@dataclass(frozen=True, slots=True)
class Problem:
    """x [n, d], y [n, k] of zeros and ones; minimise the summed cross-entropy + l2/2 * |weights|^2."""

    x: Array
    y: Array
    l2: float
    independent: bool
    """One sigmoid a column, instead of one softmax over them."""

    def rows(self, index: npt.NDArray[np.intp]) -> Problem:
        return Problem(self.x[index], self.y[index], self.l2, self.independent)

    @property
    def design(self) -> Array:
        """x with a column of ones for the bias."""
        return np.hstack([self.x, np.ones((len(self.x), 1))])

    @property
    def penalty(self) -> Array:
        """[d + 1, 1]: the bias is all but free; the trifle keeps the optimum unique."""
        return np.array([[self.l2]] * self.x.shape[1] + [[self.l2 * 1e-6]])


def _chances(z: Array, *, independent: bool) -> Array:
    if independent:
        return 0.5 * (1 + np.tanh(0.5 * z))
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


def _loss(problem: Problem, a: Array, w: Array) -> float:
    z = a @ w
    if problem.independent:
        data = (np.logaddexp(0, z) - problem.y * z).sum()
    else:
        top = z.max(axis=1)
        data = (top + np.log(np.exp(z - top[:, None]).sum(axis=1)) - (problem.y * z).sum(axis=1)).sum()
    return float(data + 0.5 * (problem.penalty * w * w).sum())


def fit(problem: Problem) -> tuple[Array, Array]:
    """Kernel [d, k] and bias [k] at the optimum."""
    a, penalty = problem.design, problem.penalty
    w: Array = np.zeros((a.shape[1], problem.y.shape[1]))
    loss = _loss(problem, a, w)
    for _ in range(MAX_STEPS):
        p = _chances(a @ w, independent=problem.independent)
        gradient = a.T @ (p - problem.y) + penalty * w
        size = float(np.sqrt((gradient**2).sum()))
        if size < TOLERANCE * len(a):
            break
        step = _newton_step(problem, a, p, gradient, min(0.1, size))
        slope = float((gradient * step).sum())
        rate, improved = 1.0, False
        while rate > 1e-6 and not improved:
            trial = _loss(problem, a, w + rate * step)
            improved = trial <= loss + 1e-4 * rate * slope
            rate = rate if improved else rate / 2
        w = w + rate * step
        if not improved:  # the loss cannot tell the difference any more: that is the optimum, to rounding
            break
        loss = trial
    return w[:-1], w[-1]


def _newton_step(problem: Problem, a: Array, p: Array, gradient: Array, forcing: float) -> Array:
    """Solves Hessian * step = -gradient by conjugate gradients, to `forcing` of the gradient's length."""
    penalty = problem.penalty

    def hessian(v: Array) -> Array:
        u = a @ v
        mean = p * u if problem.independent else (p * u).sum(axis=1, keepdims=True)
        curved = p * (u - mean)
        return np.asarray(a.T @ curved + penalty * v)

    step, residual = np.zeros_like(gradient), -gradient
    direction, squared = residual, float((residual**2).sum())
    goal = squared * forcing**2
    for _ in range(10 * gradient.size):
        if squared <= goal:
            break
        turned = hessian(direction)
        length = squared / float((direction * turned).sum())
        step = step + length * direction
        residual = residual - length * turned
        previous, squared = squared, float((residual**2).sum())
        direction = residual + (squared / previous) * direction
    return step


def round_weights(kernel: Array, bias: Array) -> tuple[Array, Array]:
    return np.rint(kernel / GRID) * GRID, np.rint(bias / GRID) * GRID


def cross_validate(problem: Problem, *, folds: int, seed: int, threshold: float = 0.5) -> float | None:
    """Accuracy (all labels right) on rows that were left out; None where there are too few.

    `threshold` is the probability from which an independent label is given.
    """
    n = len(problem.x)
    if n < 2 * folds:
        return None
    cut = np.log(threshold / (1 - threshold))
    order = np.random.default_rng(seed).permutation(n)
    right = 0
    for fold in range(folds):
        test = order[fold::folds]
        kernel, bias = fit(problem.rows(np.setdiff1d(order, test)))
        z = problem.x[test] @ kernel + bias
        if problem.independent:
            right += int(((z >= cut) == (problem.y[test] > 0)).all(axis=1).sum())
        else:
            right += int((z.argmax(axis=1) == problem.y[test].argmax(axis=1)).sum())
    return right / n
