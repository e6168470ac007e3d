"""Tiny models of transformers, exported by torch. Import it only where torch and transformers are installed."""

from __future__ import annotations

import functools
import io
import logging
import warnings
from typing import Any

import onnx
import torch
import transformers
from onnx import ModelProto

from tests.engine.models import VOCABULARY

_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 48, "max_position_embeddings": 64,
}  # fmt: skip
_PAD = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertConfig", _SIZES),
    "roberta": ("RobertaConfig", {**_SIZES, "max_position_embeddings": 66, "type_vocab_size": 1, "pad_token_id": 1}),
    "distilbert": ("DistilBertConfig", {"vocab_size": VOCABULARY, "dim": 32, "n_layers": 2, "n_heads": 4,
                                        "hidden_dim": 48, "max_position_embeddings": 64}),
    "albert": ("AlbertConfig", {**_SIZES, "embedding_size": 16}),
    "electra": ("ElectraConfig", {**_SIZES, "embedding_size": 16}),
    "modernbert": ("ModernBertConfig", {**_SIZES, **_PAD, "num_hidden_layers": 3, "local_attention": 8,
                                        "global_attn_every_n_layers": 2, "cls_token_id": 1, "sep_token_id": 2}),
    "qwen2": ("Qwen2Config", {**_SIZES, **_PAD, "num_key_value_heads": 2}),
    "qwen3": ("Qwen3Config", {**_SIZES, **_PAD, "num_key_value_heads": 2, "head_dim": 16}),
    "mistral": ("MistralConfig", {**_SIZES, **_PAD, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 6}),
    "gemma": ("GemmaConfig", {**_SIZES, **_PAD, "num_key_value_heads": 1, "head_dim": 16}),
    "gpt2": ("GPT2Config", {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64,
                            **_PAD}),
    "phi": ("PhiConfig", {**_SIZES, **_PAD, "partial_rotary_factor": 0.5}),
    "llama": ("LlamaConfig", {**_SIZES, **_PAD, "num_key_value_heads": 1, "head_dim": 8, "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64}}),
    "mpnet": ("MPNetConfig", {**_SIZES, "pad_token_id": 1}),
    "convbert": ("ConvBertConfig", _SIZES),
}  # fmt: skip


class Wrapped(torch.nn.Module):
    """(input_ids, attention_mask) -> logits, token embeddings, or one pooled row for each text."""

    def __init__(self, model: Any, what: str) -> None:
        super().__init__()
        self.model, self.what = model, what

    def forward(self, input_ids: Any, attention_mask: Any) -> Any:
        out = self.model(input_ids=input_ids, attention_mask=attention_mask)
        if self.what in ("sequence", "token"):
            return out.logits
        hidden = out.last_hidden_state
        if self.what == "cls":
            return hidden[:, 0]
        if self.what == "last":
            last = attention_mask.sum(1) - 1
            picked = hidden[torch.arange(hidden.shape[0], device=hidden.device), last]
            return torch.nn.functional.normalize(picked, p=2, dim=1)
        seen = attention_mask.unsqueeze(-1).expand(hidden.size()).float()
        pooled = torch.sum(hidden * seen, 1) / torch.clamp(seen.sum(1), min=1e-9)
        return torch.nn.functional.normalize(pooled, p=2, dim=1)


@functools.cache
def exported(name: str, what: str, attention: str = "eager", exporter: str = "legacy") -> ModelProto:
    """what: mean, cls, last (embeddings, mean and last normalised), sequence or token (classifiers)."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _export(_model(name, what, attention), exporter)
    finally:
        logging.disable(logging.NOTSET)


def _model(name: str, what: str, attention: str) -> Wrapped:
    torch.manual_seed(0)
    kind, sizes = CONFIGS[name]
    config = getattr(transformers, kind)(**sizes)
    config.num_labels, config.use_cache = 3, False
    kinds = {"sequence": "AutoModelForSequenceClassification", "token": "AutoModelForTokenClassification"}
    model = getattr(transformers, kinds.get(what, "AutoModel")).from_config(config, attn_implementation=attention)
    for weight in model.parameters():
        noise = torch.randn_like(weight)
        weight.data = weight.data + noise * 0.1 if weight.dim() == 1 else noise * 0.15
    return Wrapped(model.eval(), what).eval()


def _export(model: Wrapped, exporter: str) -> ModelProto:
    example = (torch.randint(4, VOCABULARY, (2, 9)), torch.ones(2, 9, dtype=torch.long))
    names = {"input_names": ["input_ids", "attention_mask"], "output_names": ["out"]}
    if exporter == "dynamo":
        axes = ({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC},) * 2
        how = {"dynamo": True, "external_data": False, "dynamic_shapes": axes, "opset_version": 18, "verbose": False}
        proto: ModelProto = torch.onnx.export(model, example, **how, **names).model_proto
        return proto
    file = io.BytesIO()
    dynamic = {name: {0: "b", 1: "s"} for name in names["input_names"]}
    torch.onnx.export(model, example, file, dynamo=False, opset_version=17, dynamic_axes=dynamic, **names)
    return onnx.load_from_string(file.getvalue())
