"""Parts of plans: whatever is targeted or left out, an apply of the part harms nothing that stays, and the next whole
apply makes the world what the specs ask for."""

from __future__ import annotations

import os
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.address import Address
from edgespec.plan.model import Action, Plan, Request
from edgespec.spec.models import EdgeModel
from tests.property.strategies import specs
from tests.property.test_converges import check_settled
from tests.world import MemoryStore, World, apply, plan, spec

EXAMPLES: Final = int(os.environ.get("EDGESPEC_EXAMPLES", "60"))
MEMORY = {"weights": {"tiers": ["memory"]}}


def changed(made: Plan) -> set[Address]:
    return {c.address for c in made.changes if c.action is not Action.NOOP}


@settings(max_examples=EXAMPLES, deadline=None)
@given(specs(), specs(), st.lists(st.integers(0, 1000), max_size=3), st.lists(st.integers(0, 1000), max_size=3))
def test_a_part_harms_nothing(
    one: tuple[EdgeModel, ...], other: tuple[EdgeModel, ...], targets: list[int], excludes: list[int]
) -> None:
    world = World()
    store = MemoryStore(world)
    apply(world, store, one)
    whole = plan(world, store, other)
    known = sorted({*whole.desired.resources, *(k.address for k in whole.refreshed.records)})
    if not known:
        return
    request = Request(
        targets=tuple(sorted({known[n % len(known)] for n in targets})),
        excludes=tuple(sorted({known[n % len(known)] for n in excludes})),
    )
    part = plan(world, store, other, request=request)
    assert not changed(part) & set(request.excludes)
    if request.targets and not request.excludes:
        assert set(request.targets) & changed(whole) <= changed(part)
    if not request.targets:
        left = changed(whole) - changed(part)
        assert left == set() or request.excludes
        assert left - set(part.withheld) == set(), "left out and not said"
    # the world asserts after every effect that whoever serves users still has its weights
    result = apply(world, store, other, request=request)
    assert not result.diagnostics.has_errors, [str(d) for d in result.diagnostics]
    if {*request.targets, *request.excludes} <= {*part.desired.resources, *(k.address for k in result.state.records)}:
        again = plan(world, store, other, request=request)
        assert again.is_empty, [str(s.id) for s in again.steps]
    check_settled(world, store, other)


def test_a_target_brings_what_it_needs_and_who_has_to_move() -> None:
    world = World()
    store = MemoryStore(world)
    apply(world, store, [spec("alpha", cache=MEMORY), spec("beta", cache=MEMORY)])
    moved = [spec(n, cache=MEMORY, model={"source": "./models/two"}) for n in ("alpha", "beta")]
    made = plan(world, store, moved, request=Request(targets=(Address("weights", "alpha/default"),)))
    assert sorted(str(a) for a in changed(made)) == [
        "archive/alpha/default", "deployment/alpha", "model/alpha", "weights/alpha/default", "worker/alpha",
    ]  # fmt: skip


def test_what_cannot_be_done_without_an_excluded_one_is_left_as_well() -> None:
    world = World()
    store = MemoryStore(world)
    apply(world, store, [spec("alpha", cache=MEMORY)])
    moved = [spec("alpha", cache=MEMORY, model={"source": "./models/two"})]
    made = plan(world, store, moved, request=Request(excludes=(Address("weights", "alpha/default"),)))
    assert [str(a) for a in changed(made)] == ["model/alpha"]
    assert [str(a) for a in made.withheld] == [
        "archive/alpha/default", "deployment/alpha", "weights/alpha/default", "worker/alpha",
    ]  # fmt: skip


def test_what_an_excluded_one_lives_on_is_not_taken_away() -> None:
    world = World()
    store = MemoryStore(world)
    apply(world, store, [spec("alpha", cache=MEMORY)])
    made = plan(world, store, [], request=Request(excludes=(Address("deployment", "alpha"),)))
    assert not changed(made) - {Address("model", "alpha")}
