"""How much attention heads and feed-forward columns contribute to what their layer gives, measured on texts.

For a head: the mean over tokens of the squared length of what it adds to the layer's output. For a column the same:
its squared activation times the squared length of its part of the output matrix.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from edgespec.build.surgery.checkpoint import Checkpoint
from edgespec.build.surgery.families import Family, head_size
from edgespec.build.surgery.parts import Scores, count_layers
from edgespec.build.torch.batches import by_length, pad, tokenise
from edgespec.build.torch.models import load_model
from edgespec.build.torch.runtime import device, repeatable

BATCH: Final = 16


def measure(
    folder: Path, checkpoint: Checkpoint, family: Family, texts: Sequence[str], max_tokens: int
) -> tuple[list[Scores], list[Scores]]:
    """For each layer of the model in `folder`, which is `checkpoint`: [heads] and [columns]."""
    import torch

    sums: dict[tuple[int, str], Any] = {}
    ids = tokenise(folder, texts, max_tokens)
    with repeatable(0), torch.no_grad():
        model = load_model(folder, classifier=False).to(device())
        mask: list[Any] = []
        for name, module in model.named_modules():
            layer, part = _place(name, family)
            if part in (family.out, family.down):
                module.register_forward_pre_hook(_adder(sums, (layer, part), mask, pairs=part == family.out))
        for places in by_length(ids, BATCH):
            batch = pad([ids[i] for i in places], model.config.pad_token_id, device())
            mask[:] = [batch["attention_mask"].bool()]
            model(**batch)
    depth = head_size(checkpoint.config, family)
    heads, columns = [], []
    for layer in range(count_layers(checkpoint, family)):
        at = family.at(checkpoint, layer)
        out = checkpoint.floats(f"{at}{family.out}.weight").astype(np.float64)
        seen = sums[layer, family.out].cpu().numpy()
        squares = seen * (out.T @ out)
        blocks = squares.reshape(len(squares) // depth, depth, -1, depth)
        heads.append(np.array([blocks[h, :, h].sum() for h in range(len(blocks))]))
        down = checkpoint.floats(f"{at}{family.down}.weight").astype(np.float64)
        columns.append(sums[layer, family.down].cpu().numpy() * (down * down).sum(0))
    return heads, columns


def _adder(
    sums: dict[tuple[int, str], Any], key: tuple[int, str], mask: list[Any], *, pairs: bool
) -> Callable[[Any, Any], None]:
    """Adds up the squares of a matrix's inputs, or the products of all pairs, over tokens that are no padding."""

    def add(_: Any, inputs: Any) -> None:
        x = inputs[0]
        x = x.reshape(*mask[0].shape, x.shape[-1])[mask[0]].double()
        sums[key] = sums.get(key, 0) + (x.T @ x if pairs else (x * x).sum(0))

    return add


def _place(name: str, family: Family) -> tuple[int, str]:
    """A module's layer and its name inside it; (-1, "") outside of layers."""
    found = re.fullmatch(r"(?:.*?\.)?" + re.escape(family.layer).replace(r"\{\}", r"(\d+)") + "(.+)", name)
    return (int(found[1]), found[2]) if found else (-1, "")
