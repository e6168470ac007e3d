"""onnxruntime's fused operators in terms of ONNX's own, so that one set of patterns knows both.

`SwapLast`, which swaps the last two axes, is the one operator here that ONNX does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from edgespec.engine.patterns.graph import Array, Graph, Step

_ACTIVATIONS: Final = {"Relu": "Relu", "Tanh": "Tanh", "Sigmoid": "Sigmoid"}


@dataclass(slots=True)
class Writer:
    """Steps in place of one step; their names are its name, so that reports name a node of the graph."""

    step: Step
    steps: list[Step] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)

    def op(self, op: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        name = out or f"{self.step.outputs[0]}/{len(self.steps)}"
        self.steps.append(Step(-1, self.step.name, op, inputs, (name,), attributes))
        return name

    def const(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"{self.step.outputs[0]}/const{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype)
        return name


def unfuse(graph: Graph) -> Graph:
    return rewritten(graph, lambda writer, step: (rule := _RULES.get(step.op)) is not None and rule(writer, step))


def rewritten(graph: Graph, rule: Callable[[Writer, Step], bool]) -> Graph:
    """The graph with what the rule writes in place of each step for which it answers true."""
    steps: list[Step] = []
    constants = dict(graph.constants)
    for step in graph.steps:
        writer = Writer(step)
        if rule(writer, step):
            steps += writer.steps
            constants |= writer.constants
        else:
            steps.append(step)
    return renumbered(graph, steps, constants)


def renumbered(graph: Graph, steps: Sequence[Step], constants: Mapping[str, Array]) -> Graph:
    numbered = tuple(Step(i, s.name, s.op, s.inputs, s.outputs, s.attributes) for i, s in enumerate(steps))
    makers = {name: step for step in numbered for name in step.outputs if name}
    return Graph(numbered, constants, graph.inputs, graph.output, graph.outputs, makers, graph.half)


def _fused_matmul(w: Writer, step: Step) -> bool:
    a, b = step.inputs[:2]
    if step.attributes.get("transBatchA", 0) or step.attributes.get("transBatchB", 0):
        return False
    a = w.op("SwapLast", a) if step.attributes.get("transA", 0) else a
    b = w.op("SwapLast", b) if step.attributes.get("transB", 0) else b
    alpha = float(step.attributes.get("alpha", 1.0))
    if alpha == 1.0:
        w.op("MatMul", a, b, out=step.outputs[0])
        return True
    w.op("Mul", w.op("MatMul", a, b), w.const(alpha), out=step.outputs[0])
    return True


def _fused_gemm(w: Writer, step: Step) -> bool:
    act = _ACTIVATIONS.get(str(step.attributes.get("activation", "")))
    if act is None:
        return False
    kept = {k: v for k, v in step.attributes.items() if k in ("alpha", "beta", "transA", "transB")}
    w.op(act, w.op("Gemm", *step.inputs, **kept), out=step.outputs[0])
    return True


def _bias_gelu(w: Writer, step: Step) -> bool:
    w.op("Gelu", w.op("Add", *step.inputs[:2]), out=step.outputs[0])
    return True


def _fast_gelu(w: Writer, step: Step) -> bool:
    x = w.op("Add", *step.inputs[:2]) if step.input(1) else step.inputs[0]
    w.op("Gelu", x, out=step.outputs[0], approximate="tanh")
    return True


def _quick_gelu(w: Writer, step: Step) -> bool:
    x = step.inputs[0]
    alpha = w.const(step.attributes.get("alpha", 1.702))
    w.op("Mul", x, w.op("Sigmoid", w.op("Mul", x, alpha)), out=step.outputs[0])
    return True


def _skip_norm(norm: str, bias_at: int) -> Callable[[Writer, Step], bool]:
    def rule(w: Writer, step: Step) -> bool:
        if any(step.outputs[1:3]):
            return False
        x, skip, gamma = step.inputs[:3]
        if step.input(bias_at):
            x = w.op("Add", x, step.input(bias_at))
        total = step.outputs[3] if len(step.outputs) > 3 and step.outputs[3] else None
        total = w.op("Add", x, skip, out=total)
        beta = (step.input(3),) if bias_at == 4 and step.input(3) else ()
        epsilon = step.attributes.get("epsilon", 1e-12)
        w.op(norm, total, gamma, *beta, out=step.outputs[0], axis=-1, epsilon=epsilon)
        return True

    return rule


def _embed_norm(w: Writer, step: Step) -> bool:
    ids, types, words, places, kinds, gamma, beta = (step.input(i) for i in range(7))
    if len([o for o in step.outputs if o]) > 2 or bool(kinds) != bool(types):
        return False
    length = w.op("Gather", w.op("Shape", ids), w.const(1, np.int64), axis=0)
    row = w.op("Range", w.const(0, np.int64), length, w.const(1, np.int64))
    x = w.op("Gather", words, ids)
    x = w.op("Add", x, w.op("Gather", kinds, types)) if kinds else x
    at = step.input(8) or w.op("Unsqueeze", row, w.const([0], np.int64))
    x = w.op("Add", x, w.op("Gather", places, at))
    if len(step.outputs) > 1 and step.outputs[1]:
        mask = step.input(7) or w.op("Expand", w.const(1, np.int64), w.op("Shape", ids))
        seen = w.op("ReduceSum", mask, w.const([1], np.int64), keepdims=0)
        w.op("Cast", seen, out=step.outputs[1], to=6)
    epsilon = step.attributes.get("epsilon", 1e-12)
    w.op("LayerNormalization", x, gamma, beta, out=step.outputs[0], axis=-1, epsilon=epsilon)
    return True


def _attention(w: Writer, step: Step) -> bool:
    """One product for queries, keys and values; a mask of [batch, tokens] or lengths of [batch]; no past, no bias."""
    x, weight, bias, mask = (step.input(i) for i in range(4))
    if (
        any(step.input(i) for i in range(4, 8))
        or step.attributes.get("unidirectional", 0)
        or "scale" in step.attributes
    ):
        return False
    if step.attributes.get("qkv_hidden_sizes") or step.attributes.get("do_rotary", 0) or len(step.outputs) > 1:
        return False
    heads = int(step.attributes["num_heads"])
    parts = w.op("Add", w.op("MatMul", x, weight), bias)
    apart = w.op("Reshape", parts, w.const([0, 0, 3, heads, -1], np.int64))
    q, k, v = (
        w.op("Gather", w.op("Transpose", apart, perm=[2, 0, 3, 1, 4]), w.const(i, np.int64), axis=0) for i in range(3)
    )
    depth = w.op("Gather", w.op("Shape", q), w.const(3, np.int64), axis=0)
    root = w.op("Sqrt", w.op("Cast", depth, to=1))
    scores = w.op("Div", w.op("MatMul", q, w.op("SwapLast", k)), root)
    if mask:
        scores = w.op("Add", scores, _mask_bias(w, mask, x))
    mixed = w.op("Transpose", w.op("MatMul", w.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    w.op("Reshape", mixed, w.const([0, 0, -1], np.int64), out=step.outputs[0])
    return True


def _mask_bias(w: Writer, mask: str, x: str) -> str:
    """0 where a key is seen, else a large negative number: [batch, 1, 1, tokens]. Lengths are one number a text."""
    length = w.op("Gather", w.op("Shape", x), w.const(1, np.int64), axis=0)
    row = w.op("Range", w.const(0, np.int64), length, w.const(1, np.int64))
    wide = w.op("Reshape", w.op("Cast", mask, to=7), w.const([1, -1], np.int64))
    columns = w.op("Gather", w.op("Shape", wide), w.const(1, np.int64), axis=0)
    ends = w.op("Less", row, w.op("Gather", wide, w.const([[0]], np.int64), axis=1))
    flags = w.op("Cast", wide, to=9)
    seen = w.op("Where", w.op("Equal", columns, w.const(1, np.int64)), ends, flags)
    bias = w.op("Where", seen, w.const(0.0), w.const(-1e9))
    return w.op("Reshape", bias, w.const([1, 1, 1, -1], np.int64))


_RULES: Final[dict[str, Callable[[Writer, Step], bool]]] = {
    "com.microsoft.FusedMatMul": _fused_matmul,
    "com.microsoft.FusedGemm": _fused_gemm,
    "com.microsoft.BiasGelu": _bias_gelu,
    "com.microsoft.FastGelu": _fast_gelu,
    "com.microsoft.QuickGelu": _quick_gelu,
    "com.microsoft.SkipLayerNormalization": _skip_norm("LayerNormalization", 4),
    "com.microsoft.SkipSimplifiedLayerNormalization": _skip_norm("SimplifiedLayerNormalization", 3),
    "com.microsoft.EmbedLayerNormalization": _embed_norm,
    "com.microsoft.Attention": _attention,
}

__all__: Sequence[str] = ["Writer", "renumbered", "rewritten", "unfuse"]
