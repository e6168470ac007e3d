"""BERT-family encoders, from config.json and safetensors to ONNX, without torch.

Follows the modelling code of transformers (bert, roberta and xlm-roberta, distilbert) for inference: post-layer-norm
blocks, absolute positions, additive attention mask. The graph is plain: every weight matrix is the constant [in, out]
operand of a MatMul and every table is gathered, so that onnxruntime's dynamic quantiser and its fusions see them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from onnx import TensorProto

from edgespec.build.graph import Graph, pool
from edgespec.build.packed import Checkpoint
from edgespec.build.packed_graph import product
from edgespec.build.problems import fail
from edgespec.build.weights import BrokenWeightsError, FloatArray, Tensors

if TYPE_CHECKING:
    from onnx import ModelProto

SUPPORTED: Final = ("bert", "distilbert", "roberta", "xlm-roberta")
ACTIVATIONS: Final = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")
MASKED: Final = -1e9
"""Added to the score of a position that the attention mask hides."""


@dataclass(frozen=True, slots=True)
class Names:
    """Where a family keeps its tensors; `{}` is the layer."""

    prefixes: tuple[str, ...]
    layer: str
    query: str
    key: str
    value: str
    attention_out: str
    attention_norm: str
    up: str
    down: str
    norm: str


_BERT: Final = {
    "layer": "encoder.layer.{}.",
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "attention_out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "norm": "output.LayerNorm",
}
FAMILIES: Final = {
    "bert": Names(prefixes=("bert.", ""), **_BERT),
    "roberta": Names(prefixes=("roberta.", ""), **_BERT),
    "xlm-roberta": Names(prefixes=("roberta.", ""), **_BERT),
    "distilbert": Names(
        prefixes=("distilbert.", ""),
        layer="transformer.layer.{}.",
        query="attention.q_lin",
        key="attention.k_lin",
        value="attention.v_lin",
        attention_out="attention.out_lin",
        attention_norm="sa_layer_norm",
        up="ffn.lin1",
        down="ffn.lin2",
        norm="output_layer_norm",
    ),
}


@dataclass(frozen=True, slots=True)
class Config:
    """What inference needs of a config.json."""

    family: str
    layers: int
    heads: int
    width: int
    depth: int
    """Columns of one head: width / heads, or `head_dim` where heads were pruned."""
    activation: str
    epsilon: float
    positions: int
    """Tokens of the longest text, special tokens included."""
    pad: int
    token_types: int
    labels: tuple[str, ...] | None
    """Of a sequence classifier, in the order of its outputs."""

    @property
    def inputs(self) -> tuple[str, ...]:
        both = ("input_ids", "attention_mask")
        return (*both, "token_type_ids") if self.family == "bert" and self.token_types > 1 else both


def read_config(config: Mapping[str, Any], where: str) -> Config:
    """Raises EdgespecError for a model that is not supported, saying what is."""
    kind = config.get("model_type")
    if kind not in FAMILIES:
        raise fail(
            "ES510",
            f"{where} says model_type {kind!r}; edgespec turns {', '.join(SUPPORTED)} into ONNX itself. "
            "Export any other model to ONNX and write `source: ./model.onnx`.",
        )
    if config.get("position_embedding_type", "absolute") != "absolute":
        found = config["position_embedding_type"]
        raise fail("ES510", f"{where}: positions are {found!r}, not 'absolute'. Export the model to ONNX instead.")
    distil = kind == "distilbert"
    activation = config.get("activation" if distil else "hidden_act", "gelu")
    if activation not in ACTIVATIONS:
        raise fail("ES510", f"{where}: the activation {activation!r} is not one of {', '.join(ACTIVATIONS)}.")
    try:
        width = int(config["dim" if distil else "hidden_size"])
        heads = int(config["n_heads" if distil else "num_attention_heads"])
        layers = int(config["n_layers" if distil else "num_hidden_layers"])
        positions = int(config["max_position_embeddings"])
    except (KeyError, TypeError, ValueError) as why:
        raise fail("ES510", f"{where}: {why} is missing or no number. Take the model's own config.json.") from None
    pruned = config.get("head_dim")
    if heads < 1 or (pruned is None and width % heads):
        raise fail("ES510", f"{where}: {width} columns cannot be shared between {heads} attention heads.")
    pad = int(config.get("pad_token_id") or 0)
    return Config(
        family=kind,
        layers=layers,
        heads=heads,
        width=width,
        depth=width // heads if pruned is None else int(pruned),
        activation=activation,
        epsilon=1e-12 if distil else float(config.get("layer_norm_eps", 1e-12)),
        positions=positions - pad - 1 if "roberta" in kind else positions,
        pad=pad,
        token_types=0 if distil else int(config.get("type_vocab_size", 2)),
        labels=labels_of(config),
    )


def labels_of(config: Mapping[str, Any]) -> tuple[str, ...] | None:
    named = any(str(a).endswith("ForSequenceClassification") for a in config.get("architectures") or ())
    if not named:
        return None
    table = config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    return tuple(str(table[k]) for k in sorted(table, key=int))


class Encoder:
    """Writes one model's graph. `export` is the whole use of it. Packed matrices of a Checkpoint stay integers."""

    def __init__(self, config: Config, tensors: Tensors, where: str) -> None:
        self.config, self.names, self.where = config, FAMILIES[config.family], where
        self.graph = Graph()
        self._tensors = tensors
        self._packed = tensors.packed if isinstance(tensors, Checkpoint) else {}
        prefixes = self.names.prefixes
        self._prefix = next((p for p in prefixes if f"{p}embeddings.word_embeddings.weight" in tensors), prefixes[0])

    def tensor(self, name: str, *shape: int | None) -> FloatArray:
        """The tensor of that name in float32, its shape checked (None: any length)."""
        older = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        found = next((n for n in (name, older) if n in self._tensors), None)
        if found is None:
            raise fail("ES511", f"{self.where} has no tensor {name!r}, which config.json makes one expect.")
        try:
            value = self._tensors.get(found)
        except BrokenWeightsError as why:
            raise fail("ES511", f"{self.where}: {why}.") from None
        if value.ndim != len(shape) or any(w not in (None, g) for w, g in zip(shape, value.shape, strict=True)):
            wanted = "x".join("any" if n is None else str(n) for n in shape)
            got = "x".join(map(str, value.shape))
            raise fail("ES511", f"{self.where}: tensor {found!r} is {got}, config.json says {wanted}.")
        return value

    def linear(self, x: str, name: str, tensor: str, fan_in: int, fan_out: int | None) -> str:
        kernel = self.tensor(f"{tensor}.weight", fan_out, fan_in)
        bias = self.tensor(f"{tensor}.bias", kernel.shape[0])
        if tensor not in self._packed:
            return self.graph.linear(name, x, kernel.T, bias)
        y = product(self.graph, name, x, self._packed[tensor])
        return self.graph.op("Add", f"{name}.add", y, self.graph.weight(f"{name}.bias", bias))

    def layer_norm(self, x: str, name: str, tensor: str) -> str:
        width = self.config.width
        scale = self.graph.weight(f"{name}.scale", self.tensor(f"{tensor}.weight", width))
        bias = self.graph.weight(f"{name}.bias", self.tensor(f"{tensor}.bias", width))
        return self.graph.op("LayerNormalization", name, x, scale, bias, axis=-1, epsilon=self.config.epsilon)

    def embeddings(self) -> str:
        g, c, at = self.graph, self.config, f"{self._prefix}embeddings."
        words = g.weight("embeddings.words.table", self.tensor(f"{at}word_embeddings.weight", None, c.width))
        x = g.op("Gather", "embeddings.words", words, "input_ids")
        if c.token_types:
            table = self.tensor(f"{at}token_type_embeddings.weight", c.token_types, c.width)
            if "token_type_ids" in c.inputs:
                types = g.op("Gather", "embeddings.types", g.weight("embeddings.types.table", table), "token_type_ids")
            else:
                types = g.weight("embeddings.types.row", table[0])
            x = g.op("Add", "embeddings.words_types", x, types)
        table = self.tensor(f"{at}position_embeddings.weight", None, c.width)
        rows = g.weight("embeddings.positions.table", table)
        positions = g.op("Gather", "embeddings.positions", rows, self.positions())
        return self.layer_norm(g.op("Add", "embeddings.sum", x, positions), "embeddings.norm", f"{at}LayerNorm")

    def positions(self) -> str:
        """Position ids: 0, 1, 2 ... [1, sequence]; in RoBERTa, pad + the count of tokens so far that are no padding."""
        g = self.graph
        if "roberta" in self.config.family:
            pad = g.weight("const.pad", np.array(self.config.pad, np.int64))
            is_pad = g.op("Equal", "positions.is_pad", "input_ids", pad)
            real = g.op("Cast", "positions.real", g.op("Not", "positions.not_pad", is_pad), to=TensorProto.INT64)
            count = g.op("CumSum", "positions.count", real, g.weight("const.axis", np.array(1, np.int64)))
            return g.op("Add", "positions", g.op("Mul", "positions.counted", count, real), pad)
        shape = g.op("Shape", "positions.shape", "input_ids")
        length = g.op("Gather", "positions.length", shape, g.weight("const.axis", np.array(1, np.int64)))
        zero, one = g.weight("const.int0", np.array(0, np.int64)), g.weight("const.int1", np.array(1, np.int64))
        return g.op("Unsqueeze", "positions", g.op("Range", "positions.range", zero, length, one), g.ints(0))

    def mask(self) -> str:
        """The attention mask as a number to add to scores: [batch, 1, 1, sequence]."""
        g = self.graph
        wide = g.op("Unsqueeze", "mask.wide", "attention_mask", g.ints(1, 2))
        seen = g.op("Cast", "mask.seen", wide, to=TensorProto.FLOAT)
        return g.op("Mul", "mask", g.op("Sub", "mask.hidden", g.number(1), seen), g.number(MASKED))

    def attention(self, x: str, mask: str, at: str, name: str) -> str:
        g, c, n = self.graph, self.config, self.names
        depth, inner = c.depth, c.heads * c.depth

        def heads(which: str, tensor: str, perm: Sequence[int]) -> str:
            y = self.linear(x, f"{name}.{which}", at + tensor, c.width, inner)
            split = g.op("Reshape", f"{name}.{which}.split", y, g.ints(0, 0, c.heads, depth))
            return g.op("Transpose", f"{name}.{which}.heads", split, perm=perm)

        query = heads("query", n.query, (0, 2, 1, 3))
        key = heads("key", n.key, (0, 2, 3, 1))
        value = heads("value", n.value, (0, 2, 1, 3))
        scores = g.op("MatMul", f"{name}.scores", query, key)
        scaled = g.op("Div", f"{name}.scaled", scores, g.number(math.sqrt(depth)))
        chances = g.op("Softmax", f"{name}.softmax", g.op("Add", f"{name}.masked", scaled, mask), axis=-1)
        mixed = g.op("Transpose", f"{name}.joined", g.op("MatMul", f"{name}.mixed", chances, value), perm=(0, 2, 1, 3))
        flat = g.op("Reshape", f"{name}.flat", mixed, g.ints(0, 0, inner))
        return self.linear(flat, f"{name}.out", at + n.attention_out, inner, c.width)

    def layer(self, x: str, mask: str, index: int) -> str:
        g, c, n = self.graph, self.config, self.names
        at, name = self._prefix + n.layer.format(index), f"layer.{index}"
        attended = self.attention(x, mask, at, f"{name}.attention")
        summed = g.op("Add", f"{name}.attention.sum", attended, x)
        x = self.layer_norm(summed, f"{name}.attention.norm", at + n.attention_norm)
        up = self.linear(x, f"{name}.up", at + n.up, c.width, None)
        inner = g.weights[f"{name}.up.bias"].shape[0]
        down = self.linear(activate(g, up, f"{name}.act", c.activation), f"{name}.down", at + n.down, inner, c.width)
        return self.layer_norm(g.op("Add", f"{name}.sum", down, x), f"{name}.norm", at + n.norm)

    def hidden(self) -> str:
        """The last hidden state: [batch, sequence, width]."""
        x, mask = self.embeddings(), self.mask()
        for index in range(self.config.layers):
            x = self.layer(x, mask, index)
        return x

    def classifier(self, hidden: str, order: Sequence[int]) -> str:
        """Logits of the model's own classifier, its outputs taken in `order`."""
        g, width = self.graph, self.config.width
        first = pool(g, hidden, "attention_mask", "cls")
        family = self.config.family
        dense, last, act = {
            "bert": (f"{self._prefix}pooler.dense", "classifier", "Tanh"),
            "distilbert": ("pre_classifier", "classifier", "Relu"),
        }.get(family, ("classifier.dense", "classifier.out_proj", "Tanh"))
        pooled = g.op(act, "classifier.pooled", self.linear(first, "classifier.dense", dense, width, width))
        rows = self.tensor(f"{last}.weight", len(order), width)[list(order)]
        bias = self.tensor(f"{last}.bias", len(order))[list(order)]
        return g.op("Gemm", "logits", pooled, g.weight("classifier.kernel", rows.T), g.weight("classifier.bias", bias))


def activate(g: Graph, x: str, name: str, kind: str) -> str:
    """GELU by Erf, or by tanh, in the shapes that onnxruntime fuses; or ReLU."""
    if kind == "relu":
        return g.op("Relu", name, x)
    if kind == "gelu":
        erf = g.op("Erf", f"{name}.erf", g.op("Div", f"{name}.div", x, g.number(math.sqrt(2))))
        scaled = g.op("Mul", f"{name}.mul", x, g.op("Add", f"{name}.add", erf, g.number(1)))
        return g.op("Mul", name, scaled, g.number(0.5))
    cube = g.op("Pow", f"{name}.cube", x, g.number(3))
    inner = g.op("Add", f"{name}.inner", x, g.op("Mul", f"{name}.cubed", cube, g.number(0.044715)))
    tanh = g.op("Tanh", f"{name}.tanh", g.op("Mul", f"{name}.scaled", inner, g.number(math.sqrt(2 / math.pi))))
    half = g.op("Mul", f"{name}.half", x, g.number(0.5))
    return g.op("Mul", name, half, g.op("Add", f"{name}.add", tanh, g.number(1)))


def export_embedding(config: Config, tensors: Tensors, pooling: str, where: str) -> ModelProto:
    """Output `embedding` [batch, width]: the pooled last hidden state, not normalised."""
    encoder = Encoder(config, tensors, where)
    pooled = pool(encoder.graph, encoder.hidden(), "attention_mask", pooling)
    out = encoder.graph.op("Identity", "embedding", pooled)
    return encoder.graph.model(config.inputs, out, config.width)


def export_classifier(config: Config, tensors: Tensors, order: Sequence[int], where: str) -> ModelProto:
    """Output `logits` [batch, labels] of the model's own classifier."""
    encoder = Encoder(config, tensors, where)
    out = encoder.classifier(encoder.hidden(), order)
    return encoder.graph.model(config.inputs, out, len(order))
