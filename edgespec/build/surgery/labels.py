"""A classifier's outputs in the order of a task's labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from edgespec.build.surgery.checkpoint import Checkpoint

CLASSIFIERS: Final = ("classifier.out_proj", "classifier", "score")


def is_classifier(config: Mapping[str, Any]) -> bool:
    return any(str(a).endswith("ForSequenceClassification") for a in config.get("architectures") or ())


def own_labels(config: Mapping[str, Any]) -> list[str]:
    """In the order of the outputs."""
    table = config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    return [str(table[k]) for k in sorted(table, key=int)]


def order_labels(checkpoint: Checkpoint, order: Sequence[int], labels: Sequence[str]) -> None:
    """`order` says which output each of `labels` is now."""
    name = next(n for n in CLASSIFIERS if f"{n}.weight" in checkpoint.tensors)
    for part in (f"{name}.weight", f"{name}.bias"):
        if part in checkpoint.tensors:
            checkpoint.take(part, np.array(order, np.intp))
    checkpoint.config |= label_config(labels)


def label_config(labels: Sequence[str]) -> dict[str, Any]:
    """The part of a config.json that names a classifier's outputs."""
    return {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }
