"""A BERT-family forward pass in numpy, written from the papers' formulas and sharing no code with the exporter."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from tests.tiny import HEADS, LAYERS, WIDTH

Weights = Mapping[str, np.ndarray]


def norm(x: np.ndarray, w: Weights, name: str, eps: float = 1e-12) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * w[f"{name}.weight"] + w[f"{name}.bias"]


def dense(x: np.ndarray, w: Weights, name: str) -> np.ndarray:
    return x @ w[f"{name}.weight"].T.astype(np.float64) + w[f"{name}.bias"]


def act(x: np.ndarray, kind: str) -> np.ndarray:
    if kind == "relu":
        return np.maximum(x, 0)
    if kind == "gelu":
        return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def hidden_state(
    w: Weights, kind: str, ids: np.ndarray, mask: np.ndarray, prefix: str = "", activation: str = "gelu"
) -> np.ndarray:
    """[batch, sequence, width] in float64."""
    table = w[f"{prefix}embeddings.word_embeddings.weight"].astype(np.float64)
    if "roberta" in kind:
        real = ids != 1
        positions = np.cumsum(real, axis=1) * real + 1
    else:
        positions = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
    x = table[ids] + w[f"{prefix}embeddings.position_embeddings.weight"][positions]
    if kind != "distilbert":
        x = x + w[f"{prefix}embeddings.token_type_embeddings.weight"][0]
    x = norm(x, w, f"{prefix}embeddings.LayerNorm")
    names = {
        True: ("transformer.layer", "attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin",
               "sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm"),
        False: ("encoder.layer", "attention.self.query", "attention.self.key", "attention.self.value",
                "attention.output.dense", "attention.output.LayerNorm", "intermediate.dense", "output.dense",
                "output.LayerNorm"),
    }[kind == "distilbert"]  # fmt: skip
    depth = WIDTH // HEADS
    for layer in range(LAYERS):
        q, k, v, out, first, up, down, second = (f"{prefix}{names[0]}.{layer}.{n}" for n in names[1:])
        mixed = np.zeros_like(x)
        queries, keys, values = dense(x, w, q), dense(x, w, k), dense(x, w, v)
        for head in range(HEADS):
            part = slice(head * depth, (head + 1) * depth)
            scores = queries[..., part] @ keys[..., part].transpose(0, 2, 1) / math.sqrt(depth)
            scores = np.where(mask[:, None, :] == 1, scores, -np.inf)
            e = np.exp(scores - scores.max(-1, keepdims=True))
            mixed[..., part] = e / e.sum(-1, keepdims=True) @ values[..., part]
        x = norm(x + dense(mixed, w, out), w, first)
        x = norm(x + dense(act(dense(x, w, up), activation), w, down), w, second)
    return x


def mean_pool(hidden: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)


def logits(w: Weights, kind: str, hidden: np.ndarray) -> np.ndarray:
    first = hidden[:, 0]
    if kind == "bert":
        return dense(np.tanh(dense(first, w, "bert.pooler.dense")), w, "classifier")
    if kind == "distilbert":
        return dense(np.maximum(dense(first, w, "pre_classifier"), 0), w, "classifier")
    return dense(np.tanh(dense(first, w, "classifier.dense")), w, "classifier.out_proj")
