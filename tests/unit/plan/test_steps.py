"""The order of steps over random graphs: what the specs ask for, what state remembers, and any mix of actions."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from edgespec import graph
from edgespec.address import Address
from edgespec.plan.model import Action, Change, Step, StepId, StepKind
from edgespec.plan.steps import make_steps
from edgespec.resources.base import DesiredResource, DesiredState, ReplaceOrder, ResourceType
from edgespec.state.model import Key, ResourceRecord, State

Needs = dict[Address, frozenset[Address]]
A, B, C = (Address("t", n) for n in "abc")
ORDERS = {order: ResourceType("t", replace_order=order) for order in ReplaceOrder}
EXISTING = (Action.UPDATE, Action.REPLACE, Action.DELETE, Action.NOOP)


@dataclass(frozen=True)
class Situation:
    desired: DesiredState
    state: State
    changes: dict[Key, Change]


def situation(
    actions: dict[Address, Action],
    wanted: Needs,
    recorded: Needs,
    orders: dict[Address, ReplaceOrder],
    deposed: frozenset[Address] = frozenset(),
) -> Situation:
    desired = {
        a: DesiredResource(a, ORDERS[orders[a]], {}, (), depends_on=wanted.get(a, frozenset()))
        for a in actions
        if actions[a] is not Action.DELETE
    }
    records = {
        Key(a): ResourceRecord(a, {}, {}, recorded.get(a, frozenset())) for a in actions if actions[a] in EXISTING
    }
    records |= {Key(a, "d1"): ResourceRecord(a, {}, {}, recorded.get(a, frozenset())) for a in deposed}
    changes = {Key(a): Change(Key(a), action, None, None) for a, action in actions.items()}
    changes |= {Key(a, "d1"): Change(Key(a, "d1"), Action.DELETE, None, None) for a in deposed}
    return Situation(DesiredState(desired), State("l", "p", "e", 1, records), changes)


def steps_of(s: Situation) -> tuple[Step, ...]:
    return make_steps(s.changes, s.desired, s.state).unwrap()


def position(steps: tuple[Step, ...]) -> dict[tuple[Address, bool], list[int]]:
    """(address, is it a delete) -> places in the order."""
    found: dict[tuple[Address, bool], list[int]] = {}
    for i, step in enumerate(steps):
        found.setdefault((step.id.key.address, step.id.kind is StepKind.DELETE), []).append(i)
    return found


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    addresses = [Address("t", f"r{i}") for i in range(draw(st.integers(2, 6)))]

    def needs() -> Needs:  # in one topological order: a type never comes to need what needed it
        return {a: frozenset(draw(st.sets(st.sampled_from(addresses[:i])))) if i else frozenset()
                for i, a in enumerate(addresses)}  # fmt: skip

    wanted, recorded = needs(), needs()
    actions = {a: draw(st.sampled_from([Action.CREATE, Action.ADOPT, *EXISTING])) for a in addresses}
    wanted = {a: frozenset(n for n in ns if actions[n] is not Action.DELETE) for a, ns in wanted.items()}
    orders = {a: draw(st.sampled_from(list(ReplaceOrder))) for a in addresses}
    deposed = frozenset(a for a in addresses if draw(st.integers(0, 4)) == 0)
    return situation(actions, wanted, recorded, orders, deposed)


@given(situations())
def test_every_promise_is_kept(s: Situation) -> None:
    steps = steps_of(s)  # raises on a cycle
    assert steps == steps_of(s)
    at = position(steps)
    ids = [step.id for step in steps]
    assert all(n in ids[:i] for i, step in enumerate(steps) for n in step.needs)
    wanted = {a: r.needs for a, r in s.desired.resources.items()}
    used: Needs = dict(wanted)
    for key, record in s.state.records.items():
        used[key.address] = used.get(key.address, frozenset()) | record.depends_on
    for address in used:
        for need in graph.closure(wanted.get(address, frozenset()), wanted):
            for up in at.get((address, False), []):
                assert all(i < up for i in at.get((need, False), [])), "up before what it needs"
        for need in graph.closure(used[address], used) - {address}:
            for down in at.get((address, True), []):
                assert all(down < i for i in at.get((need, True), [])), "deleted before what used it"
    for key, change in s.changes.items():
        if change.action is Action.DELETE:
            users = {a for a in used if key.address in graph.closure(used[a], used)}
            gone = ids.index(StepId(StepKind.DELETE, key))
            for user in users | {key.address}:
                assert all(i < gone for i in at.get((user, False), [])), "deleted before its user moved"


def kinds(s: Situation) -> list[str]:
    return [f"{x.id.kind.value} {x.id.key.address.name}{' old' * bool(x.id.key.deposed)}" for x in steps_of(s)]


DELETE_FIRST = dict.fromkeys((A, B, C), ReplaceOrder.DELETE_FIRST)
CREATE_FIRST = dict.fromkeys((A, B, C), ReplaceOrder.CREATE_FIRST)
CHAIN: Needs = {B: frozenset({A}), C: frozenset({B})}


def test_up_from_the_ground_and_down_from_the_top() -> None:
    assert kinds(situation(dict.fromkeys((A, B, C), Action.CREATE), CHAIN, {}, DELETE_FIRST)) == [
        "create a", "create b", "create c",
    ]  # fmt: skip
    assert kinds(situation(dict.fromkeys((A, B, C), Action.DELETE), {}, CHAIN, DELETE_FIRST)) == [
        "delete c", "delete b", "delete a",
    ]  # fmt: skip


def test_the_old_goes_last_when_the_new_comes_first() -> None:
    """A is what C reads through B: the old A stays until C has moved."""
    actions = {A: Action.REPLACE, B: Action.UPDATE, C: Action.UPDATE}
    assert kinds(situation(actions, CHAIN, CHAIN, CREATE_FIRST)) == ["create a", "update b", "update c", "delete a"]


def test_the_old_goes_last_also_through_what_stays() -> None:
    actions = {A: Action.REPLACE, B: Action.NOOP, C: Action.UPDATE}
    assert kinds(situation(actions, CHAIN, CHAIN, CREATE_FIRST)) == ["create a", "update c", "delete a"]


def test_what_is_left_is_deleted_after_its_user_has_moved_away() -> None:
    """B used A, by state; by its spec it uses C now."""
    actions = {A: Action.DELETE, B: Action.UPDATE, C: Action.CREATE}
    wanted, recorded = {B: frozenset({C})}, {B: frozenset({A})}
    assert kinds(situation(actions, wanted, recorded, DELETE_FIRST)) == ["create c", "update b", "delete a"]


def test_deposed_ones_go_when_the_current_one_serves() -> None:
    actions = {A: Action.CREATE, B: Action.UPDATE}
    s = situation(actions, CHAIN, CHAIN, CREATE_FIRST, deposed=frozenset({A}))
    assert kinds(s) == ["create a", "update b", "delete a old"]


def test_delete_first_waits_for_its_users_to_go() -> None:
    actions = {A: Action.REPLACE, B: Action.REPLACE}
    assert kinds(situation(actions, CHAIN, CHAIN, DELETE_FIRST)) == ["delete b", "delete a", "create a", "create b"]


def test_create_first_spreads_to_what_it_needs() -> None:
    orders = {A: ReplaceOrder.DELETE_FIRST, B: ReplaceOrder.CREATE_FIRST}
    actions = {A: Action.REPLACE, B: Action.REPLACE}
    assert kinds(situation(actions, CHAIN, CHAIN, orders)) == ["create a", "create b", "delete b", "delete a"]
