"""Quantises a causal language model by gptqmodel's AWQ: `python -m edgespec.build.plugins.awq JOB.json`.

The file names the model's folder, the texts, group size, seed and where the result goes. ms-swift's own AWQ goes
through autoawq, which is no longer maintained and needs a GPU; gptqmodel, which ms-swift names as its successor, does
the arithmetic on a CPU too, and only packs the integers by a CUDA kernel unless it is told otherwise.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

LEAST: Final = 16
"""Tokens of a block."""


def main(path: str) -> None:
    job = json.loads(Path(path).read_text(encoding="utf-8"))
    import torch
    from gptqmodel import GPTQModel, QuantizeConfig
    from transformers import set_seed

    set_seed(job["seed"])
    if not torch.cuda.is_available():
        torch.use_deterministic_algorithms(True)
    _pack_without_cuda()
    settings = QuantizeConfig(bits=4, group_size=job["group_size"], sym=False, quant_method="awq", format="gemm")
    # Half precision: its packing takes no other, and AWQ's checkpoints are in it.
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    model = GPTQModel.load(job["model"], settings, device=device, dtype=torch.float16)
    model.quantize(_blocks(model.tokenizer, job["texts"], job["max_length"]), batch_size=1)
    model.save(job["output"])


def _blocks(tokenizer: Any, texts: list[str], length: int) -> list[dict[str, list[int]]]:
    """The texts' tokens end to end, in blocks, as ms-swift calibrates: gptqmodel leaves out what has ten tokens or
    fewer, whatever it is told."""
    tokens = [i for text in texts for i in tokenizer(text, truncation=True, max_length=length)["input_ids"]]
    size = max(length, LEAST)
    blocks = [tokens[i : i + size] for i in range(0, len(tokens), size)]
    kept = [b for b in blocks if len(b) >= LEAST]
    if not kept:
        raise ValueError(f"the calibration texts have {len(tokens)} tokens; {LEAST} are the least")
    return [{"input_ids": b, "attention_mask": [1] * len(b)} for b in kept]


def _pack_without_cuda() -> None:
    """gptqmodel takes `AWQ_GEMM` to pack AWQ's integers, which asks for CUDA; `AWQ_TORCH` writes the same layout."""
    from gptqmodel.utils import importer
    from gptqmodel.utils.backend import BACKEND

    choose = importer.get_kernel_for_backend

    def get_kernel(backend: Any, *rest: Any, **more: Any) -> Any:
        return choose(BACKEND.AWQ_TORCH if backend == BACKEND.AWQ_GEMM else backend, *rest, **more)

    importer.get_kernel_for_backend = get_kernel


if __name__ == "__main__":
    main(sys.argv[1])
