"""One spec once for each engine that is compared: what can be built, and why the rest cannot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from edgespec.artifact import Manifest
from edgespec.diagnostics import EdgespecError
from edgespec.measurement import LeftOut
from edgespec.spec.models import EdgeModel, Regions

ENGINES: Final = ("edge", "onnxruntime")
"""Engines of the Worker that are compared unless told otherwise."""
NATIVE: Final = "native"

Build = Callable[[EdgeModel], Manifest]


@dataclass(frozen=True, slots=True)
class Variant:
    """`spec` has the engine's name, one shard and no quality gate; its artifact is `manifest`."""

    engine: str
    spec: EdgeModel
    manifest: Manifest


def build_variants(
    spec: EdgeModel, own: Manifest, engines: Sequence[str], build: Build
) -> tuple[tuple[Variant, ...], tuple[LeftOut, ...]]:
    """`own` is the artifact that the spec deploys: its engine is taken as the spec has it, others are asked for."""
    made: list[Variant] = []
    left_out: list[LeftOut] = []
    for engine in engines:
        if engine == own.engine:
            made.append(Variant(engine, _alone(spec, engine), own))
            continue
        try:
            chosen = _with_engine(spec, engine)
            manifest = build(chosen)
        except ValidationError:
            left_out.append(LeftOut(engine=engine, why=f"this edgespec has no `worker.engine: {engine}`"))
            continue
        except EdgespecError as e:
            why = "; ".join(d.detail or d.summary for d in e.diagnostics)
            left_out.append(LeftOut(engine=engine, why=why))
            continue
        if manifest.engine != engine:
            left_out.append(LeftOut(engine=engine, why=f"the build gives {manifest.engine} for this model"))
        else:
            made.append(Variant(engine, _alone(chosen, engine), manifest))
    return tuple(made), tuple(left_out)


def _with_engine(spec: EdgeModel, engine: str) -> EdgeModel:
    """Raises ValidationError where the spec language has no such engine."""
    options = type(spec.worker).model_validate({**spec.worker.model_dump(), "engine": engine})
    return spec.model_copy(update={"worker": options})


def _alone(spec: EdgeModel, engine: str) -> EdgeModel:
    metadata = spec.metadata.model_copy(update={"name": engine})
    return spec.model_copy(update={"metadata": metadata, "regions": Regions(), "quality": None})
