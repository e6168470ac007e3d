"""Models of transformers that edgespec does not write itself, exported to ONNX by torch and held against the original.

The graph is the dynamo exporter's, in a canonical form: names that depend on nothing but the model, equal tensors
written once, weights as the constant [in, out] operand of their products. torch and transformers are imported where
they are used.
"""

from __future__ import annotations

import contextlib
import json
import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from edgespec.build.onnx_bert import labels_of
from edgespec.build.packed import Checkpoint, Packed
from edgespec.build.problems import fail
from edgespec.build.weights import BrokenWeightsError

if TYPE_CHECKING:
    from onnx import ModelProto

FloatArray = npt.NDArray[np.float32]
DECODERS: Final = ("qwen2", "qwen3")
SUPPORTED: Final = ("albert", "modernbert", *DECODERS)
TOLERANCE: Final = 1e-4
"""Of the largest number that torch gives, or of 1: how far onnxruntime's answer may be from it."""
LENGTHS: Final = (1, 2, 7, 19, 40)
"""Tokens of the texts that are compared; those beyond the model's positions are left out."""
_PACKAGES: Final = ("torch", "transformers", "onnxscript")
_FIXED_ROPE: Final = ("default", "linear", "llama3", "proportional", "yarn")
"""Rotary embeddings that are the same for texts of all lengths."""


@dataclass(frozen=True, slots=True)
class Config:
    """What the build needs of a config.json; `raw` is all of it."""

    family: str
    positions: int
    """Tokens of the longest text."""
    vocabulary: int
    pad: int | None
    labels: tuple[str, ...] | None
    """Of a sequence classifier, in the order of its outputs."""
    raw: Mapping[str, Any]

    @property
    def is_decoder(self) -> bool:
        """Each token sees those before it: a text is in its last token."""
        return self.family in DECODERS


@dataclass(frozen=True, slots=True)
class Wanted:
    """The graph's one output."""

    pooling: str | None
    """`embedding`, pooled by mean, cls or last; None: `logits`."""
    order: tuple[int, ...] = ()
    """For each output of the graph, which of the classifier's it is."""

    @property
    def output(self) -> str:
        return "logits" if self.pooling is None else "embedding"


def read_config(config: Mapping[str, Any], where: str) -> Config:
    """Raises EdgespecError (ES510) for a model that is not supported."""
    family = str(config.get("model_type"))
    if family not in SUPPORTED:
        raise fail("ES510", f"{where} says model_type {family!r}; torch exports {', '.join(SUPPORTED)} here.")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = str(rope.get("rope_type") or rope.get("type") or "default")
    if kind not in _FIXED_ROPE:
        raise fail("ES510", f"{where}: rotary positions of type {kind!r} change with a text's length, which a graph "
                   f"cannot; {', '.join(_FIXED_ROPE)} do not.")  # fmt: skip
    try:
        positions, vocabulary = int(config["max_position_embeddings"]), int(config["vocab_size"])
    except (KeyError, TypeError, ValueError) as why:
        raise fail("ES510", f"{where}: {why} is missing or no number. Take the model's own config.json.") from None
    pad = config.get("pad_token_id")
    return Config(family, positions, vocabulary, None if pad is None else int(pad), labels_of(config), config)


def check_installed() -> None:
    """Raises EdgespecError (ES531) for what is missing."""
    from importlib.util import find_spec

    if missing := [name for name in _PACKAGES if find_spec(name) is None]:
        raise fail("ES531", f"{missing[0]} is not installed. Run `pip install 'edgespec[build]'`.")


def export(
    config: Config, tensors: Checkpoint, wanted: Wanted, where: str, sample: Sequence[int] = ()
) -> tuple[ModelProto, float]:
    """The graph, and its largest difference from torch, as a part of TOLERANCE's measure.

    `sample` is a text's tokens as the model's tokenizer makes them, which are compared too. Inputs: input_ids and
    attention_mask, padded on the right. Raises EdgespecError: ES511 for weights that do not fit, ES575 for a graph that
    answers otherwise, ES576 where torch cannot export.
    """
    from edgespec.build.onnx_canonical import canonical
    from edgespec.build.packed_graph import replace_floats

    check_installed()
    with _quiet(), _one_thread():
        model = _load(config, tensors, wanted, where)
        packed = _order_classifier(model, dict(tensors.packed), wanted)
        graph = canonical(_to_onnx(model, config, wanted, where), "model.", wanted.output)
        missing = _relevant(model, packed) - replace_floats(graph, packed)
        if missing:
            named = ", ".join(sorted(missing)[:3])
            raise fail("ES576", f"{where}: in torch's graph {named} is no product, so that the quantised integers "
                       "cannot be put in. This is a bug in edgespec.")  # fmt: skip
        return graph, _compare(model, graph, config, wanted, where, sample)


# Loading


def _load(config: Config, tensors: Checkpoint, wanted: Wanted, where: str) -> Any:
    """The torch model in float32, its packed weights as floats."""
    import torch
    import transformers
    from safetensors.numpy import save_file

    name = "AutoModel" if wanted.pooling else "AutoModelForSequenceClassification"
    raw = {k: v for k, v in config.raw.items() if k not in ("quantization_config", "auto_map")}
    with tempfile.TemporaryDirectory(prefix="edgespec-torch-") as text:
        folder = Path(text)
        (folder / "config.json").write_text(json.dumps({**raw, "use_cache": False}))
        try:
            save_file({n: np.ascontiguousarray(tensors.get(n)) for n in tensors.float_names()},
                      folder / "model.safetensors", {"format": "pt"})  # fmt: skip
            model, info = getattr(transformers, name).from_pretrained(
                folder, attn_implementation="eager", dtype=torch.float32, local_files_only=True,
                output_loading_info=True,
            )  # fmt: skip
        except BrokenWeightsError as why:
            raise fail("ES511", f"{where}: {why}.") from None
        except (RuntimeError, ValueError, OSError, KeyError) as why:
            raise fail("ES511", f"{where}: transformers cannot load it: {_first_line(why)}") from None
    if lacking := sorted(info["missing_keys"]):
        raise fail("ES511", f"{where} has no tensor {', '.join(lacking[:3])}, which config.json makes one expect.")
    return model.eval()


def _order_classifier(model: Any, packed: dict[str, Packed], wanted: Wanted) -> dict[str, Packed]:
    """Puts the classifier's rows into the wanted order, integers too."""
    import torch

    if wanted.pooling:
        return packed
    name = "score" if hasattr(model, "score") else "classifier"
    last, order = getattr(model, name), list(wanted.order)
    with torch.no_grad():
        last.weight = torch.nn.Parameter(last.weight[order].contiguous())
        if last.bias is not None:
            last.bias = torch.nn.Parameter(last.bias[order].contiguous())
    return {n: p.taking(order) if n == name else p for n, p in packed.items()}


def _relevant(model: Any, packed: Mapping[str, Packed]) -> set[str]:
    """Packed matrices that the loaded model has: a language model's head, say, is not part of an encoder."""
    modules = [n for n, _ in model.named_modules() if n]
    return {p for p in packed if any(p == n or p.endswith(f".{n}") or n.endswith(f".{p}") for n in modules)}


# Exporting


def _wrapped(model: Any, config: Config, wanted: Wanted) -> Any:
    """(input_ids, attention_mask) to the one output."""
    import torch

    encoder = model if wanted.pooling else getattr(model, model.base_model_prefix)

    class Wrapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            if wanted.pooling is None and not config.is_decoder:
                found: torch.Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask).logits
                return found
            hidden: torch.Tensor = encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            row = _pool(hidden, attention_mask, wanted.pooling or "last")
            scored: torch.Tensor = self.model.score(row) if wanted.pooling is None else row
            return scored

    return Wrapped().eval()


def _pool(hidden: Any, mask: Any, how: str) -> Any:
    """[batch, tokens, width] to [batch, width]."""
    import torch

    if how == "cls":
        return hidden[:, 0]
    if how == "last":
        return hidden[torch.arange(hidden.shape[0], device=hidden.device), mask.sum(1) - 1]
    seen = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * seen).sum(1) / seen.sum(1).clamp(min=1e-9)


def _to_onnx(model: Any, config: Config, wanted: Wanted, where: str) -> ModelProto:
    import torch

    from edgespec.build.graph import MAX_OPSET, PROTOBUF_LIMIT

    size = sum(p.numel() * p.element_size() for p in model.parameters())
    if size > PROTOBUF_LIMIT:
        raise fail("ES516", f"{where} takes {size} bytes in float32; ONNX files end at 2 GiB.")
    ids = torch.ones(2, 9, dtype=torch.long)
    axes = ({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC},) * 2
    try:
        program = torch.onnx.export(
            _wrapped(model, config, wanted), (ids, torch.ones_like(ids)), dynamo=True, external_data=False,
            dynamic_shapes=axes, opset_version=MAX_OPSET, verbose=False, input_names=["input_ids", "attention_mask"],
            output_names=["edgespec_output"],
        )  # fmt: skip
    except Exception as why:  # noqa: BLE001 - torch's exporter raises of all kinds
        raise fail("ES576", f"{where}: {_first_line(why)} Export it to ONNX yourself and write `source: ./model.onnx`."
                   ) from None  # fmt: skip
    if program is None:
        raise fail("ES576", f"{where}: the exporter gave nothing.")
    proto: ModelProto = program.model_proto
    return proto


# Comparing


def _compare(model: Any, graph: ModelProto, config: Config, wanted: Wanted, where: str, sample: Sequence[int]) -> float:
    from edgespec.build.graph import encode

    texts = [_random_text(config, n) for n in LENGTHS if n <= config.positions]
    texts += [list(sample)] if sample else []
    exact = [_torch_answer(model, config, wanted, text) for text in texts]
    alone, padded = onnx_answers(encode(graph), texts, config.pad or 0)
    scale = max(1.0, *(float(np.abs(row).max()) for row in exact))
    worst = 0.0
    for text, row, single, batched in zip(texts, exact, alone, padded, strict=True):
        off = max(float(np.abs(single - row).max()), float(np.abs(batched - row).max())) / scale
        if not off <= TOLERANCE:
            raise fail("ES575", _difference(config, wanted, where, text, off))
        worst = max(worst, off)
    return worst


def _difference(config: Config, wanted: Wanted, where: str, text: Sequence[int], off: float) -> str:
    said = (
        f"{where}: for a text of {len(text)} tokens the ONNX graph is {off:.2g} from torch; {TOLERANCE:g} is allowed."
    )
    if wanted.pooling is None and config.is_decoder and text[-1] == config.pad:
        return (f"{said} The tokenizer ends a text with token {config.pad}, which config.json has as padding: "
                "transformers scores the token before it, an engine that sees no padding the last. Give the padding "
                "another token (pad_token_id) and train the classifier with it.")  # fmt: skip
    return f"{said} Export the model to ONNX yourself and write `source: ./model.onnx`."


def _random_text(config: Config, length: int) -> list[int]:
    ids = np.random.default_rng(length).integers(0, config.vocabulary - 1, length)
    return [int(i) + (config.pad is not None and i >= config.pad) for i in ids]


def _torch_answer(model: Any, config: Config, wanted: Wanted, text: Sequence[int]) -> FloatArray:
    """By transformers' own code for a text, [columns]; only the pooling, in numpy, is this module's."""
    import torch

    ids = torch.tensor([list(text)])
    with torch.no_grad():
        out = model(input_ids=ids, attention_mask=torch.ones_like(ids))
    if wanted.pooling is None:
        return np.asarray(out.logits[0].numpy(), np.float32)
    hidden = np.asarray(out.last_hidden_state[0].numpy(), np.float32)
    rows: dict[str, FloatArray] = {
        "cls": hidden[0],
        "last": hidden[-1],
        "mean": hidden.mean(0, dtype=np.float64).astype(np.float32),
    }
    return rows[wanted.pooling]


def onnx_answers(graph: bytes, texts: Sequence[Sequence[int]], pad: int) -> tuple[list[FloatArray], list[FloatArray]]:
    """onnxruntime's rows for each text by itself, and for all in one batch, padded on the right."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    def run(rows: Sequence[Sequence[int]]) -> Any:
        longest = max(map(len, rows))
        ids = np.array([[*row, *([pad] * (longest - len(row)))] for row in rows], np.int64)
        mask = np.array([[1] * len(row) + [0] * (longest - len(row)) for row in rows], np.int64)
        return session.run(None, {"input_ids": ids, "attention_mask": mask})[0]

    return [run([text])[0] for text in texts], list(run(texts))


# Around a tool


def _first_line(why: BaseException) -> str:
    lines = [line.strip() for line in str(why).splitlines() if line.strip()]
    return f"{type(why).__name__}: {lines[0].rstrip('.') if lines else ''}."


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the progress bars and advice of torch and transformers."""
    import transformers

    talk: Any = transformers.utils.logging
    bars, level = talk.is_progress_bar_enabled(), talk.get_verbosity()
    disabled = logging.root.manager.disable
    talk.disable_progress_bar()
    talk.set_verbosity_error()
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        talk.set_verbosity(level)
        if bars:
            talk.enable_progress_bar()
