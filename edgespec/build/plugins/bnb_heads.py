"""For `--external_plugins`: bitsandbytes leaves classifiers in float.

ms-swift 4.6 names no module that stays in float for a text model, and transformers then keeps a language model's head
only: an encoder's new classifier would be made of integers that were never quantised, and training it fails.
"""

from __future__ import annotations

from typing import Any

from swift.arguments.base_args.quant_args import QuantizeArguments

_known = QuantizeArguments.get_modules_to_not_convert
HEADS = ("lm_head", "classifier", "score")


def keep_heads(self: Any) -> list[str]:
    """The names of modules that are not quantised."""
    return sorted({*(_known(self) or ()), *HEADS})


QuantizeArguments.get_modules_to_not_convert = keep_heads
