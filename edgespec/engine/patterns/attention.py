"""softmax(q k^T + mask) v, and the rotation of queries and keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from edgespec.engine.patterns import layout
from edgespec.engine.patterns.draft import Attention, Rope
from edgespec.engine.patterns.graph import Array, Step
from edgespec.engine.patterns.layout import TOKENS, LayoutError, Slice, View
from edgespec.engine.patterns.recogniser import Recogniser, Region, close, noise
from edgespec.engine.patterns.values import PADDED, Content, UncoveredError

HIDDEN: Final = -1e4
"""A score below that is a masked one: exp of it is zero in float32."""
MANY: Final = 48.0
"""A large score, which a cap on scores would change."""
_RESHAPING: Final = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Concat", "Expand"})


@dataclass(frozen=True, slots=True)
class Scores:
    """What is done to q k^T before the softmax: `scale`, and which positions see which."""

    scale: float
    causal: bool
    window: int


def attention(r: Recogniser, name: str, step: Step) -> View | None:
    if step.op != "MatMul" or not all(isinstance(r.facts.values[n], Content) for n in step.inputs):
        return None
    chances, scores = _softmax_of(r, step.inputs[0])
    if chances is None:
        return None
    product = _product_of(r, scores)
    if product is None:
        raise UncoveredError(chances, "it is not a softmax over products of queries and keys")
    raw, region = product
    shape = r.facts.shape(raw.outputs[0])
    if len(shape) not in (3, 4) or shape[-1] != r.facts.samples.lengths or shape[-2] != r.facts.samples.lengths:
        raise UncoveredError(raw, "a product of queries and keys that is not [..., tokens, tokens]")
    masked = _read_scores(r, region) if region else Scores(1.0, causal=False, window=0)
    query, head = _operand(r, raw, raw.inputs[0], (-2, -1))
    key, _ = _operand(r, raw, raw.inputs[1], (-1, -2))
    value, _ = _operand(r, step, step.inputs[1], (-2, -1))
    heads, kv_heads = query.width // head, key.width // head
    if key.width != value.width or heads % kv_heads:
        raise UncoveredError(
            step, f"{heads} query heads share {kv_heads} heads of keys and {value.width} columns of values"
        )
    operands = {"query": query, "key": key, "value": value, "head": head}
    how = {"scale": masked.scale, "causal": masked.causal, "window": masked.window}
    out = r.emit(Attention, query.width, per_text=False, **operands, **how)
    axes = _output_axes(r, name, heads, head)
    return View(out, 0, axes)


def _softmax_of(r: Recogniser, name: str) -> tuple[Step | None, str]:
    """The softmax behind a value that is nothing else, and its input."""
    step = r.facts.maker(name)
    if step is not None and step.op == "Softmax":
        return _checked_softmax(r, step)
    for region in r.regions(name):
        base = r.facts.maker(region.base)
        if base is None or base.op != "Softmax":
            continue
        x = np.abs(noise(region.shape(0)))
        y = region.compute(x, 0)
        if y is not None and close(y.reshape(-1), x.reshape(-1)):
            return _checked_softmax(r, base)
    return None, ""


def _checked_softmax(r: Recogniser, step: Step) -> tuple[Step, str]:
    rank = len(r.facts.shape(step.inputs[0]))
    if int(step.attributes.get("axis", -1)) % rank != rank - 1:
        raise UncoveredError(step, "a softmax over another axis than the last")
    return step, step.inputs[0]


def _product_of(r: Recogniser, name: str) -> tuple[Step, Region | None] | None:
    step = r.facts.maker(name)
    if step is not None and step.op == "MatMul":
        return step, None
    for region in r.regions(name):
        base = r.facts.maker(region.base)
        if base is not None and base.op == "MatMul":
            return base, region
    return None


def _read_scores(r: Recogniser, region: Region) -> Scores:
    """Raises UncoveredError when scores are changed by anything but a number and a mask."""
    step, last = region.steps[-1], region.steps[0]
    scales: list[float] = []
    seen: list[Array] = []
    for sample in range(r.facts.samples.count):
        shape = region.shape(sample)
        small = shape if region.ops() & _RESHAPING else (*(1 for _ in shape[:-2]), *shape[-2:])
        zero, one, many = (region.compute(np.full(small, n), sample) for n in (0.0, 1.0, MANY))
        if zero is None or one is None or many is None or zero.shape[-2:] != shape[-2:]:
            raise UncoveredError(last, "what is done to the attention scores cannot be followed")
        flat = zero.reshape(-1, *shape[-2:])
        visible = flat > HIDDEN
        if (visible != visible[:1]).any() or np.abs(flat[visible]).max(initial=0.0) > 1e-6:
            raise UncoveredError(step, "something other than a mask is added to the attention scores")
        gain, large = (v.reshape(flat.shape)[visible] - flat[visible] for v in (one, many))
        if not gain.size or not np.allclose(gain, gain[0], rtol=1e-6) or not np.allclose(large, MANY * gain, rtol=1e-6):
            raise UncoveredError(step, "the attention scores are changed by more than a factor")
        scales.append(float(gain[0]))
        seen.append(visible[0])
    if not np.allclose(scales, scales[0], rtol=1e-6):
        raise UncoveredError(step, "the scale of the attention depends on the length of the text")
    causal, window = _visible(r, seen, step)
    if not window:
        r.limit_by(region)
    return Scores(scales[0], causal, window)


def _visible(r: Recogniser, seen: list[Array], step: Step) -> tuple[bool, int]:
    long = seen[2]
    distance = np.arange(len(long))[:, None] - np.arange(len(long))
    causal = not long[distance < 0].any()
    reach = int(np.abs(distance[long]).max(initial=0))
    window = 0 if reach == len(long) - 1 else 2 * reach
    if reach == 0 and window == 0 and len(long) > 1:
        raise UncoveredError(step, "no token sees another one")
    for sample, visible in enumerate(seen):
        length, valid = r.facts.samples.lengths[sample], r.facts.samples.valid[sample]
        gap = np.arange(length)[:, None] - np.arange(length)
        wanted = (gap >= 0) if causal else np.ones_like(gap, bool)
        wanted = wanted & (np.abs(gap) <= window // 2) if window else wanted
        hidden = wanted & (np.arange(length) < valid)
        rows = slice(0, valid)
        if not any(np.array_equal(visible[rows], w[rows]) for w in (wanted, hidden)):
            raise UncoveredError(
                step, "the attention mask is neither padding, nor causal, nor a window around each token"
            )
    return causal, window


def _operand(r: Recogniser, step: Step, name: str, axes: tuple[int, int]) -> tuple[Slice, int]:
    """The run of columns of queries, keys or values whose axes are [heads..., tokens, head] in the order of `axes`."""
    view = r.view(name)
    try:
        return _columns(view, axes)
    except LayoutError as why:
        raise UncoveredError(step, f"queries, keys or values are not plain heads of a row: {why}") from None


def _columns(view: View, axes: tuple[int, int]) -> tuple[Slice, int]:
    tokens, head = view.axes[axes[0]], layout.merge(view.axes[axes[1]])
    if len(tokens) != 1 or tokens[0].stride != TOKENS or len(head) != 1 or head[0].stride != 1:
        raise LayoutError("the last axes are not tokens and one head")
    width = layout.constant(head[0].size)
    rest = [a for axis in view.axes[:-2] for a in axis]
    kept = [a for a in rest if a.stride != 0]
    repeated = [i for i, a in enumerate(rest) if a.stride == 0]
    if repeated and repeated != list(range(len(kept), len(rest))):
        raise LayoutError("heads are repeated in another order than groups of neighbours")
    merged = layout.merge(tuple(kept))
    if len(merged) > 1 or (merged and merged[0].stride != width):
        raise LayoutError("heads are not neighbours")
    count = layout.constant(merged[0].size) if merged else 1
    return Slice(view.register, view.offset, count * width), width


def _output_axes(r: Recogniser, name: str, heads: int, head: int) -> tuple[layout.Axis, ...]:
    """[..., heads, tokens, head] of a register [tokens, heads * head]."""
    count = r.facts.samples.count
    shape = r.facts.shape(name)
    columns = View(0, 0, ((layout.Atom((heads,) * count, head),),))
    lead = layout.reshape(columns, shape[:-2]).axes if len(shape) > 2 else ()
    tokens = (layout.Atom(r.facts.samples.lengths, TOKENS),)
    return (*lead, tokens, (layout.Atom((head,) * count, 1),))


def rotary(r: Recogniser, name: str, step: Step) -> View | None:
    """Rotation of each head by the place in the text, the halves of a head being paired."""
    lengths = r.facts.samples.lengths
    for region in r.regions(name):
        shape = r.facts.shape(region.base)
        if not region.same_shape or not region.is_positional or lengths not in shape[:-1] or shape[-1] == lengths:
            continue
        found = _read_rotation(r, region, shape.index(lengths))
        if found is None:
            continue
        rotated, frequencies, scale = found
        r.limit_by(region)
        view = r.view(region.base)
        x, head = layout.heads(view)
        at = {"head": head, "rotary": rotated, "frequencies": frequencies, "scale": scale}
        out = r.emit(Rope, x.width, per_text=False, x=x, **at)
        return layout.moved(view, out)
    return None


def _read_rotation(r: Recogniser, region: Region, axis: int) -> tuple[int, Array, float] | None:
    head = region.shape(0)[-1]
    for rotated in (head, head * 3 // 4, head // 2, head // 4):
        if rotated % 2 or rotated < 2:
            continue
        half = rotated // 2
        probe = np.zeros(region.shape(2))
        probe[..., :half] = 1
        turned = region.compute(probe, 2)
        if turned is None or turned.shape != probe.shape:
            return None
        rows = np.moveaxis(turned, axis, 0).reshape(len(turned) if axis == 0 else probe.shape[axis], -1, head)[:, 0]
        cos, sin = rows[:, :half], rows[:, half:rotated]
        scale = float(np.hypot(cos[0, 0], sin[0, 0]))
        if scale == 0 or np.abs(sin[0]).max() > 1e-6:
            continue
        frequencies = _frequencies(cos, sin)
        if not np.isfinite(frequencies).all():
            continue
        if all(_rotates(region, axis, sample, rotated, frequencies, scale) for sample in range(r.facts.samples.count)):
            return rotated, frequencies, float(np.float32(scale)) if abs(scale - 1) > 1e-6 else 1.0
    return None


def _frequencies(cos: Array, sin: Array) -> Array:
    """Angles per place: from the second place, sharpened by the last one; a plain base's own where they are that."""
    rough = np.arctan2(sin[1], cos[1])
    last = len(cos) - 1
    for place in (2, 4, 8, 16, 32, 64, 128, 256, last):
        if place <= last:
            angle = np.arctan2(sin[place], cos[place])
            turns = np.rint((rough * place - angle) / (2 * np.pi))
            rough = (angle + 2 * np.pi * turns) / place
    half = len(rough)
    if half > 1 and 0 < rough[-1] < 1:
        base = float(rough[-1] ** (-half / (half - 1)))
        for candidate in (round(base, -3), float(round(base))):
            exact = 1.0 / (candidate ** (np.arange(half) / half)) if candidate > 1 else rough
            if np.allclose(exact, rough, rtol=2e-5):
                return exact.astype(np.float32)
    return np.asarray(rough, dtype=np.float32)


def _rotates(region: Region, axis: int, sample: int, rotated: int, frequencies: Array, scale: float) -> bool:
    x = noise(region.shape(sample), 7)
    y = region.compute(x, sample)
    if y is None or y.shape != x.shape:
        return False
    places = np.arange(x.shape[axis])
    angles = places[:, None] * frequencies.astype(np.float64)
    around = [1] * (x.ndim - 1)
    around[axis] = -1
    cos, sin = (f(angles).reshape(*around, rotated // 2) * scale for f in (np.cos, np.sin))
    first, second, rest = np.split(x, [rotated // 2, rotated], axis=-1)
    wanted = np.concatenate([first * cos - second * sin, second * cos + first * sin, rest], axis=-1)
    if sample == PADDED:
        keep = range(region.facts.samples.valid[sample])
        y, wanted = np.take(y, keep, axis=axis), np.take(wanted, keep, axis=axis)
    return close(y, wanted, 5e-4 if sample == 2 else 2e-5)
