"""prune: parts of the model that go, without training.

In this order: entries of the vocabulary, layers, attention heads, feed-forward columns, single weights. Importance is
measured on what is left by then: on `data` where it is given (by torch), else by the size of the weights. Everything
but that measuring needs numpy alone.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from edgespec.build.problems import fail
from edgespec.build.stages.stage import Inputs, Job, Result, Stage
from edgespec.spec.pipeline import PruneStage, Vocabulary

if TYPE_CHECKING:
    from edgespec.build.surgery.checkpoint import Checkpoint
    from edgespec.build.surgery.families import Family
    from edgespec.build.surgery.parts import Scores
    from edgespec.build.surgery.renumber import Numbers

MEASURED: Final = 512
"""Texts of `data` that importance is measured on, the first ones."""
MEASURED_TOKENS: Final = 128
SCRIPTS: Final = (
    "Arabic", "Armenian", "Bengali", "Cyrillic", "Devanagari", "Ethiopic", "Georgian", "Greek", "Gujarati", "Gurmukhi",
    "Han", "Hangul", "Hebrew", "Hiragana", "Kannada", "Katakana", "Khmer", "Lao", "Latin", "Malayalam", "Myanmar",
    "Sinhala", "Tamil", "Telugu", "Thai", "Tibetan",
)  # fmt: skip
"""For "did you mean"; any script of Unicode will do."""


def _depends(inputs: Inputs) -> Inputs:
    return {}


# --- before anything runs


def _check_data(job: Job) -> None:
    options: PruneStage = job.step.options
    for field in job.step.data:
        _texts(job, field)
    if options.vocabulary is not None:
        _check_scripts(options.vocabulary.scripts)
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


def _check_scripts(scripts: Sequence[str]) -> None:
    from edgespec.build.surgery.vocabulary import in_scripts

    for script in scripts:
        try:
            in_scripts([script])
        except ValueError:
            close = difflib.get_close_matches(script, SCRIPTS, n=1)
            hint = f" Did you mean {close[0]}?" if close else f" Some are {', '.join(SCRIPTS)}."
            raise fail("ES568", f"`scripts`: Unicode has no script {script!r}.{hint}") from None


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


# --- vocabulary


def _prune_vocabulary(job: Job, checkpoint: Checkpoint, options: Vocabulary, notes: dict[str, Any]) -> dict[str, bytes]:
    from edgespec.build.surgery import renumber
    from edgespec.build.surgery.checkpoint import encode_json
    from edgespec.build.surgery.vocabulary import most_frequent, read_entries, select

    source = job.spec.model.source
    tokenizer = _json(job.files.tokenizer.read())
    entries = read_entries(tokenizer, source)
    texts = _texts(job, "vocabulary.corpus") if options.corpus is not None else ()
    old = _tokenise(tokenizer, texts)
    counts = Counter(i for ids in old for i in ids)
    wanted = most_frequent(counts, options.keep) if texts else list(entries.tokens)
    protected = renumber.special_ids(checkpoint.config)
    selection = select(tokenizer, entries, wanted=wanted, scripts=options.scripts, protected=protected)
    numbers = renumber.number(entries, selection)
    pruned = renumber.renumber_tokenizer(tokenizer, entries, numbers)
    config = renumber.renumber_config(checkpoint.config, numbers)
    renumber.check_pad(checkpoint.config, config, source)
    renumber.renumber_rows(checkpoint, numbers, source)
    checkpoint.config = config
    notes["vocabulary"] = _vocabulary_notes(pruned, texts, old, numbers, len(entries.tokens), source)
    job.say(_say_vocabulary(notes["vocabulary"]))
    out = {"tokenizer.json": encode_tokenizer(pruned)}
    if job.files.tokenizer_config is not None:
        settings = renumber.renumber_tokenizer_config(_json(job.files.tokenizer_config.read()), numbers)
        out["tokenizer_config.json"] = encode_json(settings)
    return out


def encode_tokenizer(tokenizer: Mapping[str, Any]) -> bytes:
    """The order of what is inside stays: a vocabulary is sorted by id."""
    return (json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")) + "\n").encode()


def _tokenise(tokenizer: Mapping[str, Any], texts: Sequence[str]) -> list[list[int]]:
    from edgespec.build.embed import read_tokenizer

    if not texts:
        return []
    return [e.ids for e in read_tokenizer(encode_tokenizer(tokenizer), None).encode_batch(list(texts))]


def _vocabulary_notes(
    pruned: Mapping[str, Any], texts: Sequence[str], old: Sequence[Sequence[int]], numbers: Numbers, before: int,
    source: str,
) -> dict[str, Any]:  # fmt: skip
    from edgespec.build.embed import read_tokenizer
    from edgespec.build.surgery.renumber import count_alike

    read = read_tokenizer(encode_tokenizer(pruned), None).get_vocab()
    if read != {token: i for i, (token, _) in enumerate(numbers.rows)}:
        raise fail("ES566", f"the tokenizer of {source} numbers its entries in another way once some are gone.")
    notes = {"before": before, "after": len(numbers.rows)}
    if texts:
        alike = count_alike(old, _tokenise(pruned, texts), numbers)
        notes |= {"texts": len(texts), "alike": alike}
    return notes


def _say_vocabulary(notes: Mapping[str, int]) -> str:
    said = f"{notes['after']:,} of {notes['before']:,} entries of the vocabulary stay"
    if "texts" not in notes:
        return said
    return f"{said}; {notes['alike'] / notes['texts']:.1%} of {notes['texts']:,} texts are cut into the same tokens"


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
