"""Steps at once, and runs that are told to stop, lose their state or are ended."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from edgespec.address import Address
from edgespec.apply.applier import apply as run_steps
from edgespec.diagnostics import error
from edgespec.plan.events import ApplyResult, Event, Outcome, StepFinished, StepProgress, StepStarted
from edgespec.plan.model import Refreshed
from edgespec.plan.planner import make_plan
from edgespec.providers.base import Observed, Progress
from edgespec.resources.base import DesiredResource, DesiredState, Ref, ResourceType
from edgespec.state.model import ResourceRecord
from edgespec.stores.base import StoreError
from edgespec.values import Inputs, Outputs
from tests.world import MemoryStore, World

PATIENCE = 20.0
"""Seconds until a thread that never comes fails a test."""


class Things:
    """A provider whose creates meet each other, or wait for the test."""

    def __init__(self) -> None:
        self.together: threading.Barrier | None = None
        self.called: list[str] = []
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.nonces: dict[str, str] = {}

    def read(self, record: ResourceRecord) -> Observed | None:
        return None

    def find(self, address: Address, inputs: Inputs) -> Observed | None:
        return None

    def create(self, address: Address, inputs: Inputs, progress: Progress, nonce: str = "") -> Outputs:
        self.called.append(address.name)
        self.nonces[address.name] = nonce
        if self.together is not None:
            self.together.wait(PATIENCE)
        if address.name.startswith("slow"):
            self.begun.set()
            assert self.go_on.wait(PATIENCE)
        if address.name.startswith("patient"):
            self.begun.set()
            assert self.go_on.wait(PATIENCE)
            progress("half", 0.5)
        return {"id": address.name}

    def update(self, record: ResourceRecord, inputs: Inputs, progress: Progress) -> Outputs:
        return self.create(record.address, inputs, progress)

    def delete(self, record: ResourceRecord, others: Sequence[ResourceRecord]) -> None:
        self.called.append(f"delete {record.address.name}")


TYPE = ResourceType("thing")


class Runs:
    def __init__(self) -> None:
        self.store = MemoryStore(World())
        self.things = Things()
        self.stop = threading.Event()
        self.events: list[Event] = []

    def apply(self, needs: dict[str, list[str]], **options: Any) -> ApplyResult:
        resources = {}
        for name, needed in needs.items():
            address = Address("thing", name)
            inputs = {n: Ref(Address("thing", n), "id") for n in needed}
            resources[address] = DesiredResource(address, TYPE, inputs, ())
        state = self.store.load()
        plan = make_plan(DesiredState(resources), state, Refreshed(state), spec_digest="0" * 64).unwrap()
        return run_steps(plan, state, {"thing": self.things}, self.store, self.events.append, stop=self.stop, **options)

    def statuses(self) -> dict[str, str]:
        return {k.address.name: r.status.value for k, r in self.store.load().records.items()}


@pytest.fixture
def runs() -> Runs:
    return Runs()


def test_steps_that_do_not_need_each_other_run_at_once(runs: Runs) -> None:
    runs.things.together = threading.Barrier(5)  # a run of fewer at once would wait here for ever
    result = runs.apply({n: [] for n in "abcde"}, parallelism=5)
    assert result.count(Outcome.DONE) == 5
    assert runs.statuses() == dict.fromkeys("abcde", "ready")


def test_every_create_has_a_nonce_of_its_own_that_state_keeps(runs: Runs) -> None:
    runs.apply({n: [] for n in "abcde"})
    kept = {k.address.name: r.nonce for k, r in runs.store.load().records.items()}
    assert kept == runs.things.nonces and len(set(kept.values())) == 5 and all(kept.values())


def test_writes_of_state_follow_each_other(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    record, inside = MemoryStore.record, threading.Lock()

    def checked(store: MemoryStore, *changes: Any) -> int:
        assert inside.acquire(blocking=False), "two writes at once"
        try:
            return record(store, *changes)
        finally:
            inside.release()

    monkeypatch.setattr(MemoryStore, "record", checked)
    result = runs.apply({f"n{i}": [] for i in range(60)}, parallelism=16)
    assert result.count(Outcome.DONE) == 60 and runs.store.load().serial == result.state.serial
    assert result.state.same_records(runs.store.load())


def test_events_of_a_step_are_in_order_and_never_told_at_once(runs: Runs) -> None:
    runs.apply({f"n{i}": [] for i in range(40)}, parallelism=16)
    for name in (f"n{i}" for i in range(40)):
        mine = [type(e) for e in runs.events if e.step.key.address.name == name]
        assert mine == [StepStarted, StepFinished]


def test_a_run_that_is_told_to_stop_finishes_what_it_began(runs: Runs) -> None:
    def stop_while_it_runs() -> None:
        assert runs.things.begun.wait(PATIENCE)
        runs.stop.set()
        runs.things.go_on.set()

    threading.Thread(target=stop_while_it_runs).start()
    result = runs.apply({"slow": [], "b": ["slow"], "c": ["b"]}, parallelism=8)
    assert result.interrupted and runs.things.called == ["slow"]
    assert {str(s): o for s, o in result.outcomes.items()} == {
        "create:thing/slow": Outcome.DONE, "create:thing/b": Outcome.LEFT, "create:thing/c": Outcome.LEFT,
    }  # fmt: skip
    assert runs.statuses() == {"slow": "ready"}
    (said,) = result.diagnostics
    assert said.code == "ES309" and "2 of 3 steps: create thing/b, create thing/c" in str(said)
    assert not result.diagnostics.has_errors
    runs.stop.clear()
    assert runs.apply({"slow": [], "b": ["slow"], "c": ["b"]}).count(Outcome.DONE) == 2


def test_a_step_that_tells_its_progress_can_be_given_up(runs: Runs) -> None:
    def stop_while_it_runs() -> None:
        assert runs.things.begun.wait(PATIENCE)
        runs.stop.set()
        runs.things.go_on.set()

    threading.Thread(target=stop_while_it_runs).start()
    result = runs.apply({"patient": []})
    assert result.interrupted and list(result.outcomes.values()) == [Outcome.LEFT]
    assert runs.statuses() == {"patient": "creating"}  # nobody knows how far it came
    assert not [e for e in runs.events if isinstance(e, StepProgress)]


def test_a_run_told_to_stop_before_it_begins_does_nothing(runs: Runs) -> None:
    runs.stop.set()
    result = runs.apply({"a": [], "b": []})
    assert result.interrupted and not runs.things.called and result.count(Outcome.LEFT) == 2


def test_a_stop_after_the_last_step_is_no_interruption(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    create = Things.create

    def last(self: Things, *arguments: Any) -> Outputs:
        runs.stop.set()
        return create(self, *arguments)

    monkeypatch.setattr(Things, "create", last)
    result = runs.apply({"a": []})
    assert not result.interrupted and not len(result.diagnostics) and result.count(Outcome.DONE) == 1


def test_state_that_cannot_be_written_ends_the_run(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    record = MemoryStore.record

    def fails(store: MemoryStore, *changes: Any) -> int:
        if "b" in runs.things.called:
            raise StoreError(error("ES311", "The lock is lost", "Another run has it."))
        return record(store, *changes)

    monkeypatch.setattr(MemoryStore, "record", fails)
    result = runs.apply({"a": [], "b": ["a"], "c": ["b"], "z": ["a"]}, parallelism=1)
    assert runs.things.called == ["a", "b"] and not result.interrupted
    assert result.diagnostics.has_errors and {d.code for d in result.diagnostics} == {"ES311", "ES309"}
    assert runs.statuses() == {"a": "ready", "b": "creating"}


def test_a_run_that_is_ended_writes_nothing_any_more(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second ctrl-C: KeyboardInterrupt in the thread that applies, while a call is on its way."""

    create = Things.create

    def interrupted(self: Things, address: Address, *rest: Any) -> Outputs:
        if address.name == "other":
            assert self.begun.wait(PATIENCE)
            raise KeyboardInterrupt
        return create(self, address, *rest)

    monkeypatch.setattr(Things, "create", interrupted)
    others = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        runs.apply({"slow": [], "other": []}, parallelism=2)
    before = runs.store.journal
    threads = set(threading.enumerate()) - others
    assert threads
    runs.things.go_on.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert runs.store.journal == before and runs.statuses() == {"slow": "creating", "other": "creating"}
