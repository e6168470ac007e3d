"""Whatever the specs become and wherever a run is killed: the next apply makes the world what the specs ask for."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.plan.events import Outcome
from edgespec.spec.models import EdgeModel
from tests.property.strategies import NAMES, specs
from tests.world import Crash, Fault, MemoryStore, World, apply, plan


def fresh(wanted: tuple[EdgeModel, ...]) -> dict[str, Any]:
    """What one apply into an empty account makes."""
    world = World()
    result = apply(world, MemoryStore(world), wanted)
    assert not result.diagnostics.has_errors, [str(d) for d in result.diagnostics]
    return world.snapshot()


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
    assert world.snapshot() == (fresh(wanted) if expected is None else expected)
    if not wanted:
        assert not store.load().records


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
)


def carry_out(world: World, store: MemoryStore, wanted: tuple[EdgeModel, ...], run: Run) -> None:
    world.ticks, world.crash_at = 0, run.crash_at
    if run.disturbed is not None:
        world.disturb(run.disturbed, store.load())
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
