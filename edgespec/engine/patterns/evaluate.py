"""ONNX operators on numpy arrays: enough of them for shape plumbing, masks, positions and the probing of patterns.

Floats that arrive as float64 stay float64 through every Cast: probes compare formulas, not roundings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from edgespec.engine.patterns.graph import Array, Step

Maybe = Array | None
Rule = Callable[[Step, Sequence[Maybe]], "Array | tuple[Array, ...]"]

_TYPES: Final = {
    1: np.float32, 2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.int32, 7: np.int64, 9: np.bool_,
    10: np.float32, 11: np.float64, 12: np.uint32, 13: np.uint64, 16: np.float32,
}  # fmt: skip
_FLOATS: Final = (1, 10, 11, 16)


class UnknownOperatorError(LookupError):
    """There is no rule for the operator."""


class EvaluationError(ValueError):
    """The operator cannot take these values: most often a table that is shorter than the sampled text."""


def evaluate(step: Step, inputs: Sequence[Maybe]) -> tuple[Array, ...]:
    """The step's outputs. Raises UnknownOperatorError and EvaluationError."""
    rule = RULES.get(step.op)
    if rule is None:
        raise UnknownOperatorError(step.op)
    try:
        with np.errstate(all="ignore"):
            result = rule(step, inputs)
    except (ValueError, IndexError, TypeError, ZeroDivisionError) as why:
        raise EvaluationError(f"{step!r}: {why}") from None
    return result if isinstance(result, tuple) else (np.asarray(result),)


def _value(inputs: Sequence[Maybe], at: int) -> Array:
    found = inputs[at] if at < len(inputs) else None
    if found is None:
        raise ValueError(f"input {at} is missing")
    return found


def _optional(inputs: Sequence[Maybe], at: int) -> Maybe:
    return inputs[at] if at < len(inputs) else None


def _ints(step: Step, inputs: Sequence[Maybe], at: int, name: str) -> tuple[int, ...] | None:
    """A list of integers: an input in newer opsets, an attribute in older ones."""
    given = _optional(inputs, at)
    if given is not None:
        return tuple(int(n) for n in np.ravel(given))
    found = step.attributes.get(name)
    if found is None:
        return None
    return tuple(int(n) for n in found) if isinstance(found, Sequence) else (int(found),)


def _unary(function: Callable[[Array], Any]) -> Rule:
    return lambda step, inputs: np.asarray(function(_value(inputs, 0)))


def _binary(function: Callable[[Array, Array], Any]) -> Rule:
    def rule(step: Step, inputs: Sequence[Maybe]) -> Array:
        result = np.asarray(function(_value(inputs, 0), _value(inputs, 1)))
        for other in inputs[2:]:
            if other is not None:
                result = np.asarray(function(result, other))
        return result

    return rule


def erf(x: Array) -> Array:
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x)) if x.size else x


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind in "iu" and b.dtype.kind in "iu":
        return np.asarray(np.trunc(a / b).astype(a.dtype))
    return np.asarray(a / b)


def _mod(step: Step, inputs: Sequence[Maybe]) -> Array:
    function = np.fmod if step.attributes.get("fmod", 0) else np.mod
    return np.asarray(function(_value(inputs, 0), _value(inputs, 1)))


def _pow(a: Array, b: Array) -> Array:
    return np.asarray(np.power(a, b.astype(a.dtype) if a.dtype.kind == "f" else b))


def cast(x: Array, to: int) -> Array:
    if x.dtype == np.float64 and to in _FLOATS:
        return x
    if to not in _TYPES:
        raise ValueError(f"a cast to type {to}")
    return np.asarray(x.astype(_TYPES[to]))


def _cast(step: Step, inputs: Sequence[Maybe]) -> Array:
    return cast(_value(inputs, 0), int(step.attributes["to"]))


def _cast_like(step: Step, inputs: Sequence[Maybe]) -> Array:
    x, like = _value(inputs, 0), _value(inputs, 1)
    return x if x.dtype == np.float64 and like.dtype.kind == "f" else np.asarray(x.astype(like.dtype))


def _constant(step: Step, inputs: Sequence[Maybe]) -> Array:
    for name, kind in (("value_float", np.float32), ("value_floats", np.float32), ("value_int", np.int64),
                       ("value_ints", np.int64)):  # fmt: skip
        if name in step.attributes:
            return np.asarray(step.attributes[name], dtype=kind)
    return np.asarray(step.attributes["value"])


def _constant_of_shape(step: Step, inputs: Sequence[Maybe]) -> Array:
    value = np.asarray(step.attributes.get("value", np.zeros(1, np.float32)))
    return np.full(tuple(int(n) for n in _value(inputs, 0)), value.ravel()[0], dtype=value.dtype)


def shape_of(step: Step, shape: Sequence[int]) -> Array:
    """What Shape answers for that shape."""
    start, end = step.attributes.get("start", 0), step.attributes.get("end", len(shape))
    return np.asarray(list(shape)[start:end], dtype=np.int64)


def _reshape(step: Step, inputs: Sequence[Maybe]) -> Array:
    x = _value(inputs, 0)
    wanted = [int(n) for n in _value(inputs, 1)]
    if not step.attributes.get("allowzero", 0):
        wanted = [x.shape[i] if n == 0 else n for i, n in enumerate(wanted)]
    return x.reshape(wanted)


def _flatten(step: Step, inputs: Sequence[Maybe]) -> Array:
    x = _value(inputs, 0)
    axis = int(step.attributes.get("axis", 1)) % (x.ndim + 1)
    return x.reshape(math.prod(x.shape[:axis]), -1)


def _squeeze(step: Step, inputs: Sequence[Maybe]) -> Array:
    return np.squeeze(_value(inputs, 0), axis=_ints(step, inputs, 1, "axes"))


def _unsqueeze(step: Step, inputs: Sequence[Maybe]) -> Array:
    return np.expand_dims(_value(inputs, 0), _ints(step, inputs, 1, "axes") or ())


def _transpose(step: Step, inputs: Sequence[Maybe]) -> Array:
    return np.transpose(_value(inputs, 0), step.attributes.get("perm"))


def _expand(step: Step, inputs: Sequence[Maybe]) -> Array:
    x = _value(inputs, 0)
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(int(n) for n in _value(inputs, 1))))


def _tile(step: Step, inputs: Sequence[Maybe]) -> Array:
    return np.tile(_value(inputs, 0), tuple(int(n) for n in _value(inputs, 1)))


def _concat(step: Step, inputs: Sequence[Maybe]) -> Array:
    return np.concatenate([x for x in inputs if x is not None], axis=int(step.attributes["axis"]))


def slices(step: Step, inputs: Sequence[Maybe], rank: int) -> tuple[slice, ...]:
    """What a Slice takes of each axis."""
    starts, ends = _ints(step, inputs, 1, "starts"), _ints(step, inputs, 2, "ends")
    axes, strides = _ints(step, inputs, 3, "axes"), _ints(step, inputs, 4, "steps")
    if starts is None or ends is None:
        raise ValueError("a slice without bounds")
    taken = [slice(None)] * rank
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        stride = strides[i] if strides else 1
        stop = None if stride < 0 and end < -(2**31) + 2 else end
        taken[(axes[i] if axes else i) % rank] = slice(start, stop, stride)
    return tuple(taken)


def _slice(step: Step, inputs: Sequence[Maybe]) -> Array:
    x = _value(inputs, 0)
    return x[slices(step, inputs, x.ndim)]


def split_sizes(step: Step, inputs: Sequence[Maybe], total: int) -> tuple[int, ...]:
    given = _ints(step, inputs, 1, "split")
    if given is not None:
        return given
    count = int(step.attributes.get("num_outputs", len(step.outputs)))
    each = -(-total // count)
    return tuple(min(each, total - i * each) for i in range(count))


def _split(step: Step, inputs: Sequence[Maybe]) -> tuple[Array, ...]:
    x, axis = _value(inputs, 0), int(step.attributes.get("axis", 0))
    sizes = split_sizes(step, inputs, x.shape[axis])
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis=axis))


def _gather(step: Step, inputs: Sequence[Maybe]) -> Array:
    x, axis = _value(inputs, 0), int(step.attributes.get("axis", 0))
    return np.take(x, _value(inputs, 1).astype(np.int64), axis=axis)


def _gather_elements(step: Step, inputs: Sequence[Maybe]) -> Array:
    return np.take_along_axis(
        _value(inputs, 0), _value(inputs, 1).astype(np.int64), int(step.attributes.get("axis", 0))
    )


def _gather_nd(step: Step, inputs: Sequence[Maybe]) -> Array:
    x, at = _value(inputs, 0), _value(inputs, 1).astype(np.int64)
    batch = int(step.attributes.get("batch_dims", 0))
    if batch == 0:
        return np.asarray(x[tuple(np.moveaxis(at, -1, 0))])
    lead = math.prod(x.shape[:batch])
    flat, rows = x.reshape(lead, *x.shape[batch:]), at.reshape(lead, *at.shape[batch:])
    each = np.stack([f[tuple(np.moveaxis(r, -1, 0))] for f, r in zip(flat, rows, strict=True)])
    return each.reshape(*x.shape[:batch], *each.shape[1:])


def _scatter_nd(step: Step, inputs: Sequence[Maybe]) -> Array:
    x = np.array(_value(inputs, 0))
    x[tuple(np.moveaxis(_value(inputs, 1).astype(np.int64), -1, 0))] = _value(inputs, 2)
    return x


def _reduce(function: Callable[..., Any]) -> Rule:
    def rule(step: Step, inputs: Sequence[Maybe]) -> Array:
        x, axes = _value(inputs, 0), _ints(step, inputs, 1, "axes")
        if axes is None or not axes:
            if step.attributes.get("noop_with_empty_axes", 0):
                return x
            axes = tuple(range(x.ndim))
        return np.asarray(function(x, axis=axes, keepdims=bool(step.attributes.get("keepdims", 1))))

    return rule


def _arg(function: Callable[..., Any]) -> Rule:
    def rule(step: Step, inputs: Sequence[Maybe]) -> Array:
        x, axis = _value(inputs, 0), int(step.attributes.get("axis", 0))
        if step.attributes.get("select_last_index", 0):
            found = x.shape[axis] - 1 - function(np.flip(x, axis), axis=axis)
        else:
            found = function(x, axis=axis)
        keep = step.attributes.get("keepdims", 1)
        return np.asarray(np.expand_dims(found, axis) if keep else found).astype(np.int64)

    return rule


def _norm2(x: Array, axis: Any, keepdims: bool) -> Any:
    return np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims))


def _cumsum(step: Step, inputs: Sequence[Maybe]) -> Array:
    x, axis = _value(inputs, 0), int(_value(inputs, 1).ravel()[0])
    if step.attributes.get("reverse", 0) or step.attributes.get("exclusive", 0):
        raise ValueError("a reverse or exclusive sum")
    return np.cumsum(x, axis=axis, dtype=x.dtype)


def _range(step: Step, inputs: Sequence[Maybe]) -> Array:
    start, limit, delta = (_value(inputs, i) for i in range(3))
    return np.arange(start.item(), limit.item(), delta.item(), dtype=start.dtype)


def _clip(step: Step, inputs: Sequence[Maybe]) -> Array:
    x, low, high = _value(inputs, 0), _optional(inputs, 1), _optional(inputs, 2)
    low = step.attributes.get("min") if low is None else low
    high = step.attributes.get("max") if high is None else high
    x = x if low is None else np.maximum(x, low)
    return np.asarray(x if high is None else np.minimum(x, high))


def _trilu(step: Step, inputs: Sequence[Maybe]) -> Array:
    k = _optional(inputs, 1)
    function = np.triu if step.attributes.get("upper", 1) else np.tril
    return function(_value(inputs, 0), int(k.ravel()[0]) if k is not None else 0)


def _one_hot(step: Step, inputs: Sequence[Maybe]) -> Array:
    at, depth, values = (_value(inputs, i) for i in range(3))
    if int(step.attributes.get("axis", -1)) != -1:
        raise ValueError("an axis other than the last")
    hit = np.arange(int(depth.ravel()[0])) == at[..., None]
    return np.asarray(np.where(hit, values[1], values[0]))


def softmax(x: Array, axis: int = -1) -> Array:
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return np.asarray(e / np.sum(e, axis=axis, keepdims=True))


def _softmax(step: Step, inputs: Sequence[Maybe]) -> Array:
    return softmax(_value(inputs, 0), int(step.attributes.get("axis", -1)))


def _layer_norm(step: Step, inputs: Sequence[Maybe]) -> Array:
    x, scale, bias = _value(inputs, 0), _value(inputs, 1), _optional(inputs, 2)
    axes = tuple(range(int(step.attributes.get("axis", -1)) % x.ndim, x.ndim))
    centred = x - x.mean(axis=axes, keepdims=True)
    spread = np.sqrt((centred * centred).mean(axis=axes, keepdims=True) + step.attributes.get("epsilon", 1e-5))
    y = centred / spread * scale
    return np.asarray(y if bias is None else y + bias)


def _rms_norm(step: Step, inputs: Sequence[Maybe]) -> Array:
    x, scale = _value(inputs, 0), _value(inputs, 1)
    axes = tuple(range(int(step.attributes.get("axis", -1)) % x.ndim, x.ndim))
    epsilon = step.attributes.get("epsilon", 1e-5)
    return np.asarray(x / np.sqrt((x * x).mean(axis=axes, keepdims=True) + epsilon) * scale)


def _lp_norm(step: Step, inputs: Sequence[Maybe]) -> Array:
    x, p = _value(inputs, 0), int(step.attributes.get("p", 2))
    norm = np.linalg.norm(x, ord=p, axis=int(step.attributes.get("axis", -1)), keepdims=True)
    return np.asarray(np.divide(x, norm, out=np.zeros_like(x), where=norm != 0))


def gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + erf(x / math.sqrt(2))))


def gelu_tanh(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


def sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))


def _gelu(step: Step, inputs: Sequence[Maybe]) -> Array:
    return (gelu_tanh if step.attributes.get("approximate") == "tanh" else gelu)(_value(inputs, 0))


def _bias_gelu(function: Callable[[Array], Array]) -> Rule:
    def rule(step: Step, inputs: Sequence[Maybe]) -> Array:
        x, bias = _value(inputs, 0), _optional(inputs, 1)
        return function(x if bias is None else np.asarray(x + bias))

    return rule


def _dequantize(step: Step, inputs: Sequence[Maybe]) -> Array:
    x, scale, zero = _value(inputs, 0), _value(inputs, 1), _optional(inputs, 2)
    axis, block = int(step.attributes.get("axis", 1)), int(step.attributes.get("block_size", 0))
    if block:
        scale = np.repeat(scale, block, axis=axis)
        zero = None if zero is None else np.repeat(zero, block, axis=axis)
    elif scale.ndim == 1 and scale.size > 1:
        around = [1] * x.ndim
        around[axis] = -1
        scale = scale.reshape(around)
        zero = None if zero is None else zero.reshape(around)
    wide = x.astype(np.float32)
    return np.asarray((wide if zero is None else wide - zero.astype(np.float32)) * scale)


RULES: Final[dict[str, Rule]] = {
    "Identity": _unary(lambda x: x), "Dropout": _unary(lambda x: x), "Neg": _unary(np.negative),
    "Abs": _unary(np.abs), "Sqrt": _unary(np.sqrt), "Exp": _unary(np.exp), "Log": _unary(np.log),
    "Sin": _unary(np.sin), "Cos": _unary(np.cos), "Tanh": _unary(np.tanh), "Erf": _unary(erf),
    "Sigmoid": _unary(sigmoid), "Relu": _unary(lambda x: np.maximum(x, 0)), "Reciprocal": _unary(lambda x: 1 / x),
    "Floor": _unary(np.floor), "Ceil": _unary(np.ceil), "Round": _unary(np.rint), "Sign": _unary(np.sign),
    "Not": _unary(np.logical_not), "IsNaN": _unary(np.isnan), "IsInf": _unary(np.isinf),
    "Size": _unary(lambda x: np.asarray(x.size, np.int64)),
    "Softplus": _unary(lambda x: np.logaddexp(x, 0)), "Swish": _unary(lambda x: x * sigmoid(x)),
    "Add": _binary(np.add), "Sub": _binary(np.subtract), "Mul": _binary(np.multiply), "Div": _binary(_divide),
    "Pow": _binary(_pow), "Min": _binary(np.minimum), "Max": _binary(np.maximum), "Sum": _binary(np.add),
    "And": _binary(np.logical_and), "Or": _binary(np.logical_or), "Xor": _binary(np.logical_xor),
    "Equal": _binary(np.equal), "Less": _binary(np.less), "LessOrEqual": _binary(np.less_equal),
    "Greater": _binary(np.greater), "GreaterOrEqual": _binary(np.greater_equal), "MatMul": _binary(np.matmul),
    "BitwiseAnd": _binary(np.bitwise_and), "BitwiseOr": _binary(np.bitwise_or), "BitwiseNot": _unary(np.invert),
    "Mod": _mod, "Cast": _cast, "CastLike": _cast_like, "Constant": _constant, "Reshape": _reshape,
    "ConstantOfShape": _constant_of_shape, "Shape": lambda step, inputs: shape_of(step, _value(inputs, 0).shape),
    "SwapLast": _unary(lambda x: np.swapaxes(x, -1, -2)),
    "Flatten": _flatten, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze, "Transpose": _transpose, "Expand": _expand,
    "Tile": _tile, "Concat": _concat, "Slice": _slice, "Split": _split, "Gather": _gather,
    "GatherElements": _gather_elements, "GatherND": _gather_nd, "ScatterND": _scatter_nd,
    "ReduceSum": _reduce(np.sum), "ReduceMean": _reduce(np.mean), "ReduceMax": _reduce(np.max),
    "ReduceMin": _reduce(np.min), "ReduceProd": _reduce(np.prod), "ReduceL2": _reduce(_norm2),
    "ReduceSumSquare": _reduce(lambda x, **k: np.sum(x * x, **k)),
    "ReduceL1": _reduce(lambda x, **k: np.sum(abs(x), **k)),
    "ArgMax": _arg(np.argmax), "ArgMin": _arg(np.argmin), "CumSum": _cumsum, "Range": _range, "Clip": _clip,
    "Trilu": _trilu, "OneHot": _one_hot, "Softmax": _softmax, "LayerNormalization": _layer_norm,
    "SimplifiedLayerNormalization": _rms_norm, "RMSNormalization": _rms_norm, "LpNormalization": _lp_norm,
    "Gelu": _gelu, "com.microsoft.Gelu": _unary(gelu), "com.microsoft.BiasGelu": _bias_gelu(gelu),
    "com.microsoft.FastGelu": _bias_gelu(gelu_tanh), "DequantizeLinear": _dequantize,
    "Where": lambda step, inputs: np.where(_value(inputs, 0), _value(inputs, 1), _value(inputs, 2)),
}  # fmt: skip
