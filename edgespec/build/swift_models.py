"""What ms-swift takes: a checkpoint's `model_type` in config.json to the tool's own names for it.

ms-swift finds the type of a model by its hub name or its architecture. In a local folder neither is sure (several
types share an architecture, BERT's have none), so every run states type and template.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from edgespec.build.problems import fail
from edgespec.build.sources import ModelFiles
from edgespec.build.stages.stage import Job
from edgespec.build.surgery.families import NARROW, is_narrow
from edgespec.build.weights_file import read_header
from edgespec.spec.pipeline import DistillStage, PruneStage

_LONGEST: Final = 100_000_000
"""Bytes of a header, as the format has it."""


@dataclass(frozen=True, slots=True)
class Kind:
    model_type: str
    """`--model_type`."""
    template: str
    """`--template`: how conversations are written."""
    causal: bool = False
    """A decoder: it writes text, and pools its last token."""
    embeds_as: str | None = None
    """`--model_type` for training embeddings; None where ms-swift cannot."""
    blocks: str = "encoder.layer"
    """The end of the name of the list of its layers."""


# `bert` is the tool's plain loader: transformers picks the class by config.json, and the template adds nothing to
# what the tokenizer does. (Its template `bert` would write a second [SEP].)
_PLAIN: Final = Kind("bert", "dummy")
KINDS: Final[Mapping[str, Kind]] = {
    "bert": _PLAIN,
    "roberta": _PLAIN,
    "xlm-roberta": _PLAIN,
    "modernbert": Kind("modern_bert", "dummy", embeds_as="modern_bert_gte", blocks="layers"),
    "qwen2": Kind("qwen2", "qwen2_5", causal=True, embeds_as="qwen2", blocks="layers"),
    "qwen3": Kind("qwen3", "qwen3", causal=True, embeds_as="qwen3", blocks="layers"),
}
"""By `model_type` of config.json; each was run."""


def read_config(files: ModelFiles, source: str) -> dict[str, Any]:
    """config.json of a checkpoint."""
    if files.is_onnx or files.config is None:
        raise fail(
            "ES551",
            f"{source} is an ONNX graph, which ms-swift does not train. Write `source: ./DIR` with the model in "
            "Hugging Face layout: config.json, *.safetensors, tokenizer.json.",
        )
    try:
        config = json.loads(files.config.read())
    except ValueError as why:
        raise fail("ES510", f"`source: {source}`: config.json is not JSON: {why}.") from None
    if not isinstance(config, dict):
        raise fail("ES510", f"`source: {source}`: config.json is no object.")
    return config


def shapes_of(files: ModelFiles, source: str) -> dict[str, tuple[int, ...]]:
    """Every tensor's shape. Of each file only the header is read; the whole is verified when it is used. Raises
    ES511."""
    from edgespec.build.weights import BrokenWeightsError

    found: dict[str, tuple[int, ...]] = {}
    for file in files.weights:
        with file.path.open("rb") as stream:
            length = stream.read(8)
            raw = length + stream.read(min(int.from_bytes(length, "little"), _LONGEST))
        try:
            found |= {name: tuple(entry["shape"]) for name, entry in read_header(raw).items()}
        except BrokenWeightsError as why:
            raise fail("ES511", f"{file.name} of {source}: {why}.") from None
    return found


def kind_of(config: Mapping[str, Any], source: str) -> Kind:
    """Raises ES551 for a model that ms-swift, as edgespec runs it, does not take."""
    found = str(config.get("model_type"))
    if found in KINDS:
        return KINDS[found]
    advice = (
        "ms-swift 4.6 cannot build DistilBERT (it loses the width of the embedding). "
        "Fit a `head` on it, which needs no training of the encoder, or start from another model."
        if found == "distilbert"
        else "Start from one of these, or fit a `head` on the model as it is."
    )
    raise fail("ES551", f"the model_type of {source} is {found}; ms-swift takes {', '.join(KINDS)} here. {advice}")


def refuse_pruned_heads(job: Job, code: str) -> None:
    """Raises `code` for an encoder that has lost heads, or will have when this stage is reached: the tools load it by
    transformers, which shares the whole width between the heads that are left."""
    source = job.spec.model.source
    config = read_config(job.files, source)
    if is_narrow(config) or (config.get("model_type") in NARROW and _prunes_heads_before(job)):
        raise fail(
            code,
            f"{source} has fewer heads than its width is shared between by the time of `{job.step.stage.name}`, and "
            "ms-swift cannot load such an encoder. Prune `heads` in a stage after this one, or prune `ffn` and "
            "`layers` instead.",
        )


def _prunes_heads_before(job: Job) -> bool:
    """Whether an earlier stage takes heads away, and none after it makes a new model."""
    stages = job.spec.model.pipeline
    where = job.step.where
    before = stages[: where[2]] if where[:2] == ("model", "pipeline") and isinstance(where[2], int) else stages
    pruned = False
    for options in (s.options for s in before):
        if isinstance(options, PruneStage) and options.heads is not None:
            pruned = True
        elif isinstance(options, DistillStage) and options.student is not None:
            pruned = False
    return pruned


def is_quantised(config: Mapping[str, Any]) -> bool:
    return isinstance(config.get("quantization_config"), dict)


def is_language_model(config: Mapping[str, Any]) -> bool:
    names = config.get("architectures") or []
    return any(str(name).endswith("ForCausalLM") for name in names)
