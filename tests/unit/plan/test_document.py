"""What a plan's document says beside its changes, and how it says that it does not hold any more."""

from __future__ import annotations

from typing import Any

import pytest

from edgespec import assets
from edgespec.address import Address
from edgespec.diagnostics import EdgespecError
from edgespec.measurement import Measured
from edgespec.plan.budget import Fit
from edgespec.plan.cost import Costs, Estimate, ModelCost, Usage
from edgespec.plan.file import check_base, check_same, drift_report, known_after, to_document
from edgespec.plan.model import Contents, Drift, DriftKind, Plan
from edgespec.records import replace
from edgespec.resources.base import DesiredState, FieldChange
from edgespec.state.model import Key, State
from edgespec.values import digest
from tests.world import ENVIRONMENT, PROJECT, MemoryStore, World, apply, plan, spec

EMPTY = Plan("0" * 64, State("lineage", PROJECT, ENVIRONMENT, 3), DesiredState(), (), ())
MEASURED = Measured("edge", "own texts", 2.5, 4.25, "16", 4.0, 90_000_000, "2026-11-01T00:00:00Z")
BUDGET = {"script": "4MiB", "memory": "64MiB", "cpu_ms": {"p50": 3, "p99": 7}}


def document(made: Plan = EMPTY, **changed: Any) -> dict[str, Any]:
    found = to_document(made, project=PROJECT, environment=ENVIRONMENT, **changed)
    assert assets.schema_error("plan", found) is None
    return found


def test_what_is_known_of_a_models_needs() -> None:
    labelled = spec("alpha", metadata={"name": "alpha", "labels": {"team": "x"}}, budget=BUDGET)
    bare, whole = document(fits=[Fit(spec("beta"), 9, None), Fit(labelled, 10, MEASURED)])["fits"]
    assert bare == {
        "name": "beta", "labels": {}, "script": 9, "script_budget": None, "memory_budget": None,
        "cpu_limit_ms": 30_000, "cpu_p50_budget_ms": None, "cpu_p99_budget_ms": None, "measured": None,
    }  # fmt: skip
    assert whole == {
        "name": "alpha", "labels": {"team": "x"}, "script": 10, "script_budget": 4 << 20, "memory_budget": 64 << 20,
        "cpu_limit_ms": 30_000, "cpu_p50_budget_ms": 3, "cpu_p99_budget_ms": 7,
        "measured": {
            "engine": "edge", "texts": "own texts", "measured_at": "2026-11-01T00:00:00Z", "memory": 90_000_000,
            "cpu_p50_ms": 2.5, "cpu_p99_ms": 4.25,
        },
    }  # fmt: skip
    (free,) = document(fits=[Fit(spec("beta", worker={"plan": "free"}), 9, None)])["fits"]
    assert free["cpu_limit_ms"] == 10


def test_what_it_costs() -> None:
    one = Estimate(1.23456789, Usage(requests=3, cpu_ms=0.12345), missing=("CPU (not measured)",))
    found = document(
        costs=Costs(Estimate(0.0), one, (ModelCost("alpha", None, one, 5.0, 3), ModelCost("b", one, None)))
    )
    said = found["costs"]["after"]
    assert (said["usd"], said["missing"]) == (1.234568, ["CPU (not measured)"])  # a millionth of a dollar
    assert (said["usage"]["requests"], said["usage"]["cpu_ms"], said["usage"]["kv_reads"]) == (3, 0.123, 0)
    assert found["costs"]["models"] == [
        {"name": "alpha", "before": None, "after": said, "budget": 5.0, "requests": 3},
        {"name": "b", "before": said, "after": None, "budget": None, "requests": 0},
    ]


def test_specs_that_nothing_of_was_promoted_yet() -> None:
    assert "unreleased" not in document()
    assert document(replace(EMPTY, unreleased=("alpha", "beta")))["unreleased"] == ["alpha", "beta"]


def test_what_goes_with_a_bucket() -> None:
    world = World()
    store = MemoryStore(world)
    apply(world, store, [spec("alpha")])
    made = plan(world, store, [], destroy=True)
    key = Key(Address("r2_bucket", "shop-local-auto"))
    (change,) = (
        c for c in document(replace(made, contents={key: Contents(5, None, 2)}))["changes"] if c["type"] == "r2_bucket"
    )
    assert change["contents"] == {"objects": 5, "bytes": None, "foreign": 2}


def test_a_report_of_drift() -> None:
    fields = (FieldChange("workers_dev", True, False),)
    changed = Drift(Key(Address("deployment", "alpha")), DriftKind.CHANGED, fields)
    report = drift_report(EMPTY.refreshed, [changed, Drift(Key(Address("worker", "b"), "d1"), DriftKind.GONE)])
    assert assets.schema_error("drift", report) is None
    assert {k: v for k, v in report.items() if k != "drift"} == {
        "format": "edgespec.drift/v1", "project": PROJECT, "environment": ENVIRONMENT,
        "state": {"lineage": "lineage", "serial": 3},
    }  # fmt: skip
    first, second = report["drift"]
    assert (first["address"], first["deposed"], first["kind"]) == ("deployment/alpha", "", "changed")
    assert [(f["path"], f["before"], f["after"]) for f in first["fields"]] == [("workers_dev", True, False)]
    assert second == {"address": "worker/b", "deposed": "d1", "kind": "gone", "fields": []}


@pytest.mark.parametrize(
    ("path", "what"),
    [("manifest", "build"), ("bindings.WEIGHTS.size", "build"), ("size.of", "apply"), ("version", "apply")],
)
def test_what_will_tell_a_value(path: str, what: str) -> None:
    assert known_after(path) == what


# --- stale -----------------------------------------------------------------------------------------------------------


def resealed(**changed: Any) -> dict[str, Any]:
    body = {k: v for k, v in {**document(), **changed}.items() if k != "digest"}
    return {**body, "digest": digest(body)}


def base(saved: dict[str, Any]) -> str:
    with pytest.raises(EdgespecError) as caught:
        check_base(saved, project=PROJECT, environment=ENVIRONMENT, spec_digest="0" * 64, state=EMPTY.refreshed)
    return str(caught.value)


def same(**changed: Any) -> str:
    with pytest.raises(EdgespecError) as caught:
        check_same(resealed(**changed), document())
    return str(caught.value)


def because(why: str) -> str:
    detail = f"Since it was made, {why}. Nothing was done; run plan again and review it."
    return f"error ES202: The plan is stale: {detail}"


def test_the_first_apply_of_an_environment_makes_a_plan_stale() -> None:
    first = resealed(state={"lineage": "", "serial": 0})
    assert base(first) == because("the environment was applied to for the first time")
    assert base(resealed(state={"lineage": "b", "serial": 3})) == because(
        "the state was replaced by one of another history"
    )
    assert base(resealed(spec_digest="1" * 64)) == because("the specs or their data changed")


def test_a_file_that_was_edited() -> None:
    assert base({**document(), "summary": {}}) == (
        "error ES203: The plan file is damaged: Its content does not have the digest that it states: the file was "
        "changed. Run plan again."
    )


@pytest.mark.parametrize(
    ("part", "value", "why"),
    [
        ("fits", [1], "the measurements of a model changed"),
        ("policies", [1], "what the policies say changed"),
        ("costs", {}, "what it costs a month changed"),
        ("withheld", ["worker/a"], "what there is to do changed"),
        ("live", {"worker/b": "0", "worker/a": "0"}, "what is live changed: worker/a, worker/b"),
        ("live", {f"worker/{n}": "0" for n in range(5)},
         "what is live changed: worker/0, worker/1, worker/2, worker/3, worker/4"),
        ("live", {f"worker/{n}": "0" for n in range(7)},
         "what is live changed: worker/0, worker/1, worker/2, worker/3, worker/4 and 2 more"),
    ],
)  # fmt: skip
def test_what_changed_since(part: str, value: Any, why: str) -> None:
    assert same(**{part: value}) == because(why)
