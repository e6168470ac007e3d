"""Whatever the specs become and wherever a run is killed: the next apply makes the world what the specs ask for."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.address import Address
from edgespec.plan.events import Outcome
from edgespec.spec.models import EdgeModel
from edgespec.state.model import Key
from tests.property.strategies import NAMES, specs
from tests.world import Crash, Fault, MemoryStore, World, apply, plan


def fresh(wanted: tuple[EdgeModel, ...], like: World | None = None) -> dict[str, Any]:
    """What one apply into an empty account makes, with the releases of another world."""
    world = World() if like is None else World(made=dict(like.made), released=dict(like.released))
    result = apply(world, MemoryStore(world), wanted)
    assert not result.diagnostics.has_errors, [str(d) for d in result.diagnostics]
    return world.snapshot()


def without_archives(snapshot: dict[str, Any], store: MemoryStore) -> dict[str, Any]:
    """What exists but for what only archives keep: that is a matter of history."""
    wanted: dict[tuple[str, str], set[str]] = {}
    for key, record in store.load().records.items():
        if key.address.type == "weights":
            place = (str(record.inputs["jurisdiction"]), str(record.inputs["bucket"]))
            wanted.setdefault(place, set()).update(b["sha256"] for b in record.inputs["blobs"])  # type: ignore[union-attr,index,call-overload,misc,arg-type]
    buckets = {
        p: {s: n for s, n in found.items() if s in wanted.get(p, ())} for p, found in snapshot["buckets"].items()
    }
    return {**snapshot, "buckets": buckets}


def check_settled(
    world: World, store: MemoryStore, wanted: tuple[EdgeModel, ...], expected: dict[str, Any] | None = None
) -> None:
    """Applies what is left, which must all succeed; then nothing is left, and nothing is missing or too much."""
    world.crash_at, world.faults = None, {}
    result = apply(world, store, wanted)
    assert not result.diagnostics.has_errors, [str(d) for d in result.diagnostics]
    assert Outcome.SKIPPED not in result.outcomes.values()
    second = plan(world, store, wanted)
    assert second.is_empty, [str(s.id) for s in second.steps]
    assert store.load().same_records(second.refreshed)
    assert without_archives(world.snapshot(), store) == (fresh(wanted, world) if expected is None else expected)
    check_archives(store)
    if not wanted:
        assert not store.load().records


def check_archives(store: MemoryStore) -> None:
    """What is kept is whole, no more than is asked for, and never of a model that is gone; and a bucket holds nothing
    that neither weights nor an archive names."""
    named: dict[tuple[str, str], set[str]] = {}
    records = store.load().records
    for key, record in records.items():
        if key.address.type in ("weights", "archive"):
            place = (str(record.inputs["jurisdiction"]), str(record.inputs["bucket"]))
            named.setdefault(place, set()).update(b["sha256"] for b in record.inputs["blobs"])  # type: ignore[union-attr,index,call-overload,misc,arg-type]
        if key.address.type == "archive":
            artifacts: Any = record.inputs["artifacts"]
            assert 0 < len(artifacts) <= store.world.keep and len(set(artifacts)) == len(artifacts)
            assert Key(Address("weights", key.address.name)) in records
    for place, objects in store.world.buckets.items():
        assert objects.keys() == named.get(place, set())


@settings(max_examples=50, deadline=None)
@given(specs())
def test_the_second_plan_is_empty(wanted: tuple[EdgeModel, ...]) -> None:
    world = World()
    check_settled(world, MemoryStore(world), wanted)


@dataclass(frozen=True)
class Run:
    wanted: int
    """Which of the example's versions of the specs; going back and forth between them is where it gets hard."""
    crash_at: int | None
    only: frozenset[str] | None
    destroy: bool
    rebuilt: bool
    """The tools changed: every model is built again, to the same bytes."""
    disturbed: int | None
    """Before it, somebody removed or closed something: which one of all."""
    faults: dict[int, Fault]
    """Changing call -> how it fails."""
    parallelism: int
    keep: int
    """Artifacts that stay after they served, from now on."""
    released: dict[str, int]
    """From now on these deploy an artifact that was built before, whatever their specs say: which one of all."""


runs = st.builds(
    Run,
    wanted=st.integers(0, 2),
    crash_at=st.none() | st.integers(0, 60),
    only=st.none() | st.sets(st.sampled_from(NAMES), min_size=1).map(frozenset),
    destroy=st.sampled_from([False, False, False, True]),
    rebuilt=st.booleans(),
    disturbed=st.none() | st.integers(0, 1000),
    faults=st.dictionaries(st.integers(0, 30), st.sampled_from(Fault), max_size=4),
    parallelism=st.sampled_from([1, 1, 4]),
    keep=st.sampled_from([0, 1, 2, 2]),
    released=st.just({}) | st.dictionaries(st.sampled_from(NAMES), st.integers(0, 7), max_size=2),
)


def carry_out(world: World, store: MemoryStore, wanted: tuple[EdgeModel, ...], run: Run) -> None:
    world.ticks, world.crash_at, world.keep = 0, run.crash_at, run.keep
    if run.disturbed is not None:
        world.disturb(run.disturbed, store.load())
    made = list(world.made)
    world.released = {n: (made[i % len(made)], i + 1) for n, i in run.released.items()} if made else {}
    world.tools += ".1" if run.rebuilt else ""
    world.calls, world.faults = 0, run.faults
    with contextlib.suppress(Crash):
        apply(world, store, wanted, only=run.only, destroy=run.destroy, parallelism=run.parallelism)


@settings(max_examples=120, deadline=None)
@given(specs(), specs(), st.lists(runs, min_size=1, max_size=5), st.integers(0, 2))
def test_a_killed_run_is_made_good_by_the_next(
    one: tuple[EdgeModel, ...], other: tuple[EdgeModel, ...], history: list[Run], last: int
) -> None:
    versions = (one, other, ())
    world = World()
    store = MemoryStore(world)
    for run in history:
        carry_out(world, store, versions[run.wanted], run)
    check_settled(world, store, versions[last])
