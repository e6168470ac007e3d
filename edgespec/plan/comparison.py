"""What differs between two versions of a project, environment by environment, as values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from edgespec.plan.cost import Estimate
from edgespec.resources.base import DesiredState
from edgespec.spec.diff.model import Note, Risk, worst
from edgespec.spec.models import EdgeModel, Environment
from edgespec.spec.releases import ModelReleases


class Kind(StrEnum):
    ADDED = "added"
    REMOVED = "removed"
    RENAMED = "renamed"
    CHANGED = "changed"


class Effect(StrEnum):
    """The most that happens to a model that was there before and is there after."""

    REBUILT = "rebuilt"
    REPACKED = "repacked"
    """The weights are the same; what stands beside them in the artifact is not."""
    REDEPLOYED = "redeployed"
    """The same artifact under another configuration or in another place."""
    RELEASED = "released"
    """Another artifact that was built before."""
    WAITS = "waits"
    """What its spec builds now is deployed only once it is promoted."""
    RELABELLED = "relabelled"
    """Only what people are shown."""
    GATE = "gate"
    """What is served stays; what the next version has to reach does not."""
    NONE = "none"
    """Nothing that is deployed changes."""


@dataclass(frozen=True, slots=True)
class StageDiff:
    name: str
    why: str
    """What of its own inputs differs; empty where it only follows another stage."""


@dataclass(frozen=True, slots=True)
class FileDiff:
    """A data file or a model that a spec names. Digests are git's; None where git does not have it."""

    field: str
    """`finetune.train`, `quality.data`."""
    path: str
    before: str | None
    after: str | None
    lines: tuple[int, int] | None = None
    """Added and removed; None where that cannot be told, or where it is no text."""

    @property
    def known(self) -> bool:
        return self.before is not None and self.after is not None


@dataclass(frozen=True, slots=True)
class BuildDiff:
    """`stages` are those that run again, in their order; none where the artifact stays as it is."""

    stages: tuple[StageDiff, ...] = ()
    files: tuple[FileDiff, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelDiff:
    name: str
    kind: Kind
    effect: Effect | None
    """None for a model that is only there before or after."""
    notes: tuple[Note, ...]
    build: BuildDiff = BuildDiff()
    previous: str | None = None
    resources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """create, update, replace, move, delete -> addresses."""
    before: Estimate | None = None
    """USD a month; None where it is not there, or where it was not estimated."""
    after: Estimate | None = None
    budget: float | None = None

    @property
    def risk(self) -> Risk:
        return worst(n.risk for n in self.notes)


@dataclass(frozen=True, slots=True)
class EnvironmentDiff:
    """`kind` is None where the environment is on both sides."""

    name: str
    kind: Kind | None
    notes: tuple[Note, ...]
    models: tuple[ModelDiff, ...]
    resources: Mapping[str, tuple[str, ...]]
    """Those that models share: buckets, the namespace."""

    @property
    def risk(self) -> Risk:
        return worst([*(n.risk for n in self.notes), *(m.risk for m in self.models)])

    @property
    def is_empty(self) -> bool:
        return self.kind is None and not self.notes and not self.models


@dataclass(frozen=True, slots=True)
class Point:
    """What is compared: `name` as it was asked for, `commit` None for the work tree."""

    name: str
    commit: str | None


@dataclass(frozen=True, slots=True)
class ProjectDiff:
    project: str
    before: Point
    after: Point
    notes: tuple[Note, ...]
    environments: tuple[EnvironmentDiff, ...]

    @property
    def risk(self) -> Risk:
        return worst([*(n.risk for n in self.notes), *(e.risk for e in self.environments)])

    @property
    def is_empty(self) -> bool:
        return not self.notes and all(e.is_empty for e in self.environments)


@dataclass(frozen=True, slots=True)
class Side:
    """One environment on one side."""

    environment: Environment
    specs: Mapping[str, EdgeModel]
    desired: DesiredState
    cost: Callable[[str], Estimate]
    """Of a spec; asked of those that differ."""
    releases: Mapping[str, ModelReleases] = field(default_factory=dict)

    @property
    def promoted(self) -> bool:
        """Whether nothing but promoted artifacts is deployed."""
        return self.environment.promote_from is not None

    def holds(self, name: str) -> bool:
        """Whether the artifact is a release's, whatever the spec would build."""
        return self.promoted or (name in self.releases and self.releases[name].pinned is not None)
