"""export: the model as ONNX with one output, `embedding` (pooled, not normalised) or `logits`: float32, but for
matrices that a tool quantised, whose integers stay as they are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from edgespec.build.cache import InputFile
from edgespec.build.problems import fail
from edgespec.build.sources import ModelFiles
from edgespec.build.stages.stage import Inputs, Job, Result, Stage, fits_head, part
from edgespec.spec.models import EdgeModel, TextClassification

if TYPE_CHECKING:
    from onnx import ModelProto

    from edgespec.build import torch_export
    from edgespec.build.onnx_bert import Config
    from edgespec.build.packed import Checkpoint

MODULES = frozenset({"Transformer", "Pooling", "Normalize"})


def wants_classifier(spec: EdgeModel) -> bool:
    """Whether the model's own classifier is used, and not its embedding."""
    return isinstance(spec.task, TextClassification) and spec.head is None


def depends(inputs: Inputs) -> Inputs:
    task = part(inputs, "task")
    if task["type"] == "text-classification" and not fits_head(inputs):
        return {"output": "logits", "labels": task["labels"]}
    return {"output": "embedding"}


def read_json(file: InputFile, source: str) -> Mapping[str, Any]:
    try:
        data = json.loads(file.read())
    except ValueError as why:
        raise fail("ES510", f"`source: {source}`: {file.name} is not JSON: {why}.") from None
    if not isinstance(data, dict | list):
        raise fail("ES510", f"`source: {source}`: {file.name} is neither an object nor a list.")
    return data if isinstance(data, dict) else {"list": data}


POOLINGS = {"cls_token": "cls", "mean_tokens": "mean", "lasttoken": "last"}
_SAMPLE = "Where is my parcel?"
"""A text as the model's tokenizer writes it, for the comparison of an export."""


def pooling_of(files: ModelFiles, source: str, default: str = "mean", known: Sequence[str] = ("mean", "cls")) -> str:
    """`mean`, `cls` or `last`, one of `known`, from the files of sentence-transformers; `default` without them."""
    if files.modules:
        kinds = [str(m.get("type", "")).rpartition(".")[2] for m in read_json(files.modules, source).get("list", [])]
        if strange := sorted(set(kinds) - MODULES):
            raise fail(
                "ES510",
                f"`source: {source}`: modules.json has {', '.join(strange)}; edgespec knows "
                f"{', '.join(sorted(MODULES))}. Export the whole model to ONNX instead.",
            )
    if files.pooling is None:
        return default
    data = read_json(files.pooling, source)
    modes = [k.removeprefix("pooling_mode_") for k, v in data.items() if k.startswith("pooling_mode_") and v is True]
    if isinstance(single := data.get("pooling_mode"), str):
        modes = [next((k for k, v in POOLINGS.items() if v == single), single)]
    if len(modes) != 1 or POOLINGS.get(modes[0]) not in known:
        found = " and ".join(modes) or "nothing"
        names = {"mean": "the mean", "cls": "the first token (cls)", "last": "the last token (lasttoken)"}
        can = " or by ".join(names[k] for k in known)
        raise fail("ES510", f"`source: {source}`: 1_Pooling/config.json pools by {found}; edgespec pools by {can}.")
    return POOLINGS[modes[0]]


def label_order(own: Sequence[str] | None, wanted: Sequence[str], source: str) -> list[int]:
    """For each of the task's labels, which of the model's outputs it is. Names decide; LABEL_0 ... carry no names."""
    if own is None:
        return list(range(len(wanted)))
    if all(name == f"LABEL_{i}" for i, name in enumerate(own)) and len(own) == len(wanted):
        return list(range(len(wanted)))
    folded = {name.casefold(): i for i, name in enumerate(own)}
    exact = {name: i for i, name in enumerate(own)}
    order = [exact.get(label, folded.get(label.casefold(), -1)) for label in wanted]
    if -1 in order or len(set(order)) != len(own):
        raise fail(
            "ES512",
            f"the task's labels are [{', '.join(wanted)}]; the classifier in {source} has [{', '.join(own)}]. Write "
            "the same names, in any order, or fit a classifier with `pipeline: [{head: {train: data/train.jsonl}}]`.",
        )
    return order


def _read_config(job: Job) -> Config | torch_export.Config:
    """Of a model that edgespec writes itself, or of one that torch exports. Raises ES510 for any other."""
    from edgespec.build import onnx_bert, onnx_model2vec, torch_export

    source = job.spec.model.source
    if job.files.config is None:
        raise fail("ES504", f"{source} has no config.json.")
    config, where = read_json(job.files.config, source), f"config.json of {source}"
    kind = config.get("model_type")
    if kind in torch_export.SUPPORTED:
        return torch_export.read_config(config, where)
    if kind not in onnx_bert.SUPPORTED:
        known = ", ".join(sorted((*onnx_bert.SUPPORTED, *torch_export.SUPPORTED, onnx_model2vec.MODEL_TYPE)))
        raise fail("ES510", f"{where} says model_type {kind!r}; edgespec turns {known} into ONNX. "
                   "Export any other model to ONNX and write `source: ./model.onnx`.")  # fmt: skip
    return onnx_bert.read_config(config, where)


def _pooling(job: Job, config: Config | torch_export.Config) -> str:
    from edgespec.build import torch_export

    if not isinstance(config, torch_export.Config):
        return pooling_of(job.files, job.spec.model.source)
    default = "last" if config.is_decoder else "mean"
    return pooling_of(job.files, job.spec.model.source, default, ("mean", "cls", "last"))


def _check(job: Job) -> None:
    spec, source = job.spec, job.spec.model.source
    if _is_static(job):
        if wants_classifier(spec):
            raise no_classifier(source)
        return
    if job.files.is_onnx:
        pooling_of(job.files, source)
        return
    config = _read_config(job)
    _pooling(job, config)
    if wants_classifier(spec):
        if config.labels is None:
            raise no_classifier(source)
        label_order(config.labels, job.task.labels, source)
    if spec.task.max_tokens > config.positions:
        raise fail(
            "ES515",
            f"max_tokens is {spec.task.max_tokens}, the positions of {source} end at {config.positions}. "
            f"Write {config.positions} or less.",
        )


def no_classifier(source: str) -> Exception:
    return fail(
        "ES513",
        f"{source} has no classifier, and the pipeline fits none. Add one to the spec: "
        "`model: {source: ..., pipeline: [{head: {train: data/train.jsonl}}]}`, with a line "
        '{"text": "...", "label": "..."} for each example.',
    )


def from_graph(job: Job) -> ModelProto:
    from edgespec.build import onnx_import

    source, tokenizer = job.spec.model.source, job.files.tokenizer.read()
    model = onnx_import.read_graph(job.files.weights[0].read(), source)
    if not wants_classifier(job.spec):
        model = onnx_import.to_embedding(model, pooling_of(job.files, source), source)
        onnx_import.set_columns(model, onnx_import.count_columns(model, tokenizer, source))
        return model
    if onnx_import.logits_of(model) is None:
        raise no_classifier(source)
    wanted = job.task.labels
    own = onnx_import.label_names(job.files.config.read() if job.files.config else None)
    model = onnx_import.to_logits(model, label_order(own, wanted, source))
    columns = onnx_import.count_columns(model, tokenizer, source)
    if columns != len(wanted):
        raise fail("ES512", f"the task has {len(wanted)} labels, the classifier in {source} has {columns} outputs.")
    onnx_import.set_columns(model, columns)
    return model


def _is_static(job: Job) -> bool:
    """Whether it is a folder of model2vec."""
    from edgespec.build.onnx_model2vec import is_static

    config = None if job.files.is_onnx else job.files.config
    return config is not None and is_static(read_json(config, job.spec.model.source))


def came_quantised(files: ModelFiles, source: str) -> bool:
    """Whether config.json says that a tool has quantised the model."""
    return files.config is not None and _names_quantizer(files.config, source)


@cache
def _names_quantizer(config: InputFile, source: str) -> bool:
    """Kept by the file as it was: many specs have the same model."""
    return "quantization_config" in read_json(config, source)


def checkpoint(job: Job) -> Checkpoint:
    """The model's tensors. Raises ES511, or ES577 for quantised weights that cannot be read exactly."""
    from edgespec.build.packed import Checkpoint, PackedError
    from edgespec.build.weights import BrokenWeightsError

    where = _where(job)
    try:
        return Checkpoint(*(f.read() for f in job.files.weights))
    except PackedError as why:
        raise fail("ES577", f"{where}: {why}.") from None
    except BrokenWeightsError as why:
        raise fail("ES511", f"{where}: {why}.") from None


def _where(job: Job) -> str:
    return f"{', '.join(f.name for f in job.files.weights)} of {job.spec.model.source}"


def _from_weights(job: Job) -> ModelProto:
    from edgespec.build import torch_export
    from edgespec.build.onnx_model2vec import export_static, read_static
    from edgespec.build.packed import PackedError

    tensors = checkpoint(job)
    if job.files.config is not None and _is_static(job):
        own = read_json(job.files.config, job.spec.model.source)
        return export_static(read_static(own, tensors, job.files.tokenizer.read(), _where(job)))
    config = _read_config(job)
    try:
        if isinstance(config, torch_export.Config):
            return _by_torch(job, config, tensors)
        return _by_edgespec(job, config, tensors)
    except PackedError as why:
        raise fail("ES577", f"{_where(job)}: {why}.") from None


def _by_edgespec(job: Job, config: Config, tensors: Checkpoint) -> ModelProto:
    from edgespec.build.graph import initializers
    from edgespec.build.onnx_bert import export_classifier, export_embedding

    source, where = job.spec.model.source, _where(job)
    if wants_classifier(job.spec):
        order = label_order(config.labels, job.task.labels, source)
        model = export_classifier(config, tensors, order, where)
    else:
        model = export_embedding(config, tensors, _pooling(job, config), where)
    _check_vocabulary(job, int(initializers(model.graph)["embeddings.words.table"].dims[0]))
    return model


def _by_torch(job: Job, config: torch_export.Config, tensors: Checkpoint) -> ModelProto:
    from edgespec.build import torch_export
    from edgespec.build.embed import read_tokenizer

    _check_vocabulary(job, config.vocabulary)
    if wants_classifier(job.spec):
        order = label_order(config.labels, job.task.labels, job.spec.model.source)
        wanted = torch_export.Wanted(None, tuple(order))
    else:
        wanted = torch_export.Wanted(_pooling(job, config))
    sample = read_tokenizer(job.files.tokenizer.read(), job.spec.task.max_tokens).encode(_SAMPLE).ids
    model, off = torch_export.export(config, tensors, wanted, _where(job), sample)
    job.say(f"onnxruntime's answers are within {off:.1e} of torch's")
    return model


def _check_vocabulary(job: Job, rows: int) -> None:
    from edgespec.build.embed import read_tokenizer

    highest = max(read_tokenizer(job.files.tokenizer.read(), None).get_vocab().values(), default=0)
    if highest >= rows:
        raise fail(
            "ES506",
            f"tokenizer.json of {job.spec.model.source} has the token id {highest}, the embedding table has {rows} "
            "rows: the tokenizer belongs to another model.",
        )


def _run(job: Job) -> Result:
    from edgespec.build.graph import PROTOBUF_LIMIT, columns, encode

    source = job.spec.model.source
    job.say(f"writing {source} as ONNX")
    model = from_graph(job) if job.files.is_onnx else _from_weights(job)
    if model.ByteSize() > PROTOBUF_LIMIT:
        raise fail("ES516", f"{source} takes {model.ByteSize()} bytes in float32; ONNX files end at 2 GiB.")
    notes = {
        "output": model.graph.output[0].name,
        "columns": columns(model),
        "inputs": [i.name for i in model.graph.input],
    }
    return Result({"model.onnx": encode(model)}, notes)


STAGE = Stage("export", 1, depends, _run, _check, tools=("onnx",))
