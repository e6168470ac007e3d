"""Tiny models in Hugging Face layout, made on the spot and always the same: a folder of some 60 kB in milliseconds.

folder = write_tiny_bert(tmp_path / "models" / "tiny")        # source: ./models/tiny
"""

from __future__ import annotations

import json
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

WIDTH, INNER, HEADS, LAYERS, POSITIONS = 32, 48, 4, 2, 64
_WORDS = (
    "the a i my is are was not to of and where when how what why who please thanks hello hi good bad great awful "
    "refund money back return pay payment order parcel package delivery deliver late track shipment arrive broken "
    "open close hours shop gift card joke weather music cat dog house car red blue green fast slow cheap new old"
)
WORDS = _WORDS.split()
LETTERS = [*string.ascii_lowercase, *string.digits]
OTHERS = [*".,!?;:'\"-()", *"退款快递你好天气", *"مرحباكيفالحال", "é", "ß", "😀"]


def vocabulary(kind: str = "bert") -> dict[str, int]:
    special = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"] if "roberta" in kind else [
        "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]",
    ]  # fmt: skip
    tokens = [*special, *LETTERS, *(f"##{c}" for c in LETTERS), *WORDS, *OTHERS]
    return {token: i for i, token in enumerate(dict.fromkeys(tokens))}


def tiny_tokenizer(kind: str = "bert") -> Tokenizer:
    vocab = vocabulary(kind)
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocab["[CLS]"]), ("[SEP]", vocab["[SEP]"])],
    )
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    return tokenizer


def tiny_config(kind: str = "bert", labels: Sequence[str] | None = None, **more: Any) -> dict[str, Any]:
    size = len(vocabulary(kind))
    if kind == "distilbert":
        config: dict[str, Any] = {
            "model_type": kind, "dim": WIDTH, "hidden_dim": INNER, "n_heads": HEADS, "n_layers": LAYERS,
            "activation": "gelu", "max_position_embeddings": POSITIONS, "vocab_size": size, "pad_token_id": 0,
        }  # fmt: skip
    else:
        config = {
            "model_type": kind, "hidden_size": WIDTH, "intermediate_size": INNER, "num_attention_heads": HEADS,
            "num_hidden_layers": LAYERS, "hidden_act": "gelu", "layer_norm_eps": 1e-12, "vocab_size": size,
            "max_position_embeddings": POSITIONS, "type_vocab_size": 1 if "roberta" in kind else 2,
            "pad_token_id": 1 if "roberta" in kind else 0,
        }  # fmt: skip
    head = "" if labels is None else "ForSequenceClassification"
    name = {"bert": "Bert", "distilbert": "DistilBert", "roberta": "Roberta", "xlm-roberta": "XLMRoberta"}.get(
        kind, "X"
    )
    config["architectures"] = [f"{name}{head or 'Model'}"]
    if labels is not None:
        config |= {"id2label": {str(i): label for i, label in enumerate(labels)}, "num_labels": len(labels)}
    return {**config, **more}


def tiny_weights(kind: str = "bert", labels: Sequence[str] | None = None, seed: int = 0) -> dict[str, np.ndarray]:
    """Random weights under the names of transformers; with labels, a classifier and a prefix."""
    rng = np.random.default_rng(seed)
    out: dict[str, np.ndarray] = {}
    prefix = {"bert": "bert.", "distilbert": "distilbert."}.get(kind, "roberta.") if labels is not None else ""

    def matrix(name: str, rows: int, columns: int) -> None:
        out[name] = rng.normal(0, 0.15, (rows, columns)).astype(np.float32)

    def dense(name: str, rows: int, columns: int) -> None:
        matrix(f"{name}.weight", rows, columns)
        out[f"{name}.bias"] = rng.normal(0, 0.05, rows).astype(np.float32)

    def norm(name: str) -> None:
        out[f"{name}.weight"] = rng.normal(1, 0.1, WIDTH).astype(np.float32)
        out[f"{name}.bias"] = rng.normal(0, 0.05, WIDTH).astype(np.float32)

    matrix(f"{prefix}embeddings.word_embeddings.weight", len(vocabulary(kind)), WIDTH)
    out[f"{prefix}embeddings.word_embeddings.weight"] *= 4  # words must outweigh positions for a head to learn them
    matrix(f"{prefix}embeddings.position_embeddings.weight", POSITIONS, WIDTH)
    if kind != "distilbert":
        matrix(f"{prefix}embeddings.token_type_embeddings.weight", 1 if "roberta" in kind else 2, WIDTH)
    norm(f"{prefix}embeddings.LayerNorm")
    bert = ("encoder.layer", "attention.self.query", "attention.self.key", "attention.self.value",
            "attention.output.dense", "attention.output.LayerNorm", "intermediate.dense", "output.dense",
            "output.LayerNorm")  # fmt: skip
    distil = ("transformer.layer", "attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin",
              "sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm")  # fmt: skip
    layer, *parts = distil if kind == "distilbert" else bert
    for i in range(LAYERS):
        query, key, value, attention, first, up, down, second = (f"{prefix}{layer}.{i}.{p}" for p in parts)
        for name in (query, key, value, attention):
            dense(name, WIDTH, WIDTH)
        norm(first)
        dense(up, INNER, WIDTH)
        dense(down, WIDTH, INNER)
        norm(second)
    if labels is not None:
        inner, last = {
            "bert": ("bert.pooler.dense", "classifier"),
            "distilbert": ("pre_classifier", "classifier"),
        }.get(kind, ("classifier.dense", "classifier.out_proj"))
        dense(inner, WIDTH, WIDTH)
        dense(last, len(labels), WIDTH)
    return out


def write_tiny_bert(
    folder: Path,
    kind: str = "bert",
    *,
    labels: Sequence[str] | None = None,
    seed: int = 0,
    pooling: str | None = None,
    weights: Mapping[str, np.ndarray] | None = None,
    **config: Any,
) -> Path:
    """Writes config.json, model.safetensors, tokenizer.json and tokenizer_config.json; returns the folder.

    `kind` is a model_type; `labels` makes it a sequence classifier; `pooling` (mean or cls) adds 1_Pooling/config.json.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(tiny_config(kind, labels, **config), indent=2) + "\n")
    tensors = dict(weights) if weights is not None else tiny_weights(kind, labels, seed)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer = tiny_tokenizer(kind)
    tokenizer.enable_truncation(32)
    tokenizer.enable_padding()
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True) + "\n", encoding="utf-8")
    options = {
        "tokenizer_class": "BertTokenizer", "model_max_length": POSITIONS, "do_lower_case": True,
        "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]",
        "pad_token": {"content": "[PAD]", "special": True, "__type": "AddedToken"},
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(options, indent=2) + "\n")
    if pooling is not None:
        (folder / "1_Pooling").mkdir(exist_ok=True)
        modes = {"pooling_mode_cls_token": pooling == "cls", "pooling_mode_mean_tokens": pooling == "mean"}
        data = {"word_embedding_dimension": WIDTH, **modes, "pooling_mode_max_tokens": False}
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(data, indent=2) + "\n")
    return folder


EXAMPLES = {
    "refund": ("refund my money please", "i want my money back", "return the payment", "refund the order",
               "money back please", "pay me back my money"),
    "delivery": ("where is my parcel", "the package is late", "track my shipment", "when is the delivery",
                 "my parcel is not here", "how late is the delivery"),
    "other": ("hello", "what is the weather", "good music", "the cat and the dog", "a joke please", "open hours"),
}  # fmt: skip


def write_examples(path: Path, examples: Mapping[str, Sequence[str]] | None = None) -> Path:
    """Labelled JSON Lines of refund, delivery and other, which a head on a tiny model can learn."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"text": text, "label": label} for label, texts in (examples or EXAMPLES).items() for text in texts]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8", newline="\n")
    return path


def tiny_spec(name: str = "tiny", *, source: str = "./models/tiny", **fields: Any) -> dict[str, Any]:
    """An EdgeModel document: a classifier of three labels with a head, unless `model` or `task` say otherwise."""
    return {
        "apiVersion": "edgespec/v1",
        "kind": "EdgeModel",
        "metadata": {"name": name},
        "model": {"source": source, "pipeline": [{"head": {"train": "data/train.jsonl", "seed": 7}}]},
        "task": {"type": "text-classification", "labels": ["refund", "delivery", "other"], "max_tokens": 32},
        **fields,
    }


def write_tiny_project(root: Path) -> Path:
    """models/tiny and data/train.jsonl, which `tiny_spec` names."""
    write_tiny_bert(root / "models" / "tiny")
    write_examples(root / "data" / "train.jsonl")
    return root
