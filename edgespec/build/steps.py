"""The steps of one build: the spec's pipeline between the stages that every build has."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec import Struct

from edgespec.build.cache import InputFile
from edgespec.build.engines import ONNXRUNTIME
from edgespec.build.sources import ModelFiles
from edgespec.build.stages.stage import Stage, Step
from edgespec.spec.models import EdgeModel
from edgespec.spec.pipeline import DistillStage
from edgespec.spec.types import Strict
from edgespec.values import UNKNOWN, Value

_FILE_FIELDS: Final = frozenset({"train", "validation", "data", "corpus"})

Path = tuple[str | int, ...]


class Named(Struct, frozen=True):
    """A file or a model that a spec names."""

    where: Path
    """In the spec: ("model", "pipeline", 0, "finetune", "train")."""
    field: str
    """In the stage's options: `train`, `vocabulary.corpus`."""
    value: str


def stage_of(name: str) -> Stage:
    """A stage by its name: those that users write by their key in `model.pipeline`, tools that quantise before the
    export by `quantization.method`. Loaded when a spec has it: a plan does not pay for what no spec uses."""
    found: Stage = importlib.import_module(f"edgespec.build.stages.{name}").STAGE
    return found


def files_named(spec: EdgeModel) -> Iterator[Named]:
    """Every data file that a build of the spec reads."""
    for i, stage in enumerate(spec.model.pipeline):
        yield from _files(stage.options, ("model", "pipeline", i, stage.kind))
    if spec.quantization.by_tool:
        yield from _files(spec.quantization, ("quantization",))


def models_named(spec: EdgeModel) -> Iterator[Named]:
    """Every model that a build of the spec reads beside the one that it makes small."""
    for i, stage in enumerate(spec.model.pipeline):
        if isinstance(stage.options, DistillStage) and stage.options.source is not None:
            yield Named(("model", "pipeline", i, stage.kind, "source"), "source", stage.options.source)


def _files(options: Strict, where: Path, prefix: str = "") -> Iterator[Named]:
    for name in type(options).model_fields:
        value = getattr(options, name)
        if isinstance(value, Strict):
            yield from _files(value, (*where, name), f"{prefix}{name}.")
        elif name in _FILE_FIELDS and isinstance(value, str):
            yield Named((*where, name), prefix + name, value)


def steps_of(
    spec: EdgeModel,
    engine: str,
    file: Callable[[Named], InputFile],
    model: Callable[[Named], ModelFiles | None],
) -> tuple[Step, ...]:
    """The steps of a build for one engine, in the order in which they run.

    `file` and `model` find what the spec names. `auto`, before it is resolved, is taken for the engine edge.
    """
    made = _Steps(spec, file, model)
    steps = [Step("fetch", stage_of("fetch"), ())]
    last = "fetch"
    for position, written in enumerate(spec.model.pipeline):
        step = made.of_pipeline(position, last)
        if written.kind != "head":
            steps.append(step)
            last = step.name
    if spec.quantization.by_tool:
        steps.append(made.quantiser(last))
        last = steps[-1].name
    steps.append(Step("export", stage_of("export"), (last,)))
    if spec.head is not None:
        steps.append(made.of_pipeline(len(spec.model.pipeline) - 1, last))
    small = stage_of("quantize" if engine == ONNXRUNTIME else "compile")
    steps.append(Step(small.name, small, ("export",) if engine == ONNXRUNTIME else ("export", "head")))
    tokenizer = () if last == "fetch" else (last,)
    steps.append(Step("pack", stage_of("pack"), (small.name, "head", *tokenizer)))
    return tuple(steps)


class _Steps:
    def __init__(
        self, spec: EdgeModel, file: Callable[[Named], InputFile], model: Callable[[Named], ModelFiles | None]
    ) -> None:
        self._spec, self._file, self._model = spec, file, model
        self._names = Counter[str]()

    def of_pipeline(self, position: int, parent: str) -> Step:
        stage = self._spec.model.pipeline[position]
        if stage.kind != "head":
            self._names[stage.kind] += 1
        nth = self._names[stage.kind]
        name = stage.kind if nth <= 1 else f"{stage.kind}-{nth}"
        where: Path = ("model", "pipeline", position, stage.kind)
        parents: tuple[str, ...] = (parent,)
        if stage.kind == "head":
            parents = ("export",) if parent == "fetch" else ("export", parent)
        return self._step(name, stage_of(stage.kind), parents, stage.options, where)

    def quantiser(self, parent: str) -> Step:
        quantization = self._spec.quantization
        stage = stage_of(quantization.method)
        return self._step(stage.name, stage, (parent,), quantization, ("quantization",))

    def _step(self, name: str, stage: Stage, parents: tuple[str, ...], options: Strict, where: Path) -> Step:
        named = tuple(_files(options, where))
        data = {n.field: self._file(n) for n in named}
        models = {}
        inputs: dict[str, Value] = options.model_dump(mode="json", exclude_none=True)
        for field, found in data.items():
            _put(inputs, f"{field}_digest", found.sha256)
        if isinstance(options, DistillStage) and options.source is not None:
            student = self._model(Named((*where, "source"), "source", options.source))
            inputs["source_digest"] = UNKNOWN if student is None else student.digest
            if student is not None:
                models["source"] = student
        return Step(name, stage, parents, where, options, inputs, data, models)


def _put(inputs: dict[str, Any], path: str, value: Value) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        inputs = inputs[parent]
    inputs[last] = value


def numbered(steps: tuple[Step, ...]) -> list[tuple[str, Step]]:
    """The steps that the spec writes, under names that tell their order, which counts."""
    written = [s for s in steps if s.inputs is not None]
    return [(f"{i}-{s.stage.name}", s) for i, s in enumerate(written, start=1)]


def pipeline_inputs(steps: tuple[Step, ...]) -> dict[str, Value]:
    """What the pipeline's stages depend on, as a plan shows it."""
    return {name: dict(s.inputs or {}) for name, s in numbered(steps)}
