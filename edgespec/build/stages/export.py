"""export: the model as float32 ONNX with one output, `embedding` (pooled, not normalised) or `logits`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgespec.build.cache import InputFile
from edgespec.build.problems import fail
from edgespec.build.sources import ModelFiles
from edgespec.build.stages.stage import Inputs, Result, Run, Stage
from edgespec.spec.models import EdgeModel, TextClassification

if TYPE_CHECKING:
    from edgespec.build.onnx_bert import Config

MODULES = frozenset({"Transformer", "Pooling", "Normalize"})


def wants_classifier(spec: EdgeModel) -> bool:
    """Whether the model's own classifier is used, and not its embedding."""
    return isinstance(spec.task, TextClassification) and spec.head is None


def _depends(inputs: Inputs) -> Inputs:
    task = inputs["task"]
    assert isinstance(task, dict)
    if task["type"] == "text-classification" and inputs["head"] is None:
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


def pooling_of(files: ModelFiles, source: str) -> str:
    """`mean` or `cls`, from the files of sentence-transformers; mean where they are absent."""
    if files.modules:
        kinds = [str(m.get("type", "")).rpartition(".")[2] for m in read_json(files.modules, source).get("list", [])]
        if strange := sorted({k for k in kinds} - MODULES):
            raise fail("ES510", f"`source: {source}`: modules.json has {', '.join(strange)} after the encoder; edgespec "
                       f"knows {', '.join(sorted(MODULES))}. Export the whole model to ONNX instead.")  # fmt: skip
    if files.pooling is None:
        return "mean"
    data = read_json(files.pooling, source)
    names = {"cls_token": "cls", "mean_tokens": "mean"}
    modes = [k.removeprefix("pooling_mode_") for k, v in data.items() if k.startswith("pooling_mode_") and v is True]
    if isinstance(single := data.get("pooling_mode"), str):
        modes = [{"cls": "cls_token", "mean": "mean_tokens"}.get(single, single)]
    if len(modes) != 1 or modes[0] not in names:
        raise fail("ES510", f"`source: {source}`: 1_Pooling/config.json pools by {' and '.join(modes) or 'nothing'}; "
                   "edgespec pools by the mean or by the first token (cls).")  # fmt: skip
    return names[modes[0]]


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
        raise fail("ES512", f"the task's labels are [{', '.join(wanted)}]; the classifier in {source} has "
                   f"[{', '.join(own)}]. Write the same names, in any order, or fit a new classifier with "
                   "`pipeline: [{head: {train: data/train.jsonl}}]`.")  # fmt: skip
    return order


def _read_config(run: Run) -> Config:
    from edgespec.build.onnx_bert import read_config

    assert run.files.config is not None
    source = run.spec.model.source
    return read_config(read_json(run.files.config, source), f"config.json of {source}")


def _check(run: Run) -> None:
    if run.files.is_onnx:
        return
    spec, config = run.spec, _read_config(run)
    source = spec.model.source
    pooling_of(run.files, source)
    if wants_classifier(spec):
        assert isinstance(spec.task, TextClassification)
        if config.labels is None:
            raise no_classifier(source)
        label_order(config.labels, spec.task.labels, source)
    check_length(spec, config.positions)


def no_classifier(source: str) -> Exception:
    return fail("ES513", f"{source} has no classifier, and the pipeline fits none. Add one to the spec: "
                "`model: {source: ..., pipeline: [{head: {train: data/train.jsonl}}]}`, with a line "
                '{"text": "...", "label": "..."} for each example.')  # fmt: skip


def check_length(spec: EdgeModel, positions: int | None) -> None:
    if positions is not None and spec.task.max_tokens > positions:
        raise fail("ES515", f"max_tokens is {spec.task.max_tokens}, the positions of {spec.model.source} end at "
                   f"{positions}. Write {positions} or less.")  # fmt: skip


def _run(run: Run) -> Result:
    from edgespec.build.graph import PROTOBUF_LIMIT, columns, encode

    spec, source = run.spec, run.spec.model.source
    run.say("export", f"writing {source} as ONNX")
    if run.files.is_onnx:
        from edgespec.build.onnx_import import read_model

        model, positions = read_model(run), None
    else:
        from edgespec.build.onnx_bert import export_classifier, export_embedding
        from edgespec.build.weights import BrokenWeights, Tensors

        config = _read_config(run)
        positions = config.positions
        where = f"{', '.join(f.name for f in run.files.weights)} of {source}"
        try:
            tensors = Tensors(*(f.read() for f in run.files.weights))
        except BrokenWeights as why:
            raise fail("ES511", f"{where}: {why}.") from None
        if wants_classifier(spec):
            assert isinstance(spec.task, TextClassification)
            model = export_classifier(config, tensors, label_order(config.labels, spec.task.labels, source), where)
        else:
            model = export_embedding(config, tensors, pooling_of(run.files, source), where)
    if model.ByteSize() > PROTOBUF_LIMIT:
        raise fail("ES516", f"{source} takes {model.ByteSize()} bytes in float32; ONNX files end at 2 GiB.")
    notes = {
        "output": model.graph.output[0].name,
        "columns": columns(model),
        "inputs": [i.name for i in model.graph.input],
        "positions": positions,
    }
    return Result({"model.onnx": encode(model)}, notes)


STAGE = Stage("export", 1, ("fetch",), _depends, _run, _check, ("onnx",))
