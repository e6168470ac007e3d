"""The models that a deployed one is compared with: its teacher, and the student before it was quantised. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from edgespec.spec.models import EdgeModel
from edgespec.spec.pipeline import Quantization, Stage

COMPRESSING: Final = frozenset({"distill", "prune"})
"""Stages whose result is a smaller model than they were given."""


@dataclass(frozen=True, slots=True)
class Variant:
    name: Literal["teacher", "student", "deployed"]
    spec: EdgeModel
    what: str
    """How it is made, in words."""


def teacher_of(spec: EdgeModel) -> EdgeModel:
    """The model before compression: the pipeline up to its first stage that makes it smaller, a head that ends it
    kept, in float32. The spec itself where it compresses nothing."""
    stages = spec.model.pipeline
    kept = next((i for i, stage in enumerate(stages) if stage.kind in COMPRESSING), len(stages))
    head = tuple(stage for stage in stages[kept:] if stage.kind == "head")
    return _with(spec, (*stages[:kept], *head))


def variants_of(spec: EdgeModel) -> tuple[Variant, ...]:
    """The teacher, the student in float32, and what is deployed; those that are the same model once."""
    teacher, student = teacher_of(spec), _with(spec, spec.model.pipeline)
    found = [Variant("deployed", spec, _described(spec))]
    if student != spec and student != teacher:
        found.insert(0, Variant("student", student, _described(student)))
    if teacher != spec:
        found.insert(0, Variant("teacher", teacher, _described(teacher)))
    return tuple(found)


def _with(spec: EdgeModel, pipeline: tuple[Stage, ...]) -> EdgeModel:
    """The spec with this pipeline, in float32; only what makes the model is of interest."""
    if pipeline == spec.model.pipeline and spec.quantization.method == "none":
        return spec
    model = spec.model.model_copy(update={"pipeline": pipeline})
    return spec.model_copy(update={"model": model, "quantization": Quantization(method="none")})


def _described(spec: EdgeModel) -> str:
    method = spec.quantization.method
    stages = [stage.kind for stage in spec.model.pipeline]
    return ", ".join([spec.model.source, *stages, "float32" if method == "none" else method])
