"""Two versions of a project as a published document: the source of schemas/diff.schema.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from edgespec.plan.comparison import EnvironmentDiff, ModelDiff, Point, ProjectDiff
from edgespec.plan.cost import Estimate
from edgespec.spec.diff.model import Note

FORMAT: Final = "edgespec.diff/v1"
RiskName = Literal["low", "medium", "high"]
Resources = dict[Literal["create", "update", "replace", "move", "delete"], list[str]]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)


class PointDocument(Strict):
    """`commit` is null for the work tree."""

    name: str
    commit: str | None


class NoteDocument(Strict):
    """One thing that differs."""

    facet: str
    path: str
    """Of the field; empty where it is about more than one."""
    text: str
    risk: RiskName
    why: str
    """Why the risk is not low."""
    before: Any
    after: Any


class StageDocument(Strict):
    name: str
    why: str
    """What of its own inputs differs; empty where it only follows another stage."""


class FileDocument(Strict):
    """Digests are git's; null where git does not have the file."""

    field: str
    path: str
    before: str | None
    after: str | None
    added_lines: int | None
    removed_lines: int | None


class BuildDocument(Strict):
    """`stages` are those that run again; none where the artifact stays as it is."""

    stages: list[StageDocument]
    files: list[FileDocument]


class SideCostDocument(Strict):
    """USD a month at list prices. `missing` names what is not in it: the figure is then the least that it costs."""

    usd: float
    missing: list[str]


class ModelDiffDocument(Strict):
    name: str
    change: Literal["added", "removed", "renamed", "changed"]
    previous_name: str | None
    effect: Literal["rebuilt", "repacked", "redeployed", "released", "waits", "relabelled", "gate", "none"] | None
    """The most that happens to it; null for a model that is only there before or after."""
    risk: RiskName
    build: BuildDocument
    notes: list[NoteDocument]
    resources: Resources
    cost_before: SideCostDocument | None
    cost_after: SideCostDocument | None
    budget: float | None


class EnvironmentDiffDocument(Strict):
    name: str
    change: Literal["added", "removed"] | None
    risk: RiskName
    notes: list[NoteDocument]
    resources: Resources
    """Those that models share."""
    models: list[ModelDiffDocument]


class DiffDocument(Strict):
    """What differs between two versions of a project, with the risk of it."""

    format: Literal["edgespec.diff/v1"]
    project: str
    before: PointDocument
    after: PointDocument
    risk: RiskName
    notes: list[NoteDocument]
    """What holds in every environment."""
    environments: list[EnvironmentDiffDocument]


def to_document(found: ProjectDiff) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "project": found.project,
        "before": _point(found.before),
        "after": _point(found.after),
        "risk": found.risk.value,
        "notes": _notes(found.notes),
        "environments": [_environment(e) for e in found.environments],
    }


def _point(point: Point) -> dict[str, Any]:
    return {"name": point.name, "commit": point.commit}


def _environment(found: EnvironmentDiff) -> dict[str, Any]:
    return {
        "name": found.name,
        "change": found.kind.value if found.kind is not None else None,
        "risk": found.risk.value,
        "notes": _notes(found.notes),
        "resources": {verb: list(found.resources[verb]) for verb in found.resources},
        "models": [_model(m) for m in found.models],
    }


def _model(found: ModelDiff) -> dict[str, Any]:
    return {
        "name": found.name,
        "change": found.kind.value,
        "previous_name": found.previous,
        "effect": found.effect.value if found.effect is not None else None,
        "risk": found.risk.value,
        "build": {
            "stages": [{"name": s.name, "why": s.why} for s in found.build.stages],
            "files": [
                {
                    "field": f.field,
                    "path": f.path,
                    "before": f.before,
                    "after": f.after,
                    "added_lines": f.lines[0] if f.lines else None,
                    "removed_lines": f.lines[1] if f.lines else None,
                }
                for f in found.build.files
            ],
        },
        "notes": _notes(found.notes),
        "resources": {verb: list(found.resources[verb]) for verb in found.resources},
        "cost_before": _cost(found.before),
        "cost_after": _cost(found.after),
        "budget": found.budget,
    }


def _notes(notes: Sequence[Note]) -> list[dict[str, Any]]:
    return [
        {
            "facet": n.facet,
            "path": n.path,
            "text": n.said,
            "risk": n.risk.value,
            "why": n.why,
            "before": n.before,
            "after": n.after,
        }
        for n in notes
    ]


def _cost(found: Estimate | None) -> dict[str, Any] | None:
    return None if found is None else {"usd": round(found.usd, 6), "missing": list(found.missing)}
