"""What a comparison says of each model: its effect, notes, cost. Whole comparisons are in tests/cases/diff."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from edgespec.address import Address
from edgespec.plan.compare import compare_environments
from edgespec.plan.comparison import BuildDiff, Effect, EnvironmentDiff, FileDiff, Kind, ModelDiff, Side, StageDiff
from edgespec.plan.cost import Estimate
from edgespec.resources import deployment, kv_namespace, r2_bucket, weights, worker
from edgespec.resources.base import DesiredResource, DesiredState, ResourceType
from edgespec.resources.compile import compile_specs
from edgespec.spec.diff.model import Note, Risk
from edgespec.spec.models import EdgeModel, Environment
from edgespec.spec.releases import ModelReleases
from tests.world import BUNDLE, ENVIRONMENT, PROJECT, World, facts, spec

SMALLER = {"weights": {"tiers": ["memory"], "memory": "1MiB"}}
NEW = BuildDiff((StageDiff("export", "source"), StageDiff("pack", "")))


def side(
    *specs: EdgeModel,
    costs: Mapping[str, float] | None = None,
    promoted: bool = False,
    pinned: str | None = "ROLLED",
    releases: tuple[str, ...] = (),
    desired: DesiredState | None = None,
) -> Side:
    environment = {"target": {"type": "local"}, **({"promote_from": "staging"} if promoted else {})}
    release = {"number": 1, "artifact": "a" * 64, "size": 1, "engine": "edge"}
    return Side(
        Environment.model_validate(environment),
        {s.name: s for s in specs},
        desired or DesiredState(),
        lambda name: Estimate((costs or {}).get(name, 0.0)),
        {n: ModelReleases.model_validate({"current": 1, "pinned": pinned, "releases": [release]}) for n in releases},
    )


def compared(before: Side | None, after: Side | None, **builds: BuildDiff) -> EnvironmentDiff:
    return compare_environments("local", before, after, builds)


def only(before: Side, after: Side, **builds: BuildDiff) -> ModelDiff:
    (found,) = compared(before, after, **builds).models
    return found


def of(found: ModelDiff, facet: str) -> list[Note]:
    return [n for n in found.notes if n.facet == facet]


# --- cost ------------------------------------------------------------------------------------------------------------


def costing(before: float, after: float, budget: float | None = None) -> list[Note]:
    fields: dict[str, Any] = {} if budget is None else {"budget": {"monthly_cost": budget}}
    was, now = spec("alpha", **fields), spec("alpha", cache=SMALLER, **fields)
    return of(only(side(was, costs={"alpha": before}), side(now, costs={"alpha": after})), "cost")


def test_a_model_over_its_budget() -> None:
    why = "a plan refuses what is over its budget"
    over = Note("cost", "budget.monthly_cost", "over its budget", Risk.MEDIUM, why, 10.0, 10.123457)
    assert costing(9.0, 10.1234567, budget=10) == [over]
    assert costing(9.0, 10.0, budget=10) == []


def test_a_cost_that_rises() -> None:
    why = "it costs more than half as much again"
    rise = Note("cost", "", "the cost rises", Risk.MEDIUM, why, 2.123457, 3.765432)
    assert costing(2.1234567, 3.7654321) == [rise]
    assert [n.said for n in costing(0.5, 1.5)] == ["the cost rises"]  # a dollar more is where it begins
    assert costing(0.5, 1.4) == [] == costing(2.0, 3.0)
    assert [n.said for n in costing(2.0, 4.0)] == ["the cost rises"]  # within a budget too
    assert [n.said for n in costing(2.0, 4.0, budget=10)] == ["the cost rises"]


# --- changed ---------------------------------------------------------------------------------------------------------


def test_a_new_name_is_said_first() -> None:
    now = spec("omega", lifecycle={"renamed_from": "alpha"}, cache=SMALLER)
    found = only(side(spec("alpha")), side(now))
    assert (found.kind, found.previous) == (Kind.RENAMED, "alpha")
    assert found.notes[0].path == "metadata.name" and len(found.notes) > 1


def test_an_artifact_that_nothing_measures() -> None:
    found = only(side(spec()), side(spec()), alpha=NEW)
    said = "nothing measures the new artifact before it answers"
    assert (found.effect, found.notes) == (
        Effect.REBUILT, (Note("quality", "quality", "no quality gate", Risk.MEDIUM, said),)
    )  # fmt: skip


def test_files_whose_lines_are_not_counted_or_that_git_does_not_have() -> None:
    binary = FileDiff("head.train", "data/train.parquet", "1", "2")
    unknown = FileDiff("quality.data", "data/quality.jsonl", None, "2", (1, 2))
    found = only(side(spec()), side(spec()), alpha=BuildDiff(NEW.stages, (binary, unknown)))
    assert [(n.facet, n.said) for n in found.notes][:2] == [
        ("build", "head.train: data/train.parquet changed"),
        ("quality", "quality.data: data/quality.jsonl is not in git on both sides: whether it changed is not known"),
    ]


def holding(type_: ResourceType, name: str, what: str) -> DesiredState:
    address = Address(type_.name, name)
    return DesiredState({address: DesiredResource(address, type_, {"what": what}, ("alpha",))})


@pytest.mark.parametrize(
    ("type_", "name", "effect"),
    [
        (weights.TYPE, "alpha/default", Effect.REDEPLOYED),
        (worker.TYPE, "alpha", Effect.REDEPLOYED),
        (deployment.TYPE, "alpha", Effect.GATE),
    ],
)
def test_what_it_comes_to_by_what_is_touched(type_: ResourceType, name: str, effect: Effect) -> None:
    sides = [side(spec(), desired=holding(type_, name, what)) for what in ("one", "two")]
    found = only(*sides)
    assert (found.effect, found.notes) == (effect, ())
    assert [a for addresses in found.resources.values() for a in addresses] == [f"{type_.name}/{name}"]


def test_what_holds_an_artifact_changes_with_it() -> None:
    def deploying(source: str) -> Side:
        made = spec("alpha", model={"source": source}, cache={"weights": {"kv": {"pin": ["tokenizer"]}}})
        known = {"alpha": facts(World(), made)}
        return side(made, desired=compile_specs(PROJECT, ENVIRONMENT, [made], known, BUNDLE))

    found = only(deploying("./models/one"), deploying("./models/two"), alpha=NEW)
    assert found.resources == {
        "replace": ("kv_pins/alpha", "weights/alpha/default"),
        "update": ("deployment/alpha", "model/alpha", "worker/alpha"),
    }


def test_nothing_that_is_deployed_changes() -> None:
    assert only(side(spec()), side(spec("alpha", budget={"monthly_cost": 3}))).effect is Effect.NONE
    assert compared(side(spec()), side(spec())).models == ()


@pytest.mark.parametrize("type_", [r2_bucket.TYPE, kv_namespace.TYPE])
def test_what_models_share_is_nobodys_though_it_has_his_name(type_: ResourceType) -> None:
    before, after = (side(spec(), desired=holding(type_, "alpha", what)) for what in ("one", "two"))
    found = compared(before, after)
    assert [m.resources for m in found.models] == [{}] and list(found.resources.values()) == [(f"{type_.name}/alpha",)]


# --- releases --------------------------------------------------------------------------------------------------------


def test_a_task_that_changes_before_the_artifact_does() -> None:
    now = spec("alpha", task={"type": "embedding", "max_tokens": 16})
    sides = (side(spec(), promoted=True, releases=("alpha",)), side(now, promoted=True, releases=("alpha",)))
    found = only(*sides, alpha=NEW)
    why = "the artifact that is deployed was built for another task: a plan may refuse it until it is promoted"
    waits = Note("release", "task", "the task changes before the artifact does", Risk.MEDIUM, why)
    assert found.effect is Effect.WAITS and waits in found.notes and found.build.stages == ()


@pytest.mark.parametrize(("pinned", "effect"), [("bad answers", Effect.WAITS), (None, Effect.REBUILT)])
def test_a_release_holds_a_model_where_it_is_pinned(pinned: str | None, effect: Effect) -> None:
    sides = [side(spec(), pinned=pinned, releases=("alpha",)) for _ in range(2)]
    assert only(*sides, alpha=NEW).effect is effect


# --- come and gone ---------------------------------------------------------------------------------------------------


def test_an_environment_that_goes_names_what_stays_behind() -> None:
    found = compared(side(spec("beta"), spec("alpha")), None)
    assert found.kind is Kind.REMOVED and "(alpha, beta)" in found.notes[0].why


def test_a_model_that_takes_over_what_no_spec_had() -> None:
    found = only(side(), side(spec("omega", lifecycle={"renamed_from": "alpha"})))
    said = "takes over what alpha deployed, where state has it"
    assert Note("lifecycle", "lifecycle.renamed_from", said) in found.notes


def test_a_new_name_without_saying_so() -> None:
    came, gone = compared(side(spec("alpha")), side(spec("aa"))).models
    assert (came.name, gone.name) == ("aa", "alpha")
    why = "alpha is destroyed and aa built; `lifecycle.renamed_from: alpha` moves it"
    path, said = "lifecycle.renamed_from", "says what the removed alpha said"
    assert of(came, "name") == [Note("name", path, said, Risk.MEDIUM, why, "alpha", None)]
    unlike = spec("aa", task={"type": "embedding", "max_tokens": 16})
    assert of(compared(side(spec("alpha")), side(unlike)).models[0], "name") == []
