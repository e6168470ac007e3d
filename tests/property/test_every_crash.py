"""One transition after another, killed before and after every single effect and every write of state."""

from __future__ import annotations

import copy

import pytest

from edgespec.spec.models import EdgeModel
from tests.property.test_converges import check_settled, fresh
from tests.world import Crash, MemoryStore, World, apply, spec

Specs = tuple[EdgeModel, ...]

EU = {"jurisdiction": "eu", "match": {"continents": ["EU"]}}
RICH: Specs = (
    spec(
        "alpha",
        regions={"default": "world", "shards": {"world": {"location": "wnam"}, "eu": EU}},
        cache={"weights": {"kv": {"pin": ["tokenizer"]}}},
    ),
    spec("beta", cache={"weights": {"tiers": ["memory"]}}, regions={"shards": {"world": {"location": "wnam"}}}),
)
MOVED: Specs = (
    spec(
        "alpha",
        model={"source": "./models/two"},
        regions={"shards": {"world": {"location": "enam"}}},
        cache={"weights": {"kv": {"pin": ["model", "tokenizer"]}}},
    ),
    spec("gamma", cache={"weights": {"tiers": ["memory"]}}),
)
ELSEWHERE: Specs = (
    spec(
        "alpha",
        regions={"shards": {"here": {"location": "oc"}}},
        cache={"weights": {"tiers": ["memory"]}},
    ),
    RICH[1],
)
"""Only shards and the cache differ: the artifact stays, and other addresses hold it."""
NOTHING: Specs = ()


def after(*history: Specs) -> MemoryStore:
    world = World()
    store = MemoryStore(world)
    for specs in history:
        assert not apply(world, store, specs).diagnostics.has_errors
    return store


@pytest.mark.parametrize(
    ("before", "wanted"),
    [(NOTHING, RICH), (RICH, MOVED), (MOVED, RICH), (RICH, NOTHING), (RICH, ELSEWHERE)],
    ids=["create", "move", "move back", "destroy", "other shards"],
)
def test_killed_anywhere(before: Specs, wanted: Specs) -> None:
    start = after(before)
    whole = copy.deepcopy(start)
    whole.world.ticks = 0
    apply(whole.world, whole, wanted)
    assert whole.world.ticks > 20
    ends = {id(specs): fresh(specs) for specs in (before, wanted)}
    for moment in range(whole.world.ticks):
        killed = copy.deepcopy(start)
        killed.world.ticks, killed.world.crash_at = 0, moment
        with pytest.raises(Crash):
            apply(killed.world, killed, wanted)
        for last in (wanted, before) if moment % 2 else (wanted,):  # it goes on, or somebody has taken the change back
            store = copy.deepcopy(killed)
            check_settled(store.world, store, last, ends[id(last)])


def test_a_rollback_that_is_killed_anywhere_never_needs_a_build() -> None:
    """What is kept is there at every moment until it serves: not one blob is sent, however often the run dies."""
    newer = (
        spec(
            "alpha",
            model={"source": "./models/two"},
            regions={"default": "world", "shards": {"world": {"location": "wnam"}, "eu": EU}},
            cache={"weights": {"kv": {"pin": ["tokenizer"]}}},
        ),
        RICH[1],
    )
    start = after(RICH, newer)
    served = [r.outputs["artifact"] for k, r in after(RICH).load().records.items() if str(k) == "model/alpha"]
    start.world.released = {"alpha": (str(served[0]), 1)}
    start.world.effects.clear()
    start.world.cache.clear()
    whole = copy.deepcopy(start)
    whole.world.ticks = 0
    apply(whole.world, whole, newer)
    assert whole.world.ticks > 20
    end = fresh(newer, whole.world)
    for moment in range(whole.world.ticks):
        killed = copy.deepcopy(start)
        killed.world.ticks, killed.world.crash_at = 0, moment
        with pytest.raises(Crash):
            apply(killed.world, killed, newer)
        check_settled(killed.world, killed, newer, end)
        assert not [e for e in killed.world.effects if e.startswith(("put weights/alpha", "build "))]
