"""Parts of plans and new names, where the golden cases and the random ones do not look closely."""

from __future__ import annotations

from typing import Any

import pytest

from edgespec.address import Address
from edgespec.plan.model import Action, Plan, Reason, Refreshed, Request
from edgespec.plan.moves import renamed
from edgespec.plan.planner import make_plan
from edgespec.plan.settle import settled
from edgespec.plan.steps import make_steps
from edgespec.resources.base import DesiredResource, DesiredState, Ref, ResourceType
from edgespec.state.model import Key, ResourceRecord, State, Status
from tests.world import MemoryStore, World, apply, plan, spec

MEMORY = {"weights": {"tiers": ["memory"]}}
BUCKET = Address("r2_bucket", "shop-local-auto")
TYPE = ResourceType("model", stable_outputs=frozenset({"url"}))
A, B, C = (Address("model", n) for n in "abc")


def deployed(*names: str) -> tuple[World, MemoryStore]:
    world = World()
    store = MemoryStore(world)
    assert not apply(world, store, [spec(n, cache=MEMORY) for n in names]).diagnostics.has_errors
    return world, store


def changes(made: Plan) -> dict[str, str]:
    return {str(c.key): c.action.value for c in made.changes if c.action is not Action.NOOP}


def wanted(**resources: DesiredResource) -> DesiredState:
    return DesiredState({r.address: r for r in resources.values()})


def resource(address: Address, needs: frozenset[Address] = frozenset(), **inputs: Any) -> DesiredResource:
    return DesiredResource(address, TYPE, inputs, (), depends_on=needs)


def state(*records: ResourceRecord) -> State:
    return State("l", "p", "e", 1, {Key(r.address): r for r in records})


def planned(desired: DesiredState, live: State, request: Request, previous: State | None = None) -> Plan:
    before = live if previous is None else previous
    return make_plan(desired, before, Refreshed(live), spec_digest="", request=request).unwrap()


# --- targets and exclusions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("option", "field"), [("--target", "targets"), ("--exclude", "excludes")])
def test_an_address_that_nothing_has(option: str, field: str) -> None:
    request = Request(**{field: (A, Address("model", "bc"))})  # type: ignore[arg-type]
    desired = wanted(a=resource(A), abc=resource(Address("model", "abc")))
    found = make_plan(desired, state(), Refreshed(state()), spec_digest="", request=request)
    assert found.value is None
    (problem,) = found.diagnostics
    assert (problem.code, problem.summary) == ("ES223", "Unknown address")
    assert problem.detail == (f"{option} model/bc: neither the specs nor state have it. Did you mean `model/abc`?")


def test_a_target_without_what_is_excluded() -> None:
    desired = wanted(a=resource(A), b=resource(B), c=resource(C))
    made = planned(desired, state(), Request(targets=(A, B), excludes=(B,)))
    assert changes(made) == {"model/a": "create"} and made.withheld == (B,)


def test_what_needs_nothing_of_the_excluded_is_made_with_all_that_it_needs() -> None:
    desired = wanted(a=resource(A), b=resource(B, frozenset({A})), c=resource(C))
    made = planned(desired, state(), Request(excludes=(C,)))
    assert changes(made) == {"model/a": "create", "model/b": "create"} and made.withheld == (C,)


def test_excluding_what_stays_as_it_is_leaves_the_rest_alone() -> None:
    desired = wanted(a=resource(A, n=1), b=resource(B, frozenset({A}), n=2))
    live = state(ResourceRecord(A, {"n": 1}), ResourceRecord(B, {"n": 1}, depends_on=frozenset({A})))
    made = planned(desired, live, Request(excludes=(A,)))
    assert changes(made) == {"model/b": "update"} and made.withheld == ()


def test_what_exists_can_be_read_from_though_its_change_is_excluded() -> None:
    """B reads an output of A, which stays as it was; what counts on A's new content (C) is left as well."""
    desired = wanted(
        a=resource(A, n=2),
        b=resource(B, n=2, url=Ref(A, "url")),
        c=resource(C, frozenset({A}), n=2),
    )
    live = state(
        ResourceRecord(A, {"n": 1}, {"url": "here"}),
        ResourceRecord(B, {"n": 1, "url": "here"}, depends_on=frozenset({A})),
        ResourceRecord(C, {"n": 1}, depends_on=frozenset({A})),
    )
    made = planned(desired, live, Request(excludes=(A,)))
    assert changes(made) == {"model/b": "update"} and made.withheld == (A, C)
    (change,) = (c for c in made.changes if c.address == B)
    assert change.after == {"n": 2, "url": "here"}


def test_a_cycle_is_an_error_of_the_plan_and_of_its_steps() -> None:
    desired = wanted(a=resource(A, frozenset({B})), b=resource(B, frozenset({A})))
    found = make_plan(desired, state(), Refreshed(state()), spec_digest="")
    assert found.value is None and [d.code for d in found.diagnostics] == ["ES201"]
    straight = wanted(a=resource(A), b=resource(B))
    made = planned(straight, state(), Request())
    ordered = make_steps({c.key: c for c in made.changes}, desired, state())
    assert ordered.value is None and [d.code for d in ordered.diagnostics] == ["ES201"]


def test_an_interrupted_update_that_is_whole_is_a_change_and_no_interruption() -> None:
    """The run ended between the call and the write of state, and the specs ask for something else by now."""
    desired = wanted(a=resource(A, n=3))
    previous = state(ResourceRecord(A, {"n": 2}, status=Status.UPDATING))
    whole = planned(desired, state(ResourceRecord(A, {"n": 2})), Request(), previous)
    assert [c.reason for c in whole.changes] == [Reason.CHANGED]
    half = planned(desired, previous, Request(), previous)
    assert [c.reason for c in half.changes] == [Reason.INTERRUPTED]


def test_a_field_that_goes_has_no_source() -> None:
    """What is left beside it comes from another resource: it does not."""
    desired = wanted(a=resource(A), b=resource(B, bindings={"ONE": Ref(A, "url"), "TWO": 2}))
    live = state(
        ResourceRecord(A, {}, {"url": "here"}), ResourceRecord(B, {"bindings": {"ONE": "there", "TWO": 2, "GONE": 3}})
    )
    (change,) = (c for c in planned(desired, live, Request()).changes if c.address == B)
    assert [(f.path, f.source) for f in change.fields] == [("bindings.GONE", ""), ("bindings.ONE", "model/a.url")]


# --- new names -------------------------------------------------------------------------------------------------------

RENAMED = [spec("omega", lifecycle={"renamed_from": "alpha"}), spec("psi", lifecycle={"renamed_from": "beta"})]
RECORDS = state(
    *(
        ResourceRecord(Address(t, n), {}, owners=(n.partition("/")[0],))
        for t, n in (("model", "alpha"), ("weights", "alpha/default"), ("model", "beta"), ("weights", "beta/default"))
    ),
    ResourceRecord(BUCKET, {}, owners=("alpha", "beta")),
)


@pytest.mark.parametrize(
    ("request_", "moved"),
    [
        (Request(), ["omega", "psi"]),
        (Request(("omega",)), ["omega"]),
        (Request(("psi",)), ["psi"]),
        (Request(targets=(Address("weights", "psi/default"),)), ["psi"]),
        (Request(targets=(Address("model", "omega"),)), ["omega"]),
        (Request(("other",)), []),
        (Request(refresh_only=True), []),
    ],
)
def test_only_what_is_asked_for_gets_its_new_name(request_: Request, moved: list[str]) -> None:
    found = renamed(RECORDS, RENAMED, request_).unwrap()
    assert sorted({str(a).split("/")[1] for a in found.moves}) == moved
    assert {str(a).partition("/")[0] for a in found.moves} <= {"model", "weights"} and len(found.moves) == 2 * len(
        moved
    )
    old = {"omega": "alpha", "psi": "beta"}
    names = [n if n in moved else o for n, o in old.items()]
    bucket = found.state.get(BUCKET)
    assert bucket is not None and bucket.owners == tuple(names)  # what is shared knows the new names too


def test_a_new_name_beside_specs_that_keep_theirs() -> None:
    found = renamed(RECORDS, [spec("other"), *RENAMED[:1]]).unwrap()
    assert len(found.moves) == 2 and found.moves[Address("weights", "omega/default")] == Address(
        "weights", "alpha/default"
    )


def test_a_name_that_state_has_already_is_an_error() -> None:
    taken = renamed(RECORDS, [spec("beta", lifecycle={"renamed_from": "alpha"})])
    assert taken.value is None and {d.code for d in taken.diagnostics} == {"ES312"}


def test_what_a_renamed_spec_does_not_need_any_more_is_shown_with_its_old_name() -> None:
    two = {"default": "world", "shards": {"world": {}, "oc": {"location": "oc", "match": {"continents": ["OC"]}}}}
    world = World()
    store = MemoryStore(world)
    apply(world, store, [spec("alpha", cache=MEMORY, regions=two)])
    made = plan(world, store, [spec("omega", cache=MEMORY, lifecycle={"renamed_from": "alpha"})])
    gone = {str(c.key): str(c.moved_from) for c in made.changes if c.action is Action.DELETE}
    assert gone["weights/omega/oc"] == "weights/alpha/oc"


# --- what state is told before the first step ------------------------------------------------------------------------


def test_what_is_shared_knows_its_new_user_before_anything_is_done() -> None:
    world, store = deployed("alpha")
    both = [spec("alpha", cache=MEMORY), spec("beta", cache=MEMORY)]
    made = plan(world, store, both)
    bucket = settled(made).get(BUCKET)
    assert bucket is not None and bucket.owners == ("alpha", "beta")
    assert made.refreshed.records[Key(BUCKET)].owners == ("alpha",)


def test_what_a_record_was_made_with_changes_only_where_it_is_right() -> None:
    """A is as it should be and needs C now; B is still to be updated, and was made with A."""
    desired = wanted(a=resource(A, frozenset({C}), n=1), b=resource(B, frozenset({C}), n=2), c=resource(C))
    live = state(
        ResourceRecord(A, {"n": 1}, depends_on=frozenset({B})),
        ResourceRecord(B, {"n": 1}, depends_on=frozenset({A})),
        ResourceRecord(C, {}),
    )
    told = settled(planned(desired, live, Request()))
    assert told.records[Key(A)].depends_on == {C} and told.records[Key(B)].depends_on == {A}
