"""What happens to each row or each number by itself: norms, activations, scales, biases, positions, sums, products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from edgespec.engine.format import Act
from edgespec.engine.patterns import evaluate as ev
from edgespec.engine.patterns import layout
from edgespec.engine.patterns.draft import Activate, Add, Affine, L2Norm, Mul, Norm
from edgespec.engine.patterns.graph import Array, Step
from edgespec.engine.patterns.layout import View
from edgespec.engine.patterns.positions import positions
from edgespec.engine.patterns.recogniser import Recogniser, Region, close, noise
from edgespec.engine.patterns.values import PADDED, Content

_REDUCING: Final = frozenset({
    "ReduceMean", "ReduceSum", "ReduceL2", "ReduceSumSquare", "LayerNormalization", "SimplifiedLayerNormalization",
    "RMSNormalization", "LpNormalization",
})  # fmt: skip
_LINEAR: Final = frozenset({
    "Add", "Sub", "Mul", "Div", "Neg", "Identity", "Cast", "CastLike", "Where", "Expand", "Dropout", "Sum",
})  # fmt: skip
_CURVES: Final[dict[Act, Callable[[Array], Array]]] = {
    Act.GELU_ERF: ev.gelu,
    Act.GELU_TANH: ev.gelu_tanh,
    Act.SILU: lambda x: x * ev.sigmoid(x),
    Act.RELU: lambda x: np.maximum(x, 0),
    Act.TANH: np.tanh,
}


def norm(r: Recogniser, name: str, step: Step) -> View | None:
    """Layer norm and RMS norm, with or without scale and bias, of whole rows or of each head."""
    for region in reversed(r.regions(name)):
        if not region.same_shape or region.is_positional or not (region.ops() & _REDUCING):
            continue
        found = _read_norm(region)
        if found is None:
            continue
        centred, epsilon, gamma, beta = found
        view = r.view(region.base)
        x, head = layout.heads(view)
        if head != x.width and (centred or beta is not None):
            continue
        operands = {"centred": centred, "head": head, "gamma": gamma, "beta": beta, "epsilon": epsilon}
        out = r.emit(Norm, x.width, per_text=r.is_per_text(view), x=x, **operands)
        return layout.moved(view, out)
    return None


def _read_norm(region: Region) -> tuple[bool, float, Array | None, Array | None] | None:
    """(centred, epsilon, gamma, beta), when the region is a norm over the last axis."""
    if region.shape(0)[-1] < 2:
        return None
    pairs = [_probe(region, seed, 1.0) for seed in range(4)]
    small_pairs = [_probe(region, seed, 1e-3) for seed in (5, 6)]
    if any(y is None for _, y in (*pairs, *small_pairs)):
        return None
    x, y = _stacked(pairs)
    small, y_small = _stacked(small_pairs)
    for centred in (True, False):
        for epsilon in [e for e in region.scalars() if 0 < e < 1e-2] or [0.0] * region.facts.graph.half:
            core, core_small = _normalised(x, centred, epsilon), _normalised(small, centred, epsilon)
            gamma, beta = _fit(core, y)
            if close(core * gamma + beta, y) and close(core_small * gamma + beta, y_small, 1e-5):
                if not centred and not np.allclose(beta, 0, atol=1e-7):
                    return None
                scale = None if np.allclose(gamma, 1, atol=1e-9) else gamma.astype(np.float32)
                return (
                    centred,
                    epsilon,
                    scale,
                    beta.astype(np.float32) if centred and (abs(beta) > 1e-9).any() else None,
                )
    return None


def _probe(region: Region, seed: int, size: float) -> tuple[Array, Array | None]:
    x = noise(region.shape(0), seed) * size
    y = region.compute(x, 0)
    return x, y if y is not None and y.shape == x.shape else None


def _stacked(pairs: list[tuple[Array, Array | None]]) -> tuple[Array, Array]:
    """Several probes as rows: one row alone would fit any scale and bias."""
    width = pairs[0][0].shape[-1]
    x = np.concatenate([x.reshape(-1, width) for x, _ in pairs])
    return x, np.concatenate([y.reshape(-1, width) for _, y in pairs if y is not None])


def _normalised(x: Array, centred: bool, epsilon: float) -> Array:
    x = x - x.mean(-1, keepdims=True) if centred else x
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon))


def _fit(x: Array, y: Array) -> tuple[Array, Array]:
    """Per column of the last axis: y = x * scale + shift, by least squares."""
    a, b = x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1])
    mean_a, mean_b = a.mean(0), b.mean(0)
    spread = ((a - mean_a) ** 2).sum(0)
    scale = ((a - mean_a) * (b - mean_b)).sum(0) / np.where(spread > 0, spread, 1)
    return scale, mean_b - scale * mean_a


def unit(r: Recogniser, name: str, step: Step) -> View | None:
    """L2 normalisation of rows."""
    for region in reversed(r.regions(name)):
        if not region.same_shape or region.is_positional or not (region.ops() & _REDUCING):
            continue
        x = noise(region.shape(0))
        y = region.compute(x, 0)
        if not close(y, np.asarray(x / np.linalg.norm(x, axis=-1, keepdims=True))):
            continue
        view = r.view(region.base)
        row = layout.rows(view)
        out = r.emit(L2Norm, row.width, per_text=r.is_per_text(view), x=row, epsilon=_floor(region, x))
        return layout.moved(view, out)
    return None


def _floor(region: Region, x: Array) -> float:
    """The length below which a row is divided by that length."""
    tiny = region.compute(x * 1e-20, 0)
    largest = 0.0 if tiny is None else float(np.abs(tiny).max())
    found = float(np.abs(x).max()) * 1e-20 / largest if largest > 0 else 0.0
    return float(f"{found:.6g}") if 1e-16 < found < 1e-2 else 1e-12


def activation(r: Recogniser, name: str, step: Step) -> View | None:
    for region in reversed(r.regions(name)):
        if not region.same_shape or region.is_positional:
            continue
        act = _curve_of(region)
        if act is None:
            continue
        view = r.view(region.base)
        covered = layout.cover(view)
        out = r.emit(Activate, covered.width, per_text=r.is_per_text(view), x=covered, act=act)
        return layout.moved(view, out)
    return None


def _curve_of(region: Region) -> Act | None:
    left = set(_CURVES)
    for seed, size in enumerate((2.0, 4.0, 20.0)):
        x = noise(region.shape(0), seed) * size
        y = region.compute(x, 0)
        left = {act for act in left if close(y, _CURVES[act](x), 6e-5 if region.facts.graph.half else 1e-6)}
        if not left:
            return None
    return min(left)


def affine(r: Recogniser, name: str, step: Step) -> View | None:
    """Scales, biases, what changes nothing, and absolute positions."""
    for region in r.regions(name):
        if not region.same_shape or not region.ops() <= _LINEAR:
            continue
        a, b = (region.compute(noise(region.shape(0), seed), 0) for seed in (1, 2))
        if a is None or b is None or a.shape != region.shape(0):
            continue
        x, y = noise(region.shape(0), 1), noise(region.shape(0), 2)
        factor = (a - b) / (x - y)
        shift = a - factor * x
        if not np.isfinite(factor).all() or not _by_column(factor):
            continue
        third = noise(region.shape(0), 3)
        if not close(region.compute(third, 0), np.asarray(third * factor + shift), 1e-5):
            continue
        if region.is_positional and not _by_column(shift):
            if (found := positions(r, region, factor)) is not None:
                return found
            continue
        if _by_column(shift) and _same_everywhere(r, region, factor, shift):
            return _emit_affine(r, region, factor, shift)
    return None


def _by_column(values: Array) -> bool:
    flat = values.reshape(-1, values.shape[-1]) if values.ndim else values.reshape(1, 1)
    return bool(np.allclose(flat, flat[:1], rtol=1e-6, atol=1e-7))


def _same_everywhere(r: Recogniser, region: Region, factor: Array, shift: Array) -> bool:
    """Whether long texts, and the real tokens of padded ones, get the same scale and shift."""
    if not region.is_positional:
        return True
    lead = (0,) * (factor.ndim - 1)
    for sample in (2, PADDED):
        x = noise(region.shape(sample), 4)
        y = region.compute(x, sample)
        wanted = np.asarray(x * factor[lead] + shift[lead])
        if y is None or y.shape != x.shape:
            return False
        if sample == PADDED:
            y, wanted = r.padded_rows(region.root, y), r.padded_rows(region.base, wanted)
        if not close(y, wanted, 1e-5):
            return False
    return True


def _emit_affine(r: Recogniser, region: Region, factor: Array, shift: Array) -> View:
    lead = (0,) * (factor.ndim - 1)
    scale, bias = np.atleast_1d(factor[lead]), np.atleast_1d(shift[lead])
    view = r.view(region.base)
    number = float(scale[0]) if np.allclose(scale, scale[0], rtol=1e-7, atol=0) else None
    if number is not None:
        number = round(number) if abs(number - round(number)) < 1e-9 else float(np.float32(number))
    has_bias = bool((np.abs(bias) > 1e-9 * max(1.0, float(np.abs(scale).max()))).any())
    if number == 1 and not has_bias:
        return view
    x = layout.cover(view) if number is not None and not has_bias else layout.rows(view)
    weight = None if number is not None else scale.astype(np.float32)
    shifted = np.broadcast_to(bias.astype(np.float32), (x.width,)) if has_bias else None
    times = 1.0 if number is None else float(number)
    out = r.emit(Affine, x.width, per_text=r.is_per_text(view), x=x, factor=times, weight=weight, bias=shifted)
    return layout.moved(view, out)


def combine(r: Recogniser, name: str, step: Step) -> View | None:
    """Sums and products of two values: residuals and gates."""
    if step.op not in ("Add", "Mul", "Sum") or len(step.inputs) != 2:
        return None
    if not all(isinstance(r.facts.values[n], Content) for n in step.inputs):
        return None
    shape = r.facts.shape(name)
    if any(r.facts.shape(n) != shape for n in step.inputs):
        return None
    first, second = r.view(step.inputs[0]), r.view(step.inputs[1])
    a, b = layout.rows(first), layout.rows(second)
    per_text = r.is_per_text(first)
    if per_text != r.is_per_text(second):
        return None
    if step.op == "Mul":
        return r.whole(r.emit(Mul, a.width, per_text=per_text, a=a, b=b), name)
    return r.whole(r.emit(Add, a.width, per_text=per_text, a=a, b=b), name)
