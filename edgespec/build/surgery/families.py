"""Where each family of models keeps what can be cut out of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from edgespec.build.problems import fail

if TYPE_CHECKING:  # a plan asks about names, and needs no numpy for that
    from edgespec.build.surgery.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class Family:
    """Names of tensors inside a layer, without `.weight`, and keys of config.json."""

    layer: str
    """What a layer's tensors begin with after the model's prefix; `{}` is its number."""
    value: str
    out: str
    up: tuple[str, ...]
    """Matrices whose rows are the feed-forward part's columns; two where a gate is a matrix of its own."""
    down: str
    query: str = ""
    key: str = ""
    gate_in_up: bool = False
    """Whether `up` holds columns and gate one after the other."""
    width_key: str = "hidden_size"
    layers_key: str = "num_hidden_layers"
    heads_key: str = "num_attention_heads"
    inner_key: str = "intermediate_size"

    def names(self, checkpoint: Checkpoint) -> Iterator[tuple[str, str, int, str]]:
        """Every tensor of a layer: its name, what is before the layer's part, the layer and the name inside it."""
        pattern = re.compile("(.*?)" + re.escape(self.layer).replace(r"\{\}", r"(\d+)") + "(.+)")
        for name in sorted(checkpoint.tensors):
            if found := pattern.fullmatch(name):
                yield name, found[1], int(found[2]), found[3]

    def at(self, checkpoint: Checkpoint, layer: int) -> str:
        """What the names of this layer's tensors begin with."""
        _, prefix, _, _ = next(self.names(checkpoint))
        return prefix + self.layer.format(layer)


_BERT: Final = Family(
    layer="encoder.layer.{}.",
    query="attention.self.query",
    key="attention.self.key",
    value="attention.self.value",
    out="attention.output.dense",
    up=("intermediate.dense",),
    down="output.dense",
)
_QWEN: Final = Family(
    layer="layers.{}.",
    query="self_attn.q_proj",
    key="self_attn.k_proj",
    value="self_attn.v_proj",
    out="self_attn.o_proj",
    up=("mlp.gate_proj", "mlp.up_proj"),
    down="mlp.down_proj",
)
FAMILIES: Final = {
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "distilbert": Family(
        layer="transformer.layer.{}.",
        query="attention.q_lin",
        key="attention.k_lin",
        value="attention.v_lin",
        out="attention.out_lin",
        up=("ffn.lin1",),
        down="ffn.lin2",
        width_key="dim",
        layers_key="n_layers",
        heads_key="n_heads",
        inner_key="hidden_dim",
    ),
    "qwen2": _QWEN,
    "qwen3": _QWEN,
    "modernbert": Family(
        layer="layers.{}.", value="attn.Wqkv", out="attn.Wo", up=("mlp.Wi",), down="mlp.Wo", gate_in_up=True
    ),
}
EMBEDDINGS: Final = (
    "word_embeddings.weight", "embed_tokens.weight", "tok_embeddings.weight",
)  # fmt: skip
"""Ends of the names of the tables with a row for each token."""
OUTPUTS: Final = (
    "lm_head.weight", "lm_head.bias", "lm_head.decoder.weight", "lm_head.decoder.bias", "cls.predictions.bias",
    "cls.predictions.decoder.weight", "cls.predictions.decoder.bias", "vocab_projector.weight", "vocab_projector.bias",
    "decoder.weight", "decoder.bias",
)  # fmt: skip
"""Tensors that score every token of the vocabulary."""


def family_of(config: Mapping[str, Any], source: str) -> Family:
    """Raises EdgespecError for a model that cannot be pruned."""
    kind = config.get("model_type")
    if config.get("quantization_config"):
        raise fail("ES565", f"{source} is quantised already: its weights are packed integers. Take the float model.")
    if kind not in FAMILIES:
        raise fail(
            "ES565", f"config.json of {source} says model_type {kind!r}; edgespec can prune {', '.join(FAMILIES)}."
        )
    return FAMILIES[kind]


def embedding_of(checkpoint: Checkpoint) -> str:
    """The name of the table with a row for each token. Raises KeyError where there is none."""
    found = [n for n in sorted(checkpoint.tensors) if n.endswith(EMBEDDINGS)]
    if not found:
        raise KeyError("embedding table")
    return found[0]


def head_size(config: Mapping[str, Any], family: Family) -> int:
    """Columns of one attention head."""
    return int(config.get("head_dim") or int(config[family.width_key]) // int(config[family.heads_key]))


NARROW: Final = ("bert", "roberta", "xlm-roberta", "distilbert")
"""By `model_type`: encoders of which transformers takes it that their heads fill the width."""


def is_narrow(config: Mapping[str, Any]) -> bool:
    """Whether some heads of an encoder are gone."""
    family = FAMILIES.get(config.get("model_type", ""))
    if family is None or config["model_type"] not in NARROW or not config.get("head_dim"):
        return False
    return bool(config["head_dim"] * config[family.heads_key] != config[family.width_key])
