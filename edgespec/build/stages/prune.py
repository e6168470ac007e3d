"""prune: parts of the model that go, without training.

In this order: entries of the vocabulary, layers, attention heads, feed-forward columns, single weights. Importance is
measured on what is left by then: on `data` where it is given (by torch), else by the size of the weights. Everything
but that measuring needs numpy alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from edgespec.build.problems import fail
from edgespec.build.stages.stage import Inputs, Job, Result, Stage
from edgespec.spec.pipeline import PruneStage, Vocabulary

if TYPE_CHECKING:
    from edgespec.build.surgery.checkpoint import Checkpoint
    from edgespec.build.surgery.families import Family
    from edgespec.build.surgery.parts import Scores

MEASURED: Final = 512
"""Texts of `data` that importance is measured on, the first ones."""
MEASURED_TOKENS: Final = 128


def _depends(inputs: Inputs) -> Inputs:
    return {}


# --- before anything runs


def _check_data(job: Job) -> None:
    options: PruneStage = job.step.options
    for field in job.step.data:
        _texts(job, field)
    if options.vocabulary is not None:
        from edgespec.build.surgery.smaller_vocabulary import check_scripts

        check_scripts(options.vocabulary.scripts)
    if options.data is not None and options.heads is None and options.ffn is None:
        raise fail("ES568", "`data` measures the importance of heads and ffn; this stage prunes neither. Take it out.")
    if options.data is not None:
        from edgespec.build.torch.runtime import need

        need("torch", "transformers")


def _check(job: Job) -> None:
    from edgespec.build.surgery.families import family_of
    from edgespec.build.surgery.vocabulary import read_entries

    options: PruneStage = job.step.options
    source = job.spec.model.source
    if job.files.is_onnx:
        raise fail("ES565", f"{source} is an ONNX file: prune works on a model in Hugging Face layout.")
    config = _config(job)
    family = family_of(config, source)
    if options.layers is not None:
        _check_layers(options.layers, config, family, source)
    if options.heads is not None:
        _check_heads(config, source)
    if options.vocabulary is not None:
        read_entries(_json(job.files.tokenizer.read()), source)


def _check_layers(kept: Sequence[int], config: Mapping[str, Any], family: Family, source: str) -> None:
    layers = int(config[family.layers_key])
    if absent := [i for i in kept if i >= layers]:
        raise fail(
            "ES567",
            f"`layers` has {', '.join(map(str, absent))}; {source} has {layers}, counted from 0 to {layers - 1}.",
        )
    if config["model_type"] == "modernbert" and 0 not in kept:
        raise fail("ES567", "the first layer of a ModernBERT has no norm before its attention: keep layer 0.")


def _check_heads(config: Mapping[str, Any], source: str) -> None:
    if config["model_type"] == "modernbert":
        raise fail(
            "ES565",
            f"{source} is a ModernBERT, whose attention takes its head size from its width: fewer heads cannot be "
            "written. Prune `layers`, `ffn` or `vocabulary`, or distil.",
        )


def _texts(job: Job, field: str) -> tuple[str, ...]:
    from edgespec.build.data import read_texts

    file = job.step.data[field]
    return read_texts(file.read(), file.name).unwrap()


def _json(data: bytes) -> dict[str, Any]:
    found = json.loads(data)
    if not isinstance(found, dict):
        raise TypeError("no object")
    return found


def _config(job: Job) -> dict[str, Any]:
    source = job.spec.model.source
    if job.files.config is None:
        raise fail("ES565", f"{source} has no config.json.")
    try:
        return _json(job.files.config.read())
    except (ValueError, TypeError) as why:
        raise fail("ES510", f"`source: {source}`: config.json: {why}.") from None


# --- the run


def _run(job: Job) -> Result:
    from edgespec.build.surgery.checkpoint import encode, encode_json, read_checkpoint
    from edgespec.build.surgery.families import family_of
    from edgespec.build.surgery.parts import keep_layers
    from edgespec.build.weights import BrokenWeightsError

    options: PruneStage = job.step.options
    source = job.spec.model.source
    try:
        checkpoint = read_checkpoint([f.read() for f in job.files.weights], _config(job))
    except BrokenWeightsError as why:
        raise fail("ES511", f"{source}: {why}.") from None
    family = family_of(checkpoint.config, source)
    if not any(True for _ in family.names(checkpoint)):
        raise fail("ES511", f"{source}: no tensor is named as {family.layer!r} of a {checkpoint.config['model_type']}.")
    outputs = {f.name: f.read() for f in job.files.all if f not in job.files.weights}
    notes: dict[str, Any] = {"parameters": [checkpoint.parameters()]}
    if options.vocabulary is not None:
        outputs |= _prune_vocabulary(job, checkpoint, options.vocabulary, notes)
    if options.layers is not None:
        job.say(f"keeping {len(options.layers)} layers")
        keep_layers(checkpoint, family, options.layers)
        notes["layers"] = sorted(options.layers)
    _prune_widths(job, checkpoint, family, outputs, notes)
    notes["parameters"].append(checkpoint.parameters())
    outputs |= {"config.json": encode_json(checkpoint.config), "model.safetensors": encode(checkpoint.tensors)}
    job.say(f"{notes['parameters'][0]:,} parameters became {notes['parameters'][1]:,}", 1.0)
    return Result(outputs, notes)


def _prune_vocabulary(job: Job, checkpoint: Checkpoint, options: Vocabulary, notes: dict[str, Any]) -> dict[str, bytes]:
    from edgespec.build.surgery.smaller_vocabulary import prune_vocabulary, say_vocabulary

    texts = _texts(job, "vocabulary.corpus") if options.corpus is not None else ()
    out, found = prune_vocabulary(job.files, checkpoint, options, texts, job.spec.model.source)
    notes["vocabulary"] = found
    job.say(say_vocabulary(found))
    return out


# --- heads, columns, weights


def _prune_widths(
    job: Job, checkpoint: Checkpoint, family: Family, outputs: Mapping[str, bytes], notes: dict[str, Any]
) -> None:
    from edgespec.build.surgery import parts

    options: PruneStage = job.step.options
    config = checkpoint.config
    if options.heads is not None or options.ffn is not None:
        heads, inner = _scores(job, checkpoint, family, outputs)
    if options.heads is not None:
        groups = parts.count_groups(config, family)
        count = parts.kept_heads(options.heads, groups)
        parts.keep_heads(checkpoint, family, count, heads)
        notes["heads"] = [groups, count]
    if options.ffn is not None:
        before = parts.inner_size(checkpoint, family)
        count = parts.kept_inner(options.ffn, before)
        parts.keep_inner(checkpoint, family, count, inner)
        notes["ffn"] = [before, count]
    if options.weights is not None:
        zeros, total = parts.keep_weights(checkpoint, family, options.weights)
        notes["weights"] = {"zeros": zeros, "of": total}
    for name in ("heads", "ffn"):
        if name in notes:
            job.say(f"{name}: {notes[name][1]} of {notes[name][0]} stay in each layer")


def _scores(
    job: Job, checkpoint: Checkpoint, family: Family, outputs: Mapping[str, bytes]
) -> tuple[Sequence[Scores], Sequence[Scores]]:
    """Of each layer's heads and of its columns."""
    from edgespec.build.surgery import parts

    layers = range(parts.count_layers(checkpoint, family))
    if job.step.options.data is None:
        return (
            [parts.head_scores(checkpoint, family, i) for i in layers] if job.step.options.heads is not None else [],
            [parts.inner_scores(checkpoint, family, i) for i in layers],
        )
    from edgespec.build.surgery.checkpoint import encode, encode_json
    from edgespec.build.torch.importance import measure

    texts = _texts(job, "data")[:MEASURED]
    job.say(f"measuring the importance of heads and columns on {len(texts)} texts")
    with job.workspace() as folder:
        for name, data in {
            **outputs, "config.json": encode_json(checkpoint.config), "model.safetensors": encode(checkpoint.tensors),
        }.items():  # fmt: skip
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        return measure(folder, checkpoint, family, texts, MEASURED_TOKENS)


STAGE: Final = Stage(
    "prune", 1, _depends, _run, _check, _check_data, tools=("numpy", "tokenizers"), makes_checkpoint=True
)
