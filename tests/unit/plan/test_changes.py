"""Drift, waits and work by hand: what a reader is told of a plan."""

from __future__ import annotations

from typing import Any

import pytest

from edgespec.address import Address
from edgespec.plan.drift import drift_of
from edgespec.plan.explain import why
from edgespec.plan.model import Action, Change, Drift, DriftKind, Plan, Request, StepId, StepKind
from edgespec.plan.work import total
from edgespec.resources.base import DesiredState
from edgespec.state.model import Key, ResourceRecord, State, Status
from edgespec.values import Inputs

WORKER, BUCKET = Address("worker", "a"), Address("r2_bucket", "b")


def state(*records: ResourceRecord) -> State:
    return State("l", "p", "e", 1, {Key(r.address): r for r in records})


def drift(before: ResourceRecord, now: ResourceRecord) -> list[tuple[Any, ...]]:
    return [
        (str(d.key), d.kind.value, [(f.path, f.before, f.after) for f in d.fields])
        for d in drift_of(state(before), state(now))
    ]


def test_an_output_that_is_another_is_drift_with_both_values() -> None:
    before = ResourceRecord(WORKER, {"script": "s"}, {"version_id": "1", "script": "s", "old": 1})
    now = ResourceRecord(WORKER, {"script": "s"}, {"version_id": "2", "script": "s", "new": 2})
    assert drift(before, now) == [
        ("worker/a", "changed", [("outputs.new", None, 2), ("outputs.old", 1, None), ("outputs.version_id", "1", "2")])
    ]


def test_what_was_being_changed_has_no_outputs_to_differ_in() -> None:
    for status in (Status.CREATING, Status.UPDATING, Status.DELETING):
        before = ResourceRecord(WORKER, {"script": "s"}, {"version_id": "1"}, status=status)
        assert drift(before, ResourceRecord(WORKER, {"script": "s"}, {"version_id": "2"})) == []


def test_what_is_only_there_in_part() -> None:
    before = ResourceRecord(WORKER, {"script": "s"})
    part = ResourceRecord(WORKER, {"script": "s"}, status=Status.UPDATING)
    assert drift(before, part) == [("worker/a", "changed", [("status", "complete", "incomplete")])]
    assert drift(part, before) == []


def test_a_plan_that_only_refreshes_is_empty_when_nothing_drifted() -> None:
    found = (Drift(Key(WORKER), DriftKind.GONE),)
    for request, seen, empty in (
        (Request(refresh_only=True), found, False),
        (Request(refresh_only=True), (), True),
        (Request(), found, True),  # state is told of it all the same, without being asked about
    ):
        assert Plan("", state(), DesiredState(), (), (), request=request, drift=seen).is_empty is empty


@pytest.mark.parametrize(
    ("step", "need", "said"),
    [
        ((StepKind.DELETE, WORKER), (StepKind.CREATE, WORKER), "the new one comes first"),
        ((StepKind.CREATE, WORKER), (StepKind.DELETE, WORKER), "the old one has to go first"),
        ((StepKind.DELETE, BUCKET), (StepKind.DELETE, WORKER), "it was used by this"),
        ((StepKind.DELETE, BUCKET), (StepKind.UPDATE, WORKER), "this has to move away from it first"),
        ((StepKind.UPDATE, WORKER), (StepKind.CREATE, BUCKET), "it needs this"),
    ],
)
def test_why_a_step_waits(step: tuple[StepKind, Address], need: tuple[StepKind, Address], said: str) -> None:
    assert why(StepId(step[0], Key(step[1])), StepId(need[0], Key(need[1]))) == said


def stored(name: str, bucket: str, *objects: str) -> Inputs:
    blobs = [{"sha256": sha, "size": 10} for sha in objects]
    return {"bucket": bucket, "jurisdiction": "default", "artifact": name, "blobs": blobs}


def test_what_moves_to_another_bucket_is_sent_again() -> None:
    def replaced(bucket: str, status: Status = Status.READY) -> Plan:
        before, after = stored("a", "one", "x", "y"), stored("a", bucket, "y", "z")
        change = Change(Key(Address("weights", "a")), Action.REPLACE, before, after)
        held = ResourceRecord(Address("weights", "a"), before, status=status)
        return Plan("", state(held), DesiredState(), (change,), ())

    here, there = total(replaced("one")), total(replaced("two"))
    assert (here.upload, here.r2_writes, here.r2_deletes) == (10, 1, 1)
    assert (there.upload, there.r2_writes, there.r2_deletes) == (20, 2, 2)
    half = total(replaced("one", Status.UPDATING))  # which of its objects are not there, only the call can tell
    assert (half.upload, half.r2_writes, half.r2_deletes) == (20, 2, 1)


def test_a_list_of_what_is_kept_sends_nothing() -> None:
    kept = Change(Key(Address("archive", "a")), Action.CREATE, None, stored("a", "one", "x", "y"))
    found = total(Plan("", state(), DesiredState(), (kept,), ()))
    assert (found.upload, found.r2_writes) == (0, 0)
    lost = Change(Key(Address("weights", "a")), Action.CREATE, None, stored("a", "one", "x", "z"))
    found = total(Plan("", state(), DesiredState(), (kept, lost), ()))  # named by a list, and yet not there
    assert (found.upload, found.r2_writes) == (20, 2)


def test_an_object_that_several_removed_ones_name_goes_once() -> None:
    def weights(name: str, bucket: str, *objects: str) -> Change:
        return Change(Key(Address("weights", name)), Action.DELETE, stored(name, bucket, *objects), None)

    gone = (
        weights("a", "one", "x", "y"),
        weights("b", "two", "x"),  # another bucket: another object
        weights("c", "one", "y", "z"),
        weights("d", "one", "x", "z"),
    )
    assert total(Plan("", state(), DesiredState(), gone, ())).r2_deletes == 4
    kept = ResourceRecord(Address("weights", "e"), weights("e", "one", "y").before or {})
    assert total(Plan("", state(kept), DesiredState(), gone, ())).r2_deletes == 3
