"""The grid of a spec's `tune`: which of its fields are varied, and the specs that come of it."""

# Annotations are not postponed here: pydantic would evaluate each of them from its text at every start.

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from edgespec.diagnostics import Diagnostic, error
from edgespec.spec.document import Node
from edgespec.spec.models import EdgeModel, metrics_of
from edgespec.spec.pipeline import DistillStage, PruneStage, Vocabulary
from edgespec.spec.validate import Path, key_place, place, suggest

MOST: Final = 64
"""Variants of one grid."""
KNOBS: Final = ("quantization", "layers", "vocabulary", "dimensions")
_USUAL: Final = {"embedding": "spearman"}
_TARGETS: Final = {
    "layers": "a `distill` with a `student`, or a `prune`",
    "vocabulary": "a `prune`, or a `student`, with `vocabulary: {corpus: ...}`",
    "dimensions": "a `distill` with a `student`, or by `method: static`",
}


class Setting(Struct, frozen=True):
    """One knob at one value."""

    knob: str
    path: Path
    """The field of the spec that it sets."""
    value: Any
    """Plain data, as YAML holds it."""

    @property
    def shown(self) -> str:
        if isinstance(self.value, Mapping):
            parts = [str(self.value.get("method", "int8")), self.value.get("bits"), self.value.get("group_size")]
            return "/".join(str(p) for p in parts if p is not None)
        return str(self.value).replace("(", "[").replace(")", "]")


class Point(Struct, frozen=True):
    """One variant of the grid."""

    settings: tuple[Setting, ...]
    spec: EdgeModel


def grid(spec: EdgeModel) -> tuple[Point, ...]:
    """Every combination, in the order in which the values are written. `check_tune` has found nothing."""
    if spec.tune is None:
        return ()
    axes = []
    for knob in KNOBS:
        values = getattr(spec.tune, knob)
        path = target(spec, knob)
        if values and path is not None:
            axes.append([Setting(knob, path, _plain(v)) for v in values])
    return tuple(Point(settings, varied(spec, settings)) for settings in itertools.product(*axes))


def varied(spec: EdgeModel, settings: tuple[Setting, ...]) -> EdgeModel:
    """The spec with the settings written into it, without its grid."""
    data = spec.model_dump(mode="json", exclude_unset=True, exclude={"tune"})
    for setting in settings:
        _put(data, setting.path, setting.value)
    return EdgeModel.model_validate(data)


def target(spec: EdgeModel, knob: str) -> Path | None:
    """The field that a knob sets: of the last stage that has it."""
    if knob == "quantization":
        return ("quantization",)
    for i, stage in reversed(list(enumerate(spec.model.pipeline))):
        options, path = stage.options, ("model", "pipeline", i, stage.kind)
        if isinstance(options, DistillStage):
            if knob == "dimensions" and options.method == "static":
                return (*path, "dimensions")
            if options.student is not None and knob in ("layers", "dimensions"):
                return (*path, "student", "layers" if knob == "layers" else "width")
            if options.student is not None and knob == "vocabulary" and _counted(options.student.vocabulary):
                return (*path, "student", "vocabulary", "keep")
        elif isinstance(options, PruneStage):
            if knob == "layers":
                return (*path, "layers")
            if knob == "vocabulary" and _counted(options.vocabulary):
                return (*path, "vocabulary", "keep")
    return None


def _counted(vocabulary: Vocabulary | None) -> bool:
    return vocabulary is not None and vocabulary.corpus is not None


def check_tune(spec: EdgeModel, node: Node) -> Iterator[Diagnostic]:
    """Every broken rule of `tune`."""
    if spec.tune is None:
        return
    count = 1
    for knob in KNOBS:
        values = getattr(spec.tune, knob)
        count *= max(1, len(values))
        if values and target(spec, knob) is None:
            detail = f"`{knob}` varies {_TARGETS[knob]}; the pipeline has none. Add the stage, or remove `{knob}`."
            yield error("ES166", "Nothing to vary", detail, source=key_place(node, ("tune", knob)))
    if count == 1:
        detail = f"Give two values or more for one of {', '.join(KNOBS)}."
        yield error("ES167", "A grid of one", detail, source=key_place(node, ("tune",)))
    if count > MOST:
        detail = f"{count} variants would each be built and measured; {MOST} are the most. Take fewer values."
        yield error("ES168", "The grid is too large", detail, source=key_place(node, ("tune",)))
    known = metrics_of(spec.task)
    if spec.tune.metric is not None and spec.tune.metric not in known:
        word = spec.tune.metric
        detail = f"`{word}` is not measured for {spec.task.type}; use {', '.join(known)}.{suggest(word, known)}"
        yield error("ES154", "Unknown metric", detail, source=place(node, ("tune", "metric")))
    if spec.tune.data is None and spec.quality is None:
        detail = "Say what the variants are measured on: `tune: {data: data/test.jsonl}` or `quality`."
        yield error("ES111", "Missing field", detail, source=key_place(node, ("tune",)))


def metric_of(spec: EdgeModel) -> str:
    """What variants are compared by: the grid's own, else the first of `quality`, else the task's first."""
    if spec.tune is not None and spec.tune.metric is not None:
        return spec.tune.metric
    gated = list(spec.quality.metrics) if spec.quality is not None else []
    return gated[0] if gated else _USUAL.get(spec.task.type, metrics_of(spec.task)[0])


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", exclude_unset=True)
    return list(value) if isinstance(value, tuple) else value


def _put(data: Any, path: Path, value: Any) -> None:
    *parents, last = path
    for part in parents:
        data = data[part] if isinstance(part, int) else data.setdefault(part, {})
    data[last] = value
