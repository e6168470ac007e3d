"""model2vec: a table with a vector for each token, made from an encoder by running it on every token by itself, then
PCA and weights by rank (https://github.com/MinishLab/model2vec)."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from edgespec.build.problems import fail
from edgespec.build.surgery.checkpoint import encode_json
from edgespec.build.torch.models import load_model


def distil_static(folder: Path, dimensions: int, log: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    """A folder as model2vec saves it: model.safetensors with `embeddings` in float32, config.json, tokenizer.json.

    Needs no network: everything is read from `folder`. Raises EdgespecError (ES564) where model2vec gives up.
    """
    from safetensors.numpy import save
    from transformers import AutoTokenizer

    from edgespec.build.weights_file import join_safetensors

    model = load_model(folder, classifier=False)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    with log.open("w", encoding="utf-8") as out, contextlib.redirect_stderr(out), contextlib.redirect_stdout(out):
        from model2vec.distill import distill_from_model

        try:
            made = distill_from_model(model, tokenizer, device="cpu", pca_dims=dimensions, quantize_to="float32")
        except (ValueError, RuntimeError, KeyError, TypeError) as why:
            raise fail("ES564", f"model2vec: {why}. Its output is in {log}.") from None
    table = made.embedding
    if table.shape[1] != dimensions:
        raise fail(
            "ES561",
            f"`dimensions: {dimensions}`: the model has {model.config.hidden_size} columns and {table.shape[0]} "
            "tokens; a static table has fewer columns than both.",
        )
    config = {
        "model_type": "model2vec", "architectures": ["StaticModel"], "hidden_dim": int(table.shape[1]),
        "apply_pca": dimensions, "sif_coefficient": made.config.get("sif_coefficient"), "normalize": True,
        "pooling": "mean", "seq_length": 1_000_000,
    }  # fmt: skip
    tokens = json.loads(made.tokenizer.to_str())
    files = {
        "config.json": encode_json(config),
        "model.safetensors": join_safetensors([save({"embeddings": table})]),
        "tokenizer.json": (json.dumps(tokens, ensure_ascii=False, separators=(",", ":")) + "\n").encode(),
    }
    return files, {"tokens": int(table.shape[0]), "dimensions": int(table.shape[1])}
