"""Specs that get new names: what they deployed goes on under them, wherever a run is killed, and no weight is sent
again."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.plan.model import Action, Request
from edgespec.spec.models import EdgeModel
from tests.property.strategies import specs
from tests.property.test_converges import check_settled
from tests.world import Crash, MemoryStore, World, apply, plan

NEW = {"alpha": "omega", "beta": "psi", "gamma": "chi"}


def renamed(spec: EdgeModel) -> EdgeModel:
    document: dict[str, Any] = spec.model_dump(mode="json")
    document["metadata"]["name"] = NEW[spec.name]
    document["lifecycle"] = {"renamed_from": spec.name}
    if spec.task.type == "text-classification":
        document["task"]["display"] = dict(spec.task.display)
    return EdgeModel.model_validate(document)


@settings(max_examples=60, deadline=None)
@given(specs(), st.sets(st.sampled_from(sorted(NEW))), st.lists(st.integers(0, 40), max_size=2))
def test_a_renamed_spec_keeps_what_it_deployed(
    before: tuple[EdgeModel, ...], names: set[str], kills: list[int]
) -> None:
    world = World()
    store = MemoryStore(world)
    apply(world, store, before)
    after = tuple(renamed(s) if s.name in names else s for s in before)
    made = plan(world, store, after)
    moved = {s.name for s in before} & names
    for change in made.changes:
        first = change.address.name.split("/")[0]
        if first in {NEW[n] for n in moved}:
            assert change.moved_from is not None
            again = change.address.type in ("worker", "deployment")
            assert change.action is (Action.REPLACE if again else Action.MOVE), change
        else:
            assert change.action is Action.NOOP
    assert bool(made.moved) == bool(moved)
    sent = len(world.effects)
    for moment in kills:
        world.ticks, world.crash_at = 0, moment
        with contextlib.suppress(Crash):
            apply(world, store, after)
        world.crash_at, world.killed = None, False
    check_settled(world, store, after)
    assert not [e for e in world.effects[sent:] if e.startswith(("put", "remove", "pin", "unpin", "build"))]
    assert not plan(world, store, after, request=Request(refresh_only=True)).drift


def test_the_old_address_answers_until_the_new_one_does() -> None:
    from tests.world import spec

    world = World()
    store = MemoryStore(world)
    apply(world, store, [spec("alpha")])
    after = [spec("omega", lifecycle={"renamed_from": "alpha"})]
    world.fail = {"create deployment/omega"}
    assert apply(world, store, after).diagnostics.has_errors
    assert world.scripts["shop-local-alpha"].public
    world.fail = set()
    assert not apply(world, store, after).diagnostics.has_errors
    assert list(world.scripts) == ["shop-local-omega"]
