"""Two versions of a project, environment by environment: which models come, go, change their name, are built anew or
only deployed anew, which resources that touches, and how risky it is.

Knows nothing of what is deployed: it compares what two versions of the specs ask for, as `compile_specs` has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from edgespec.address import Address
from edgespec.plan.cost import Estimate
from edgespec.resources.base import DesiredResource, DesiredState, Verdict
from edgespec.spec.diff.model import Note, Risk, worst
from edgespec.spec.diff.project import environment_notes
from edgespec.spec.diff.sections import spec_notes
from edgespec.spec.models import EdgeModel, Environment
from edgespec.values import Inputs

_MOVED: Final = frozenset({"model", "weights", "kv_pins"})
"""Types whose records follow a spec to its new name (docs/lifecycle.md)."""


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
    costs: Mapping[str, Estimate]


def compare_environments(
    name: str, before: Side | None, after: Side | None, builds: Mapping[str, BuildDiff]
) -> EnvironmentDiff:
    """`builds` has an entry for each spec of `after` whose predecessor `pairs` finds."""
    nothing = DesiredState()
    old, new = (s.desired if s else nothing for s in (before, after))
    specs = before.specs if before else {}, after.specs if after else {}
    paired = pairs(*specs)
    touched = _touched(old, new, {was: now for now, was in paired.items() if was != now})
    models = [*_models(before, after, builds, touched)]
    kind, notes = _of_environment(before, after)
    shared = {a: what for a, what in touched.items() if _is_shared(a, old, new)}
    return EnvironmentDiff(name, kind, tuple(notes), tuple(models), _listed(shared))


def pairs(before: Mapping[str, EdgeModel], after: Mapping[str, EdgeModel]) -> dict[str, str]:
    """Name now -> name before, of every spec that is on both sides."""
    found = {name: name for name in after if name in before}
    for name, spec in after.items():
        old = spec.lifecycle.renamed_from
        if old is not None and name not in before and old in before and old not in after:
            found[name] = old
    return found


def _of_environment(before: Side | None, after: Side | None) -> tuple[Kind | None, Sequence[Note]]:
    if before is None:
        return Kind.ADDED, (Note("environment", "", "the environment is new"),)
    if after is None:
        why = "nothing removes what it has deployed: `edgespec destroy --env` it first, with the specs as they were"
        return Kind.REMOVED, (Note("environment", "", "the environment is removed", Risk.HIGH, why),)
    return None, tuple(environment_notes(before.environment, after.environment))


# --- models ----------------------------------------------------------------------------------------------------------


def _models(
    before: Side | None, after: Side | None, builds: Mapping[str, BuildDiff], touched: Mapping[Address, str]
) -> Iterator[ModelDiff]:
    old, new = before.specs if before else {}, after.specs if after else {}
    paired = pairs(old, new)
    gone = sorted(set(old) - set(paired.values()))
    for name in sorted({*new, *gone}):
        if name in new and (was := paired.get(name)) is not None:
            found = _changed(old[was], new[name], builds.get(name, BuildDiff()), touched)
        elif name in new:
            found = ModelDiff(name, Kind.ADDED, None, tuple(_added(new[name], [old[n] for n in gone])))
        else:
            found = ModelDiff(name, Kind.REMOVED, None, tuple(_removed(old[name])))
        if found is not None:
            yield _with(found, before, after, touched)


def _with(found: ModelDiff, before: Side | None, after: Side | None, touched: Mapping[Address, str]) -> ModelDiff:
    """What it touches, and what it costs."""
    own = {a: what for a, what in touched.items() if a.name.partition("/")[0] in (found.name, found.previous)}
    own = {a: what for a, what in own.items() if a.type not in ("r2_bucket", "kv_namespace")}
    spec = after.specs.get(found.name) if after else None
    costs = (
        before.costs.get(found.previous or found.name) if before and found.kind is not Kind.ADDED else None,
        after.costs.get(found.name) if after else None,
    )
    budget = spec.budget.monthly_cost if spec is not None else None
    notes = (*found.notes, *_cost(*costs, budget))
    return ModelDiff(
        found.name, found.kind, found.effect, notes, found.build, found.previous, _listed(own), *costs, budget
    )


def _cost(before: Estimate | None, after: Estimate | None, budget: float | None) -> Iterator[Note]:
    """A note where the plan will refuse it, or where it is more than half as much again."""
    if after is None:
        return
    if budget is not None and after.usd > budget:
        why = "a plan refuses what is over its budget"
        yield Note("cost", "budget.monthly_cost", "over its budget", Risk.MEDIUM, why, budget, round(after.usd, 6))
    elif before is not None and after.usd > before.usd * 1.5 and after.usd >= before.usd + 1:
        why = "it costs more than half as much again"
        sides = round(before.usd, 6), round(after.usd, 6)
        yield Note("cost", "", "the cost rises", Risk.MEDIUM, why, *sides)


def _changed(before: EdgeModel, after: EdgeModel, build: BuildDiff, touched: Mapping[Address, str]) -> ModelDiff | None:
    notes = [*spec_notes(before, after)]
    renamed = before.name != after.name
    if renamed:
        notes = [n for n in notes if n.path != "lifecycle.renamed_from"]
        why = f"the address of {before.name} goes once {after.name} answers"
        notes.insert(0, Note("name", "metadata.name", f"{before.name} -> {after.name}", Risk.HIGH, why))
    notes += _of_files(build)
    mine = {a.type for a in touched if a.name.partition("/")[0] == after.name}
    if not notes and not build.stages and not mine:
        return None
    effect = _effect(notes, build, mine)
    if effect is Effect.REBUILT and after.quality is None:
        said, why = "no quality gate", "nothing measures the new artifact before it answers"
        notes.append(Note("quality", "quality", said, Risk.MEDIUM, why))
    kind = Kind.RENAMED if renamed else Kind.CHANGED
    return ModelDiff(after.name, kind, effect, tuple(notes), build, before.name if renamed else None)


def _effect(notes: Sequence[Note], build: BuildDiff, touched: set[str]) -> Effect:
    if build.stages:
        return Effect.REPACKED if [s.name for s in build.stages] == ["pack"] else Effect.REBUILT
    if notes and all(n.facet == "labels" or n.path.startswith("task.display") for n in notes):
        return Effect.RELABELLED
    if touched - {"deployment"}:
        return Effect.REDEPLOYED
    return Effect.GATE if touched else Effect.NONE


def _of_files(build: BuildDiff) -> Iterator[Note]:
    for file in build.files:
        facet = "quality" if file.field.startswith("quality") else "build"
        if not file.known:
            said = f"{file.field}: {file.path} is not in git on both sides: whether it changed is not known"
        else:
            said = f"{file.field}: {file.path} changed{_lines(file)}"
        yield Note(facet, file.field, said, before=file.before, after=file.after)


def _lines(file: FileDiff) -> str:
    return f" (+{file.lines[0]} -{file.lines[1]} lines)" if file.lines is not None else ""


def _added(spec: EdgeModel, gone: Sequence[EdgeModel]) -> Iterator[Note]:
    yield Note("task", "task", f"{spec.task.type} from {spec.model.source}")
    if (old := spec.lifecycle.renamed_from) is not None:
        yield Note("lifecycle", "lifecycle.renamed_from", f"takes over what {old} deployed, where state has it")
    for other in gone:
        if _alike(spec, other):
            why = f"{other.name} is destroyed and {spec.name} built; `lifecycle.renamed_from: {other.name}` moves it"
            said = f"says what the removed {other.name} said"
            yield Note("name", "lifecycle.renamed_from", said, Risk.MEDIUM, why, other.name, None)


def _alike(one: EdgeModel, other: EdgeModel) -> bool:
    return one.model == other.model and one.task == other.task


def _removed(spec: EdgeModel) -> Iterator[Note]:
    if spec.lifecycle.prevent_destroy:
        why = "prevent_destroy was not lifted: apply refuses it"
    else:
        why = "its Worker answers no more, and its weights are deleted"
    yield Note("lifecycle", "", "the model is removed", Risk.HIGH, why)


# --- resources -------------------------------------------------------------------------------------------------------


def _touched(before: DesiredState, after: DesiredState, moved: Mapping[str, str]) -> dict[Address, str]:
    """Address -> what happens to it. What lives on something that changes, changes with it. `moved` is from old names
    to new ones."""
    old = {_now(a, moved): _Named(r, moved) for a, r in before.resources.items()}
    found: dict[Address, str] = {}
    for address in _ordered(after.resources):
        resource, prior = after.resources[address], old.get(address)
        if prior is None:
            found[address] = "create"
        elif (verdict := _verdict(prior.inputs, resource, found)) is not Verdict.SAME:
            found[address] = verdict.value
        elif address.type in _MOVED and address.name.partition("/")[0] in moved.values():
            found[address] = "move"
    found |= {a: "delete" for a in old if a not in after.resources}
    return dict(sorted(found.items()))


def _now(address: Address, moved: Mapping[str, str]) -> Address:
    name, slash, rest = address.name.partition("/")
    if address.type not in _MOVED or name not in moved:
        return address
    return Address(address.type, f"{moved[name]}{slash}{rest}")


@dataclass(frozen=True, slots=True)
class _Named:
    """A resource whose references are texts, by today's names."""

    resource: DesiredResource
    moved: Mapping[str, str] = field(default_factory=dict)

    @property
    def inputs(self) -> Inputs:
        return self.resource.resolve(lambda ref: f"{_now(ref.address, self.moved)}.{ref.output}")


def _verdict(prior: Inputs, resource: DesiredResource, found: Mapping[Address, str]) -> Verdict:
    """By its inputs, and by what gives them: an artifact that changes is another set of objects."""
    if (verdict := resource.type.diff(prior, _Named(resource).inputs).verdict) is not Verdict.SAME:
        return verdict
    changed = {a.type for a in resource.needs if found.get(a) not in (None, "move")}
    if "model" in changed:
        return Verdict.REPLACE if resource.type.content else Verdict.UPDATE
    return Verdict.UPDATE if "worker" in changed and resource.type.name == "deployment" else Verdict.SAME


def _ordered(resources: Mapping[Address, DesiredResource]) -> Iterable[Address]:
    """What others need first; the order of types in `compile_specs` has it."""
    order = ["model", "r2_bucket", "kv_namespace", "weights", "kv_pins", "worker", "deployment"]
    return sorted(resources, key=lambda a: (order.index(a.type) if a.type in order else len(order), a))


def _is_shared(address: Address, *sides: DesiredState) -> bool:
    return any(s.resources[address].type.shared for s in sides if address in s.resources)


def _listed(touched: Mapping[Address, str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for address, what in touched.items():
        found.setdefault(what, []).append(str(address))
    return {what: tuple(found[what]) for what in sorted(found)}
