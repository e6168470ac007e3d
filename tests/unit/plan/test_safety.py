"""Guard rails at their edges: how much is too much, what belongs to somebody else, what a message names."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from edgespec.address import Address
from edgespec.diagnostics import Diagnostic
from edgespec.plan.model import EVERYTHING, Action, Change, Contents, Plan, Request
from edgespec.plan.safety import check_safe, warnings_of
from edgespec.resources.base import DesiredState, FieldChange
from edgespec.state.model import Key, ResourceRecord, State

BUCKET, NAMESPACE = Address("r2_bucket", "store"), Address("kv_namespace", "cache")


def numbered(type_: str, count: int) -> list[Address]:
    return [Address(type_, f"w{n:02}") for n in range(count)]


def removing(
    gone: Iterable[Address], stays: int = 0, request: Request = EVERYTHING, owner: str = "", protected: bool = False
) -> Plan:
    """A plan that removes `gone` and leaves `stays` Workers as they are."""
    removed = [Key(a) for a in gone]
    kept = [Key(Address("worker", f"kept{n}")) for n in range(stays)]
    records = {k: ResourceRecord(k.address, {}) for k in (*removed, *kept)}
    changes = [Change(k, Action.DELETE, {}, None, owners=(owner,), protected=protected) for k in removed]
    return Plan("", State("l", "p", "e", 1, records), DesiredState(), tuple(changes), (), request=request)


def holding(plan: Plan, address: Address, foreign: int) -> Plan:
    kept = {Key(address): Contents(5, None, foreign)}
    return Plan(plan.spec_digest, plan.refreshed, plan.desired, plan.changes, (), request=plan.request, contents=kept)


def refusals(plan: Plan) -> list[str]:
    return [d.code for d in check_safe(plan, protected_environment=None)]


@pytest.mark.parametrize(
    ("gone", "stays", "refused"),
    [
        (3, 0, False),  # few removals are always meant
        (4, 0, True),
        (6, 14, False),  # exactly 30 %
        (7, 14, True),
        (4, 96, False),
    ],
)
def test_how_much_is_too_much(gone: int, stays: int, refused: bool) -> None:
    assert refusals(removing(numbered("worker", gone), stays)) == ["ES222"] * refused


def test_what_was_pushed_aside_counts_neither_here_nor_there() -> None:
    plan = removing(numbered("worker", 6), 13)  # 6 of 19: too much
    aside = ResourceRecord(Address("worker", "kept0"), {})
    old = Plan("", plan.refreshed.put(aside, "d1"), plan.desired, plan.changes, ())
    assert len(old.refreshed.records) == 20 and refusals(plan) == refusals(old) == ["ES222"]
    of_it = Change(Key(aside.address, "d1"), Action.DELETE, {}, None)
    assert refusals(Plan("", old.refreshed, DesiredState(), (of_it,) * 9, ())) == []


def test_keys_of_somebody_else_in_a_namespace() -> None:
    plan = removing([NAMESPACE])
    (problem,) = check_safe(holding(plan, NAMESPACE, 2), protected_environment=None)
    assert problem == Diagnostic(
        problem.severity,
        "ES225",
        "Objects of somebody else",
        "kv_namespace/cache holds 2 keys that edgespec did not put there, and they would go with it. Save them, or say "
        "`--allow-destroy`.",
        address="kv_namespace/cache",
    )
    assert problem.severity == "error" and not list(warnings_of(holding(plan, NAMESPACE, 2)))
    assert refusals(holding(plan, NAMESPACE, 0)) == []
    allowed = removing([NAMESPACE], request=Request(allow_destroy=True))
    assert refusals(holding(allowed, NAMESPACE, 2)) == []


def test_objects_of_somebody_else_in_a_bucket() -> None:
    """The API does not delete it, so that this is a warning."""
    plan = holding(removing([BUCKET]), BUCKET, 3)
    (problem,) = warnings_of(plan)
    assert problem == Diagnostic(
        problem.severity,
        "ES225",
        "Objects of somebody else",
        "r2_bucket/store holds 3 objects that edgespec did not put there. It is not deleted as long as they are in it.",
        address="r2_bucket/store",
    )
    assert problem.severity == "warning" and refusals(plan) == []
    assert not list(warnings_of(holding(plan, BUCKET, 0)))


def test_what_an_exclusion_leaves_is_said() -> None:
    excluding = Request(excludes=(BUCKET,))
    (alone,) = warnings_of(removing([], request=excluding))
    assert alone.detail == (
        "With --exclude the result is not what the specs say. Apply without it when the reason has gone."
    )
    left = Plan("", State("l", "p", "e"), DesiredState(), (), (), request=excluding, withheld=(BUCKET, NAMESPACE))
    (several,) = warnings_of(left)
    assert several.code == "ES224" and several.detail.startswith(
        "With --exclude the result is not what the specs say: r2_bucket/store, kv_namespace/cache would change and stay"
    )


@pytest.mark.parametrize(("count", "end"), [(12, "worker/w11."), (13, "worker/w11 and 1 more."), (15, " and 3 more.")])
def test_a_message_names_twelve(count: int, end: str) -> None:
    (problem,) = check_safe(removing(numbered("worker", count)), protected_environment=None)
    named, _, _ = problem.detail.partition(" If that is meant")
    assert named.endswith(end) and named.count("worker/") == 12


def test_whom_and_what_a_protection_is_about() -> None:
    one = removing([BUCKET], owner="beta", protected=True).changes
    two = removing([NAMESPACE], owner="alpha", protected=True).changes
    (problem,) = check_safe(Plan("", State("l", "p", "e"), DesiredState(), one + two, ()), protected_environment=None)
    assert "r2_bucket/store, kv_namespace/cache: `lifecycle.prevent_destroy` of alpha, beta forbids" in problem.detail
    fields = tuple(FieldChange(path, 1, 2, replaces=path != "title") for path in ("name", "title", "jurisdiction"))
    replaced = Change(Key(BUCKET), Action.REPLACE, {}, {}, fields, owners=("alpha",), protected=True)
    (problem,) = check_safe(Plan("", State("l", "p", "e"), DesiredState(), (replaced,), ()), protected_environment=None)
    assert "replaced because of jurisdiction, name, and" in problem.detail
