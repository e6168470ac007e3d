"""Rules across the fields of the pipeline and the quantisation: which option belongs to which method."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edgespec.diagnostics import Diagnostic, error
from edgespec.spec.document import Node
from edgespec.spec.models import EdgeModel, TextClassification
from edgespec.spec.pipeline import BITS, DistillStage, FinetuneStage, PruneStage
from edgespec.spec.validate import Path, key_place, listed, place

_FINETUNE: Final = {"lora": ("lora", "qlora"), "bits": ("qlora",)}
_DISTILL: Final = {
    "student": ("encoder",),
    "alpha": ("encoder",),
    "hidden": ("encoder",),
    "source": ("gkd",),
    "dimensions": ("static",),
    "data": ("encoder", "gkd"),
    "temperature": ("encoder", "gkd"),
    "epochs": ("encoder", "gkd"),
    "learning_rate": ("encoder", "gkd"),
    "batch_size": ("encoder", "gkd"),
    "max_tokens": ("encoder", "gkd"),
}
_NEEDED: Final = {"encoder": ("data", "student"), "gkd": ("data", "source"), "static": ()}
_QUANTIZATION: Final = {
    "bits": ("gptq", "awq", "bnb"),
    "group_size": ("int4", "gptq", "awq"),
    "calibration": ("gptq", "awq"),
}
_OPTION: Final = "An option of another method"


def check_pipeline(spec: EdgeModel, node: Node) -> Iterator[Diagnostic]:
    """Every broken rule of `model.pipeline`."""
    for i, stage in enumerate(spec.model.pipeline):
        path: Path = ("model", "pipeline", i, stage.kind)
        options = stage.options
        if stage.kind == "head":
            yield from _head(spec, node, i)
        elif spec.model.source.endswith(".onnx"):
            detail = (
                f"`{stage.kind}` changes a model's weights, which an ONNX file no longer gives by name. Name the "
                "folder that it was exported from (config.json and *.safetensors), or remove the stage."
            )
            yield error("ES163", "An ONNX file cannot be trained", detail, source=key_place(node, path))
        if isinstance(options, FinetuneStage):
            yield from _belongs(options.method, _FINETUNE, node, path)
        elif isinstance(options, DistillStage):
            yield from _belongs(options.method, _DISTILL, node, path)
            yield from _needs(options.method, options, node, path)
        elif isinstance(options, PruneStage) and options.data and options.heads is None and options.ffn is None:
            detail = "`data` is what the importance of heads and of ffn columns is measured on; nothing here asks it."
            yield error("ES158", _OPTION, detail, source=key_place(node, (*path, "data")))


def _head(spec: EdgeModel, node: Node, position: int) -> Iterator[Diagnostic]:
    where = place(node, ("model", "pipeline", position))
    if not isinstance(spec.task, TextClassification):
        detail = f"A head gives labels; the task {spec.task.type} has none. Remove the stage."
        yield error("ES144", "A head without labels", detail, source=where)
    elif position != len(spec.model.pipeline) - 1:
        after = spec.model.pipeline[position + 1].kind
        if after == "head":
            detail = "A model has one head; remove the others."
            yield error("ES143", "More than one head", detail, source=place(node, ("model", "pipeline", position + 1)))
        else:
            detail = f"A head is fitted on the finished model, so it comes last: move it behind `{after}`."
            yield error("ES164", "The head is not the last stage", detail, source=where)


def _belongs(method: str, table: dict[str, tuple[str, ...]], node: Node, path: Path) -> Iterator[Diagnostic]:
    """An option that is written although the method has no use for it."""
    written = node
    for part in path:
        found = written.child(part)
        if found is None:
            return
        written = found
    for field, methods in table.items():
        if method not in methods and written.child(field) is not None:
            detail = f"`{field}` belongs to {listed(methods)}; `{method}` has no use for it. Remove it."
            yield error("ES158", _OPTION, detail, source=key_place(node, (*path, field)))


def _needs(method: str, options: DistillStage, node: Node, path: Path) -> Iterator[Diagnostic]:
    for field in _NEEDED[method]:
        if getattr(options, field) is None:
            detail = f"`distill` by {method} needs `{field}`."
            yield error("ES111", "Missing field", detail, source=key_place(node, path))


def check_quantization(spec: EdgeModel, node: Node) -> Iterator[Diagnostic]:
    """Every broken rule of `quantization`."""
    quantization, path = spec.quantization, ("quantization",)
    method = quantization.method
    where = place(node, (*path, "method"))
    if spec.worker.engine == "onnxruntime" and method in ("fp16", "int4"):
        detail = f"`{method}` needs the engine edge: onnxruntime runs the others. Set `worker: {{engine: auto}}`."
        yield error("ES157", "The engine cannot run this", detail, source=where)
    yield from _belongs(method, _QUANTIZATION, node, path)
    if quantization.by_tool and quantization.bits is not None and quantization.bits not in BITS[method]:
        known = listed([str(b) for b in BITS[method]])
        detail = f"`{method}` knows {known} bits, not {quantization.bits}.{_WHY_NOT.get(method, '')}"
        yield error("ES165", "Bits that the method does not know", detail, source=place(node, (*path, "bits")))
    if method in ("gptq", "awq") and quantization.calibration is None:
        detail = f"`{method}` chooses its integers by looking at texts: add `calibration: {{data: data/train.jsonl}}`."
        yield error("ES111", "Missing field", detail, source=where)
    if quantization.by_tool and spec.model.source.endswith(".onnx"):
        detail = (
            f"`{method}` works on a model's weights, which an ONNX file no longer gives by name. Name the folder that "
            "it was exported from, or use int8."
        )
        yield error("ES163", "An ONNX file cannot be trained", detail, source=where)


_WHY_NOT: Final = {
    "bnb": " Its 4 bits (nf4) are not evenly spaced, so no engine here can hold them exactly: use gptq or int4.",
}
