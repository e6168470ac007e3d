"""Every variable that a policy can ask about has the value that docs/policies.md gives it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgespec.address import Address
from edgespec.measurement import Measured
from edgespec.plan import policy
from edgespec.plan.budget import Fit
from edgespec.plan.cost import NOTHING, Costs, Estimate, ModelCost
from edgespec.plan.model import Action, Change, Contents, Plan, Reason
from edgespec.plan.policy import Facts
from edgespec.records import replace
from edgespec.resources.base import DesiredState, FieldChange
from edgespec.secret import Secret
from edgespec.spec.document import Source, parse
from edgespec.spec.models import Policy
from edgespec.state.model import Key, State
from edgespec.values import UNKNOWN
from tests.world import MemoryStore, World, apply, plan, spec

ALPHA = spec("alpha", metadata={"name": "alpha", "labels": {"team": "support"}})
MEASURED = Measured("edge", "own texts", 3.25, 4.5, "16", 4.0, 90_000_000, "2026-11-30T12:00:00Z")
BUCKET = Key(Address("r2_bucket", "store"), "d1")
FIELDS = (
    FieldChange("name", "old", "new", replaces=True),
    FieldChange("list", [1, {"a": 2.5}], UNKNOWN),
    FieldChange("token", None, Secret("TOKEN", "hunter-two-hunter")),
)
REPLACED = Change(
    BUCKET,
    Action.REPLACE,
    {"name": "old", "list": [1, {"a": 2.5}], "flag": True},
    {"name": "new", "list": UNKNOWN, "none": None},
    FIELDS,
    Reason.CANNOT_UPDATE,
    ("alpha", "other"),
    protected=True,
    moved_from=Address("r2_bucket", "elsewhere"),
)


def planned(*changes: Change, contents: Contents | None = None) -> Plan:
    held = {} if contents is None else {c.key: contents for c in changes}
    return Plan("", State("l", "p", "e"), DesiredState(), changes, (), contents=held)


def answer(when: str, made: Plan, costs: Costs = NOTHING, fits: tuple[Fit, ...] = ()) -> list[tuple[Any, str]]:
    """What each verdict is about, and why it could not be given."""
    (node,) = parse(Source("edgespec.yaml", f"policies: [{{when: {json.dumps(when)}}}]\n")).value or []
    facts = Facts("shop", "local", made, {"alpha": ALPHA}, fits, costs)
    return [(v.about, v.failure) for v in policy.evaluate([Policy(name="p", when=when, deny="No.")], facts, node)]


@pytest.mark.parametrize(
    "when",
    [
        'change.address == "r2_bucket/store (deposed d1)"',
        'change.type == "r2_bucket" && change.name == "store" && change.action == "replace"',
        'change.reason == "cannot-update" && change.owners == ["alpha", "other"]',
        "change.protected",
        'change.moved_from == "r2_bucket/elsewhere"',
        'change.fields["name"].before == "old" && change.fields["name"].after == "new"',
        'change.fields["name"].replaces && change.fields["name"].known',
        '!change.fields["list"].replaces && !change.fields["list"].known && change.fields["list"].after == null',
        'change.fields["list"].before[0] == 1 && change.fields["list"].before[1].a == 2.5',
        'change.fields["token"].before == null && change.fields["token"].after == "(secret TOKEN)"',
        'change.before.name == "old" && change.before.flag == true && change.before.list[1].a == 2.5',
        'change.after.name == "new" && change.after.list == null && change.after.none == null',
        "change.objects == 7 && change.bytes == 900",
        'plan.replace == 1 && plan.changes == 1 && project == "shop" && environment == "local"',
    ],
)
def test_of_a_change(when: str) -> None:
    made = planned(REPLACED, contents=Contents(7, 900))
    about = () if when.startswith("plan.") else (str(BUCKET),)
    assert answer(when, made) == [(about, "")]
    assert answer(f"!({when})", made) == []


def test_of_a_change_with_nothing_in_it() -> None:
    new = Change(Key(Address("r2_bucket", "store")), Action.CREATE, None, {"name": "store"}, owners=("alpha",))
    for when in (
        "!change.protected",
        'change.moved_from == ""',
        "size(change.fields) == 0",
        "size(change.before) == 0",
        "change.objects == 0 && change.bytes == 0",
        "change.upload_bytes == 0",
    ):
        assert answer(when, planned(new)) == [(("r2_bucket/store",), "")], when
    assert answer("change.bytes == 0", planned(new, contents=Contents(0, 0))) == [(("r2_bucket/store",), "")]
    ((_, why),) = answer("change.bytes > 0", planned(new, contents=Contents(3, None)))
    assert why == "`change.bytes` is not known here"


def test_what_a_change_sends() -> None:
    world = World()
    store = MemoryStore(world)
    before = plan(world, store, [ALPHA])
    ((about, why),) = answer('change.type == "weights" && change.upload_bytes > 0', before)
    assert about == ("weights/alpha/default",) and why == "`change.upload_bytes` is not known here"
    apply(world, store, [ALPHA])
    (stored,) = world.buckets.values()
    size = sum(stored.values())
    stored.clear()
    again = plan(world, store, [ALPHA])
    when = f'change.type == "weights" && change.upload_bytes == {size}'
    assert answer(when, again) == [(("weights/alpha/default",), "")]


@pytest.mark.parametrize(
    "when",
    [
        "fit.measured && fit.script == 4000000",
        "fit.memory == 90000000",
        "fit.cpu_p50_ms == 3.25 && fit.cpu_p99_ms == 4.5",
        "cost.model_before == 1.5 && cost.model_after == 7.5",
        'spec.metadata.labels.team == "support" && spec.model.source == "./models/one"',
        'spec.metadata.name == "alpha" && !has(spec.quality)',
    ],
)
def test_of_a_model(when: str) -> None:
    costs = Costs(Estimate(2.0), Estimate(3.0), (ModelCost("alpha", Estimate(1.5), Estimate(7.5)),))
    fits = (Fit(ALPHA, 4_000_000, MEASURED),)
    assert answer(when, planned(REPLACED), costs, fits) == [(("alpha",), "")]
    assert answer(f"!({when})", planned(REPLACED), costs, fits) == []
    assert answer("cost.before == 2.0 && cost.after == 3.0", planned(REPLACED), costs) == [((), "")]


def test_of_a_model_that_costs_nothing_yet() -> None:
    costs = Costs(Estimate(0.0), Estimate(0.0), (ModelCost("alpha", None, None),))
    for given in (NOTHING, costs):
        found = answer("cost.model_before == 0.0 && cost.model_after == 0.0", planned(REPLACED), given)
        assert found == [(("alpha",), "")]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (2**63 - 1, "9223372036854775807"),
        (2**63, "9223372036854775808.0"),
        (-(2**63), "-9223372036854775808"),
        (-(2**63) - 1, "-9223372036854775808.0"),
        (2**70, "1180591620717411303424.0"),
        (7, "7"),
        ("a\ud800b", '"a?b"'),
        ("積極的", '"積極的"'),
    ],
)
def test_values_that_cel_does_not_know(value: Any, said: str) -> None:
    """Whole numbers beyond 64 bits become fractions, halves of characters question marks."""
    huge = replace(REPLACED, before={"title": value})
    kind = "double" if said.endswith(".0") else "int" if said.strip("-").isdigit() else "string"
    when = f"change.before.title == {said} && type(change.before.title) == {kind}"
    assert answer(when, planned(huge)) == [((str(BUCKET),), "")]
