"""The model that a training starts from, made whole: what its checkpoint lacks would be drawn at random inside the
tool, once when it trains and once more, differently, when it merges an adapter."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from edgespec.build.weights_file import RawTensor, read_tensors, write_tensors

_CLASSIFIERS: Final = ("classifier.", "score.")


def complete(folder: Path, *, labels: Sequence[str] | None, seed: int) -> bool:
    """Rewrites the weights in `folder` for a training with these labels (None: no classifier). False when the model
    brings a classifier of other labels, which is left out.

    Adds BERT's pooler and ModernBERT's head where they are missing, drawn from `seed`.
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    files = sorted(folder.glob("*.safetensors"))
    raw = [f.read_bytes() for f in files]
    tensors: dict[str, RawTensor] = {}
    for data in raw:
        tensors |= read_tensors(data)
    kept = True
    if labels is not None:
        kept = fits(config, labels)
        if not kept:
            tensors = {n: t for n, t in tensors.items() if not n.startswith(_CLASSIFIERS)}
        tensors = _with_head(tensors, config, seed)
    for file in files:
        file.unlink()
    (folder / "model.safetensors.index.json").unlink(missing_ok=True)
    (folder / "model.safetensors").write_bytes(write_tensors(tensors))
    return kept


def fits(config: Mapping[str, Any], labels: Sequence[str]) -> bool:
    """Whether the classifier of this config.json, if it has one, gives these labels in this order. True without."""
    if not any(str(n).endswith("ForSequenceClassification") for n in config.get("architectures") or []):
        return True
    named = config.get("id2label")
    if not isinstance(named, dict):
        return len(labels) == 2  # transformers' default
    own = [str(named[k]) for k in sorted(named, key=int)]
    return own == list(labels) or own == [f"LABEL_{i}" for i in range(len(labels))]


def _with_head(tensors: dict[str, RawTensor], config: Mapping[str, Any], seed: int) -> dict[str, RawTensor]:
    kind, width = config.get("model_type"), config.get("hidden_size")
    if not isinstance(width, int):
        return tensors
    scale = float(config.get("initializer_range", 0.02))
    if kind == "bert":
        prefix = "bert." if any(n.startswith("bert.") for n in tensors) else ""
        if f"{prefix}pooler.dense.weight" not in tensors:
            tensors[f"{prefix}pooler.dense.weight"] = _normal((width, width), scale, seed)
            tensors[f"{prefix}pooler.dense.bias"] = _filled(width, 0.0)
    if kind == "modernbert":
        if not any(n.startswith("model.") for n in tensors):
            tensors = {f"model.{n}": t for n, t in tensors.items()}
        if "head.dense.weight" not in tensors:
            tensors["head.dense.weight"] = _normal((width, width), scale, seed)
            tensors["head.norm.weight"] = _filled(width, 1.0)
            if config.get("classifier_bias"):
                tensors["head.dense.bias"] = _filled(width, 0.0)
    return tensors


def _normal(shape: tuple[int, ...], scale: float, seed: int) -> RawTensor:
    import numpy as np

    values = np.random.default_rng(seed).normal(0.0, scale, math.prod(shape)).astype("<f4")
    return RawTensor("F32", shape, values.tobytes())


def _filled(width: int, value: float) -> RawTensor:
    import numpy as np

    return RawTensor("F32", (width,), np.full(width, value, "<f4").tobytes())
