"""Two versions of a project, compared: which models come, go, change their name, are built anew or only deployed anew,
and how risky it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from edgespec.address import Address
from edgespec.plan.comparison import BuildDiff, Effect, EnvironmentDiff, FileDiff, Kind, ModelDiff, Side
from edgespec.plan.cost import Estimate
from edgespec.plan.touched import is_shared, listed, touched_by
from edgespec.resources.base import DesiredState
from edgespec.spec.diff.model import Note, Risk
from edgespec.spec.diff.project import environment_notes
from edgespec.spec.diff.releases import release_notes
from edgespec.spec.diff.sections import spec_notes
from edgespec.spec.models import EdgeModel


def compare_environments(
    name: str, before: Side | None, after: Side | None, builds: Mapping[str, BuildDiff]
) -> EnvironmentDiff:
    """`builds` has an entry for each spec of `after` whose predecessor `pairs` finds."""
    nothing = DesiredState()
    old, new = (s.desired if s else nothing for s in (before, after))
    specs = before.specs if before else {}, after.specs if after else {}
    paired = pairs(*specs)
    touched = touched_by(old, new, {was: now for now, was in paired.items() if was != now})
    kind, notes = _of_environment(before, after)
    if kind is Kind.REMOVED:  # what it has deployed stays, since nobody is left to remove it
        return EnvironmentDiff(name, kind, tuple(notes), (), {})
    models = [*_models(before, after, builds, touched)]
    shared = {a: what for a, what in touched.items() if is_shared(a, old, new)}
    return EnvironmentDiff(name, kind, tuple(notes), tuple(models), listed(shared))


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
        names = ", ".join(sorted(before.specs))
        why = f"nothing removes what it has deployed ({names}): destroy it first, with edgespec.yaml as it was"
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
        if before and after and (was := paired.get(name)) is not None:
            found = _changed(_Pair(before, after, was, name), builds.get(name, BuildDiff()), touched)
        elif name in new:
            found = ModelDiff(name, Kind.ADDED, None, tuple(_added(new[name], [old[n] for n in gone])))
        else:
            found = ModelDiff(name, Kind.REMOVED, None, tuple(_removed(old[name])))
        if found is not None:
            yield _with(found, before, after, touched)


def _with(found: ModelDiff, before: Side | None, after: Side | None, touched: Mapping[Address, str]) -> ModelDiff:
    """What it touches, and what it costs."""
    own = {a: what for a, what in touched.items() if a.spec in (found.name, found.previous)}
    own = {a: what for a, what in own.items() if a.type not in ("r2_bucket", "kv_namespace")}
    spec = after.specs.get(found.name) if after else None
    costs = (
        before.cost(found.previous or found.name) if before and found.kind is not Kind.ADDED else None,
        after.cost(found.name) if after and found.kind is not Kind.REMOVED else None,
    )
    budget = spec.budget.monthly_cost if spec is not None else None
    notes = (*found.notes, *_cost(*costs, budget))
    return ModelDiff(
        found.name, found.kind, found.effect, notes, found.build, found.previous, listed(own), *costs, budget
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


@dataclass(frozen=True, slots=True)
class _Pair:
    """One model on both sides."""

    before: Side
    after: Side
    was: str
    name: str

    @property
    def specs(self) -> tuple[EdgeModel, EdgeModel]:
        return self.before.specs[self.was], self.after.specs[self.name]

    @property
    def held(self) -> bool:
        """A release is deployed: what the spec builds is not."""
        return self.after.holds(self.name)

    def release_notes(self) -> list[Note]:
        sides = self.before.releases.get(self.was), self.after.releases.get(self.name)
        return [*release_notes(*sides, promoted=self.after.promoted)]


def _changed(pair: _Pair, build: BuildDiff, touched: Mapping[Address, str]) -> ModelDiff | None:
    before, after = pair.specs
    notes = [*spec_notes(before, after)]
    renamed = before.name != after.name
    if renamed:
        notes = [n for n in notes if n.path != "lifecycle.renamed_from"]
        why = f"the address of {before.name} goes once {after.name} answers"
        notes.insert(0, Note("name", "metadata.name", f"{before.name} -> {after.name}", Risk.HIGH, why))
    notes += _of_files(build)
    waits = pair.held and bool(build.stages)
    if waits:
        notes += _waiting(pair)
        build = BuildDiff(files=build.files)
    notes = [*pair.release_notes(), *notes]
    mine = {a.type for a in touched if a.spec == after.name}
    if not notes and not build.stages and not mine:
        return None
    effect = _effect(notes, build, mine, touched.get(Address("model", after.name)))
    effect = Effect.WAITS if waits and effect in (Effect.NONE, Effect.GATE) else effect
    if effect is Effect.REBUILT and after.quality is None:
        said, why = "no quality gate", "nothing measures the new artifact before it answers"
        notes.append(Note("quality", "quality", said, Risk.MEDIUM, why))
    kind = Kind.RENAMED if renamed else Kind.CHANGED
    return ModelDiff(after.name, kind, effect, _by_facet(notes), build, before.name if renamed else None)


def _waiting(pair: _Pair) -> Iterator[Note]:
    before, after = pair.specs
    if pair.name not in pair.after.releases:
        yield Note("release", "", "nothing of it is deployed before it is promoted")
    elif before.task != after.task:
        why = "the artifact that is deployed was built for another task: a plan may refuse it until it is promoted"
        yield Note("release", "task", "the task changes before the artifact does", Risk.MEDIUM, why)
    else:
        yield Note("release", "", "what the spec builds now is deployed once it is promoted")


def _by_facet(notes: Sequence[Note]) -> tuple[Note, ...]:
    """Those of one facet together, in the order in which facets come first."""
    order = [*dict.fromkeys(n.facet for n in notes)]
    return tuple(sorted(notes, key=lambda n: order.index(n.facet)))


def _effect(notes: Sequence[Note], build: BuildDiff, touched: set[str], model: str | None) -> Effect:
    if model not in (None, "move") and not build.stages:
        return Effect.RELEASED
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
            yield Note("name", "lifecycle.renamed_from", said, Risk.MEDIUM, why, other.name)


def _alike(one: EdgeModel, other: EdgeModel) -> bool:
    return one.model == other.model and one.task == other.task


def _removed(spec: EdgeModel) -> Iterator[Note]:
    if spec.lifecycle.prevent_destroy:
        why = "prevent_destroy was not lifted: apply refuses it"
    else:
        why = "its Worker answers no more, and its weights are deleted"
    yield Note("lifecycle", "", "the model is removed", Risk.HIGH, why)
