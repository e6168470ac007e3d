"""For `swift export --external_plugins`: GPTQ of models with fewer than ten layers.

ms-swift 4.6 looks for the list of a model's layers among lists of ten members or more, and hands on None for smaller
models, where the quantiser then fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from swift.pipelines.export import quant
from torch import nn

_known: Callable[[Any], str | None] = quant.QuantEngine.get_block_name_to_quantize


def find_blocks(model: nn.Module) -> str:
    """The name of the longest list of layers."""
    known: str | None = _known(model)
    if known is not None:
        return known
    lists = [(n, m) for n, m in model.named_modules() if isinstance(m, nn.ModuleList) and "layer" in n.split(".")[-1]]
    if not lists:
        raise ValueError("no list of layers in the model: nothing to quantise")
    longest: str = max(lists, key=lambda found: len(found[1]))[0]
    return longest


quant.QuantEngine.get_block_name_to_quantize = staticmethod(find_blocks)
