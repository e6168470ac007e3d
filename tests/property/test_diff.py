"""A diff promises what a plan does: what it says an apply touches is what the planner changes, when the version before
is what is deployed; and it tells every pair of specs apart, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.plan.compare import compare_environments
from edgespec.plan.comparison import BuildDiff, Effect, Kind, Side, StageDiff
from edgespec.plan.cost import Estimate
from edgespec.plan.model import Action
from edgespec.plan.touched import touched_by
from edgespec.resources.compile import compile_specs
from edgespec.spec.diff.model import Risk
from edgespec.spec.models import EdgeModel, Environment
from tests.property.strategies import NAMES, one_spec, specs
from tests.world import BUNDLE, ENVIRONMENT, PROJECT, MemoryStore, World, apply, build_inputs, facts, plan

Specs = Sequence[EdgeModel]


def side(world: World, made: Specs) -> Side:
    known = {s.name: facts(world, s) for s in made}
    desired = compile_specs(PROJECT, ENVIRONMENT, made, known, BUNDLE)
    target = Environment.model_validate({"target": {"type": "local"}})
    return Side(target, {s.name: s for s in made}, desired, lambda _: Estimate(0.0))


def builds(world: World, before: Specs, after: Specs) -> dict[str, BuildDiff]:
    """As git's digests would tell: whether what a build reads is another."""
    old = {s.name: build_inputs(world, s) for s in before}
    changed = {s.name for s in after if s.name in old and build_inputs(world, s) != old[s.name]}
    return {s.name: BuildDiff((StageDiff("export", ""),) if s.name in changed else ()) for s in after}


@settings(max_examples=100)
@given(before=specs(), after=specs())
def test_it_touches_what_a_plan_changes(before: tuple[EdgeModel, ...], after: tuple[EdgeModel, ...]) -> None:
    world = World(keep=0)
    store = MemoryStore(world)
    said = touched_by(side(world, before).desired, side(world, after).desired, {})
    apply(world, store, before)
    made = plan(world, store, after)
    planned = {c.address: c.action.value for c in made.changes if c.action is not Action.NOOP}
    assert {str(a): what for a, what in said.items()} == {str(a): what for a, what in planned.items()}


@settings(max_examples=100)
@given(before=specs(), after=specs())
def test_it_tells_every_difference_and_no_other(before: tuple[EdgeModel, ...], after: tuple[EdgeModel, ...]) -> None:
    world = World()
    found = compare_environments("local", side(world, before), side(world, after), builds(world, before, after))
    old, new = ({s.name: s for s in made} for made in (before, after))
    differ = {n for n in old.keys() | new.keys() if old.get(n) != new.get(n)}
    assert {m.name for m in found.models} == differ
    assert found.is_empty is (not differ)
    for model in found.models:
        assert (model.kind is Kind.ADDED) is (model.name not in old)
        assert (model.kind is Kind.REMOVED) is (model.name not in new)
        assert model.notes or model.effect is not Effect.NONE
        if model.kind is Kind.REMOVED:
            assert model.risk is Risk.HIGH


@settings(max_examples=40)
@given(made=one_spec(NAMES[0]), also=st.booleans())
def test_a_new_name_moves_what_was_built(made: EdgeModel, *, also: bool) -> None:
    """As the planner has it: nothing is built, and the address is another."""
    world = World(keep=0)
    store = MemoryStore(world)
    fields = made.model_dump(mode="json", exclude_none=True)
    named = {**fields, "metadata": {"name": "renamed"}, "lifecycle": {"renamed_from": made.name}}
    after = EdgeModel.model_validate({**named, "budget": {"requests": 5}} if also else named)
    found = compare_environments("local", side(world, [made]), side(world, [after]), builds(world, [made], [after]))
    (model,) = found.models
    assert (model.kind, model.previous, model.risk) == (Kind.RENAMED, made.name, Risk.HIGH)
    apply(world, store, [made])
    planned = plan(world, store, [after])
    actions: dict[str, set[str]] = {}
    for change in planned.changes:
        if change.action is not Action.NOOP:
            actions.setdefault(change.action.value, set()).add(str(change.address))
    said = {what: set(addresses) for what, addresses in model.resources.items()}
    assert said == actions
