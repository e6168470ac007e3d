"""Which steps run at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgespec.address import Address
from edgespec.apply.schedule import INDEPENDENT, Schedule
from edgespec.plan.events import Outcome
from edgespec.plan.model import Step, StepId, StepKind
from edgespec.state.model import Key


def step(name: str, *needs: str, kind: StepKind = StepKind.CREATE) -> Step:
    return Step(step_id(name, kind), frozenset(step_id(n) for n in needs))


def step_id(name: str, kind: StepKind = StepKind.CREATE) -> StepId:
    return StepId(kind, Key(Address.parse(name)))


def names(steps: object) -> list[str]:
    return [str(s.key) for s in steps]  # type: ignore[attr-defined]


def test_what_needs_nothing_starts_at_once_and_in_order() -> None:
    steps = [step("worker/b"), step("worker/a"), step("worker/c", "worker/a"), step("worker/d")]
    schedule = Schedule(steps, 8)
    assert names(schedule.start()) == ["worker/b", "worker/a", "worker/d"]
    assert schedule.finished(steps[0].id, Outcome.DONE) == () and not list(schedule.start())
    schedule.finished(steps[1].id, Outcome.UNCHANGED)
    assert names(schedule.start()) == ["worker/c"]
    assert schedule.running == 2


def test_no_more_at_once_than_asked_for() -> None:
    steps = [step(f"worker/{n}") for n in "abcde"]
    schedule = Schedule(steps, 2)
    assert names(schedule.start()) == ["worker/a", "worker/b"]
    schedule.finished(steps[1].id, Outcome.DONE)
    assert names(schedule.start()) == ["worker/c"]


def test_models_are_built_one_at_a_time_while_others_go_on() -> None:
    steps = [step("model/a"), step("model/b"), step("r2_bucket/x"), step("kv_namespace/y")]
    schedule = Schedule(steps, 8)
    assert names(schedule.start()) == ["model/a", "r2_bucket/x", "kv_namespace/y"]
    schedule.finished(steps[0].id, Outcome.FAILED)
    assert names(schedule.start()) == ["model/b"]


def test_a_delete_of_what_may_be_shared_is_alone_among_its_type() -> None:
    gone = [step(f"weights/{n}", kind=StepKind.DELETE) for n in "ab"]
    steps = [step("weights/new"), *gone, step("weights/later"), step("worker/w")]
    schedule = Schedule(steps, 8)
    assert names(schedule.start()) == ["weights/new", "worker/w"]
    for done, starts in ((steps[0], "weights/a"), (gone[0], "weights/b"), (gone[1], "weights/later")):
        schedule.finished(done.id, Outcome.DONE)
        assert names(schedule.start()) == [starts]


def test_deletes_of_what_shares_nothing_run_side_by_side() -> None:
    steps = [step(f"{t}/{n}", kind=StepKind.DELETE) for t in sorted(INDEPENDENT - {"model"}) for n in "ab"]
    assert len(list(Schedule(steps, 64).start())) == len(steps)


def test_a_failure_skips_what_needs_it_however_indirectly() -> None:
    steps = [step("worker/a"), step("worker/other"), step("worker/b", "worker/a")]
    steps.append(step("worker/c", "worker/b", "worker/other"))
    schedule = Schedule(steps, 8)
    list(schedule.start())
    assert names(schedule.finished(steps[0].id, Outcome.FAILED)) == ["worker/b", "worker/c"]
    assert schedule.finished(steps[1].id, Outcome.FAILED) == ()  # it is skipped once
    assert not list(schedule.start()) and schedule.running == 0


TYPES = ("model", "weights", "worker", "deployment")


@st.composite
def plans(draw: st.DrawFn) -> list[Step]:
    found: list[Step] = []
    for n in range(draw(st.integers(1, 25))):
        kind = draw(st.sampled_from([StepKind.CREATE, StepKind.DELETE]))
        key = Key(Address(draw(st.sampled_from(TYPES)), f"n{n}"))
        needs = draw(st.sets(st.sampled_from(found), max_size=3)) if found else set()
        found.append(Step(StepId(kind, key), frozenset(s.id for s in needs)))
    return found


@given(plans(), st.integers(1, 6), st.data())
def test_every_step_runs_once_after_all_that_it_needs_and_within_the_limits(
    steps: list[Step], parallelism: int, data: st.DataObject
) -> None:
    schedule = Schedule(steps, parallelism)
    running: list[StepId] = []
    done: list[StepId] = []
    needs = {s.id: s.needs for s in steps}
    while True:
        for started in schedule.start():
            assert needs[started] <= set(done)
            running.append(started)
        if not running:
            break
        assert len(running) <= parallelism and sum(r.key.address.type == "model" for r in running) <= 1
        for type_ in ("weights", "worker"):
            mine = [r for r in running if r.key.address.type == type_]
            assert len(mine) == 1 or all(r.kind is StepKind.CREATE for r in mine)
        ends = running.pop(data.draw(st.integers(0, len(running) - 1)))
        assert schedule.finished(ends, Outcome.DONE) == ()
        done.append(ends)
    assert sorted(done) == sorted(needs)


@given(plans())
def test_one_at_a_time_is_the_order_of_the_plan(steps: list[Step]) -> None:
    schedule, order = Schedule(steps, 1), []
    while started := list(schedule.start()):
        order += started
        schedule.finished(started[0], Outcome.DONE)
    assert order == [s.id for s in steps]
