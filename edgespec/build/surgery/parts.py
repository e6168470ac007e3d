"""Layers, attention heads, feed-forward columns and single weights taken out of a checkpoint.

Heads and columns go by a score each, the highest stay; equal scores by their number. The same count stays in every
layer, since config.json has one number for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from edgespec.build.surgery.checkpoint import Checkpoint, Indices, Tensor
from edgespec.build.surgery.families import Family, head_size

Scores = npt.NDArray[np.float64]
GROUP: Final = 32
"""Feed-forward columns stay whole groups of the quantisers where they were."""


def count_layers(checkpoint: Checkpoint, family: Family) -> int:
    return int(checkpoint.config[family.layers_key])


def keep_layers(checkpoint: Checkpoint, family: Family, kept: Sequence[int]) -> None:
    """Layers `kept`, in the order of the model, renumbered from 0."""
    kept = sorted(kept)
    places = {old: new for new, old in enumerate(kept)}
    tensors: dict[str, Tensor] = dict(checkpoint.tensors)
    for name, prefix, layer, rest in family.names(checkpoint):
        del tensors[name]
        if layer in places:
            tensors[prefix + family.layer.format(places[layer]) + rest] = checkpoint.tensors[name]
    checkpoint.tensors = tensors
    config = checkpoint.config
    if kinds := layer_types(config, family):
        config["layer_types"] = [kinds[i] for i in kept]
        config.pop("global_attn_every_n_layers", None)
    config[family.layers_key] = len(kept)


def layer_types(config: dict[str, Any], family: Family) -> list[str] | None:
    """Which attention each layer has, spelled out; None where all have the same."""
    if config.get("layer_types"):
        return list(config["layer_types"])
    layers = range(int(config[family.layers_key]))
    if config.get("model_type") == "modernbert":
        every = int(config.get("global_attn_every_n_layers", 3))
        return ["sliding_attention" if i % every else "full_attention" for i in layers]
    if config.get("use_sliding_window"):
        first = int(config.get("max_window_layers", 28))
        return ["sliding_attention" if i >= first else "full_attention" for i in layers]
    return None


# --- attention heads


def head_scores(checkpoint: Checkpoint, family: Family, layer: int) -> Scores:
    """By weights alone: the Frobenius norm of what a head makes of its input, output matrix times value matrix."""
    depth = head_size(checkpoint.config, family)
    at = family.at(checkpoint, layer)
    out = checkpoint.floats(f"{at}{family.out}.weight").astype(np.float64)
    value = checkpoint.floats(f"{at}{family.value}.weight").astype(np.float64)
    heads = out.shape[1] // depth
    shared = heads // (value.shape[0] // depth)
    scores = np.zeros(heads)
    for h in range(heads):
        o = out[:, h * depth : (h + 1) * depth]
        v = value[h // shared * depth : (h // shared + 1) * depth]
        scores[h] = np.sqrt(max(0.0, float(np.sum((o.T @ o) * (v @ v.T)))))
    return scores


def count_groups(config: dict[str, Any], family: Family) -> int:
    """What is taken out as a whole: a head, or those that share a key and a value."""
    return int(config.get("num_key_value_heads") or config[family.heads_key])


def kept_heads(part: float, groups: int) -> int:
    return max(1, round(part * groups))


def keep_heads(checkpoint: Checkpoint, family: Family, count: int, scores: Sequence[Scores]) -> None:
    """`scores` has one array a layer with a number for each head. Heads that share a key and a value go together, by
    their sum. config.json keeps the size of a head as `head_dim`."""
    config = checkpoint.config
    depth, groups = head_size(config, family), count_groups(config, family)
    heads = int(config[family.heads_key])
    for layer, score in enumerate(scores):
        kept = best(score.reshape(groups, -1).sum(1), count)
        rows = spread(kept, depth)
        queries = spread(kept, depth * (heads // groups))
        at = family.at(checkpoint, layer)
        for name, index in ((family.query, queries), (family.key, rows), (family.value, rows)):
            _take_rows(checkpoint, at + name, index)
        checkpoint.take(f"{at}{family.out}.weight", queries, axis=1)
    config[family.heads_key] = count * (heads // groups)
    if "num_key_value_heads" in config:
        config["num_key_value_heads"] = count
    config["head_dim"] = depth


# --- feed-forward columns


def inner_scores(checkpoint: Checkpoint, family: Family, layer: int) -> Scores:
    """By weights alone: for each column, the lengths of its rows and of its part of the output multiplied."""
    at = family.at(checkpoint, layer)
    scores = np.linalg.norm(checkpoint.floats(f"{at}{family.down}.weight").astype(np.float64), axis=0)
    for name in family.up:
        rows = np.linalg.norm(checkpoint.floats(f"{at}{name}.weight").astype(np.float64), axis=1)
        scores = scores * (rows[: len(scores)] * rows[len(scores) :] if family.gate_in_up else rows)
    return np.asarray(scores)


def inner_size(checkpoint: Checkpoint, family: Family) -> int:
    at = family.at(checkpoint, 0)
    return int(checkpoint.tensors[f"{at}{family.down}.weight"].values.shape[1])


def kept_inner(part: float, inner: int) -> int:
    step = GROUP if inner % GROUP == 0 else 1
    return max(step, round(part * inner / step) * step)


def keep_inner(checkpoint: Checkpoint, family: Family, count: int, scores: Sequence[Scores]) -> None:
    """`scores` has one array a layer with a number for each column."""
    for layer, score in enumerate(scores):
        kept = best(score, count)
        rows = np.concatenate([kept, kept + len(score)]) if family.gate_in_up else kept
        at = family.at(checkpoint, layer)
        for name in family.up:
            _take_rows(checkpoint, at + name, rows)
        checkpoint.take(f"{at}{family.down}.weight", kept, axis=1)
    checkpoint.config[family.inner_key] = count


# --- single weights


def keep_weights(checkpoint: Checkpoint, family: Family, part: float) -> tuple[int, int]:
    """The largest `part` of each layer's matrices stays, the others become 0. How many are 0 now, of how many.

    Tables, classifiers, biases and norms are left alone.
    """
    zeros = total = 0
    for name, _, _, rest in family.names(checkpoint):
        tensor = checkpoint.tensors[name]
        if tensor.values.ndim != 2 or not rest.endswith(".weight"):
            continue
        size = np.abs(tensor.floats()).ravel()
        gone = np.argsort(-size, kind="stable")[round(part * size.size) :]
        flat = tensor.values.ravel().copy()
        flat[gone] = 0
        tensor.values = flat.reshape(tensor.values.shape)
        zeros += int((tensor.floats() == 0).sum())
        total += size.size
    return zeros, total


def best(scores: Scores, count: int) -> Indices:
    """The places of the highest scores, ascending."""
    return np.sort(np.argsort(-scores, kind="stable")[:count])


def spread(kept: Indices, size: int) -> Indices:
    """Blocks' places as the places of what is in them."""
    return (kept[:, None] * size + np.arange(size)).ravel()


def _take_rows(checkpoint: Checkpoint, name: str, kept: Indices) -> None:
    checkpoint.take(f"{name}.weight", kept)
    if f"{name}.bias" in checkpoint.tensors:
        checkpoint.take(f"{name}.bias", kept)
