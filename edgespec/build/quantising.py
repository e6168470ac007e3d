"""What the quantising tools share: the float checkpoint that goes in, and the packed one that comes out under the same
names."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from edgespec.build import checkpoint
from edgespec.build.problems import fail
from edgespec.build.stages.stage import Job
from edgespec.build.swift_models import (
    KINDS,
    Kind,
    is_language_model,
    is_quantised,
    read_config,
    refuse_pruned_heads,
    shapes_of,
)
from edgespec.build.weights_file import RawTensor, read_tensors, write_tensors
from edgespec.spec.pipeline import Quantization

if TYPE_CHECKING:
    from edgespec.build.quantised import Floats

CLASSIFIER: Final = "ForSequenceClassification"
_PREFIXES: Final = ("", "bert.", "roberta.", "model.")
"""What a tool's class puts before the names of a checkpoint of a bare encoder."""
_FEW: Final = 32
"""Texts, under which calibration is guessing."""


def options_of(job: Job) -> Quantization:
    if not isinstance(job.step.options, Quantization):
        raise TypeError("the options are not a quantisation's")
    return job.step.options


def refuse_options(job: Job, *unused: str, bits: Sequence[int], why_bits: str) -> None:
    """Raises ES570 for an option that the method does not have, or bits that it does not know."""
    options = options_of(job)
    if options.bits is not None and options.bits not in bits:
        known = " or ".join(str(b) for b in bits)
        raise fail("ES570", f"`method: {options.method}` knows {known} bits, not {options.bits}. {why_bits}")
    for name in unused:
        if name in options.model_fields_set:
            raise fail(
                "ES570",
                f"`{name}` is an option of gptq and awq; `method: {options.method}` looks at the weights alone, a row "
                "at a time. Remove it.",
            )


def need_calibration(job: Job) -> None:
    """Raises ES571 without a calibration file, and ES52x for one that cannot be read."""
    options = options_of(job)
    if "calibration.data" not in job.step.data:
        raise fail(
            "ES571",
            f"`method: {options.method}` rounds so that the model's answers to real texts change least. Name some: "
            "`calibration: {data: data/train.jsonl}` (labels are not looked at; 128 texts do), or take `method: int4`, "
            "which needs none.",
        )
    calibration_texts(job)


def calibration_texts(job: Job) -> list[str]:
    from edgespec.build.data import read_texts

    file, options = job.step.data["calibration.data"], options_of(job)
    count = options.calibration.samples if options.calibration else 128
    return list(read_texts(file.read(), file.name).unwrap()[:count])


def say_few(job: Job, texts: Sequence[str]) -> None:
    if len(texts) < _FEW:
        job.say(f"only {len(texts)} texts to calibrate on: a hundred or more are usual")


# --- the model that comes in


def kind_for(job: Job) -> tuple[Kind, dict[str, Any]]:
    """The kind of the model and its config.json. Raises ES572 for one that the tools do not take."""
    source, method = job.spec.model.source, options_of(job).method
    config = read_config(job.files, source)
    if is_quantised(config):
        raise fail("ES572", f"{source} is quantised already. Give the float model that it was made from.")
    found = str(config.get("model_type"))
    if found not in KINDS:
        raise fail(
            "ES572",
            f"the model_type of {source} is {found}; {method} takes {', '.join(KINDS)} here. `method: int8` and `int4` "
            "take any model.",
        )
    refuse_pruned_heads(job, "ES572")
    return KINDS[found], config


def check_shapes(job: Job, kind: Kind, *, inputs: int, outputs: int) -> None:
    """Raises ES572 unless every matrix of a layer has a multiple of so many inputs and outputs."""
    options, place = options_of(job), f"{kind.blocks}."
    for name, shape in sorted(shapes_of(job.files, job.spec.model.source).items()):
        if place not in name or not name.endswith(".weight") or len(shape) != 2:
            continue
        if shape[1] % inputs or shape[0] % outputs:
            hint = "a smaller `group_size`, or " if inputs > 32 and shape[1] % 32 == 0 else ""
            raise fail(
                "ES572",
                f"{name} has {shape[1]} inputs and {shape[0]} outputs; {options.method} with groups of "
                f"{options.group_size} needs multiples of {inputs} and {outputs}. Take {hint}`method: int4`, which "
                "takes any size.",
            )


def tool_arguments(job: Job, kind: Kind, config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """How ms-swift loads the model. A bare encoder is loaded as a classifier: its layers are what is quantised."""
    found: dict[str, Any] = {
        "model": str(folder), "model_type": kind.model_type, "template": kind.template, "use_chat_template": False,
        "torch_dtype": "float32", "max_length": job.spec.task.max_tokens, "seed": 0, "truncation_strategy": "right",
    }  # fmt: skip
    if not is_language_model(config):
        labels = config.get("id2label") if is_classifier(config) else None
        found |= {
            "task_type": "seq_cls",
            "num_labels": len(labels) if isinstance(labels, dict) else 2,
            "problem_type": config.get("problem_type") or "single_label_classification",
        }
    return found


def is_classifier(config: Mapping[str, Any]) -> bool:
    return any(str(name).endswith(CLASSIFIER) for name in config.get("architectures") or [])


# --- what comes out


def tensors_in(folder: Path) -> dict[str, RawTensor]:
    found: dict[str, RawTensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= read_tensors(file.read_bytes())
    return found


def repack(
    source: Mapping[str, RawTensor], made: Mapping[str, RawTensor], modules: Sequence[str], parts: Sequence[str]
) -> tuple[dict[str, RawTensor], list[str]]:
    """The source's tensors with `parts` of each packed module, from what the tool made, in place of its weight; and the
    modules' names in the source. Everything that is not packed keeps the source's bytes; what the tool added to load
    the model (a pooler, a classifier) goes."""
    made_of = {p: sorted(m for m in modules if _fits(p, m, source)) for p in _PREFIXES}
    prefix = max(_PREFIXES, key=lambda p: len(made_of[p]))
    if not (names := made_of[prefix]):
        raise fail("ES573", f"the tool packed {', '.join(sorted(modules)[:3]) or 'nothing'}, which the model has not.")
    out = dict(source)
    for name in names:
        own = name.removeprefix(prefix)
        del out[f"{own}.weight"]
        for part in parts:
            out[f"{own}.{part}"] = made[f"{name}.{part}"]
    return out, [n.removeprefix(prefix) for n in names]


def _fits(prefix: str, name: str, source: Mapping[str, RawTensor]) -> bool:
    return name.startswith(prefix) and f"{name.removeprefix(prefix)}.weight" in source


def compare(
    source: Mapping[str, RawTensor], modules: Sequence[str], bits: int, read: Callable[[str], Floats]
) -> dict[str, float]:
    """How far the packed matrices are from the float ones, relative to these. Raises ES573 for what was misread."""
    from edgespec.build.quantised import MOST, array_of, relative_error

    errors = {n: relative_error(read(n), array_of(source[f"{n}.weight"]).astype("<f4")) for n in modules}
    worst = max(errors, key=lambda n: errors[n])
    if not errors[worst] <= MOST[bits]:
        raise fail(
            "ES573",
            f"{worst} differs from the float weights by {errors[worst]:.0%} after quantisation to {bits} bits; more "
            f"than {MOST[bits]:.0%} is no rounding. Its layout is not what edgespec expects of this tool's version.",
        )
    return {"error_mean": round(sum(errors.values()) / len(errors), 6), "error_worst": round(errors[worst], 6)}


def write_packed(
    folder: Path, original: Path, tensors: Mapping[str, RawTensor], quantization: Mapping[str, Any]
) -> Path:
    """The checkpoint that the stage gives: the packed tensors under the source's config.json with a truthful note."""
    folder.mkdir()
    config = json.loads((original / "config.json").read_text(encoding="utf-8"))
    config = {k: v for k, v in config.items() if k not in checkpoint.VARIES}
    (folder / "model.safetensors").write_bytes(write_tensors(tensors))
    files = {n: (original / n).read_bytes() for n in checkpoint.KEPT if (original / n).is_file()}
    return checkpoint.tidy_checkpoint(folder, files, {**config, "quantization_config": dict(quantization)})
