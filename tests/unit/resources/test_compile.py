from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from edgespec import graph
from edgespec.address import Address
from edgespec.resources import worker
from edgespec.resources.base import DesiredState, Ref, Verdict, references
from edgespec.resources.compile import TYPES, compile_specs
from edgespec.resources.r2_bucket import TYPE as BUCKET
from edgespec.spec.models import EdgeModel
from tests.property.strategies import specs
from tests.world import BUNDLE, World, facts, spec


def compiled(*wanted: EdgeModel) -> DesiredState:
    world = World()
    return compile_specs("shop", "local", wanted, {s.name: facts(world, s) for s in wanted}, BUNDLE)


def addresses(state: DesiredState) -> list[str]:
    return [str(a) for a in state.resources]


@given(specs())
def test_every_reference_has_its_resource(wanted: tuple[EdgeModel, ...]) -> None:
    state = compiled(*wanted)
    assert graph.order({a: r.needs for a, r in state.resources.items()}).value is not None
    for resource in state.resources.values():
        assert resource.needs <= state.resources.keys()
        assert resource.owners and set(resource.owners) <= {s.name for s in wanted}
        assert resource.type is TYPES[resource.address.type]
    assert list(state.resources) == sorted(state.resources)


@given(specs())
def test_the_order_of_specs_does_not_matter(wanted: tuple[EdgeModel, ...]) -> None:
    one, other = compiled(*wanted), compiled(*reversed(wanted))
    assert one.resources.keys() == other.resources.keys()
    for address, resource in one.resources.items():
        assert resource.inputs == other.resources[address].inputs


def test_shared_resources_are_there_once_with_every_owner() -> None:
    state = compiled(spec("alpha"), spec("beta"))
    assert addresses(state).count("r2_bucket/shop-local-auto") == 1
    assert state.resources[Address("r2_bucket", "shop-local-auto")].owners == ("alpha", "beta")
    assert state.resources[Address("kv_namespace", "shop-local-weights")].owners == ("alpha", "beta")


def test_two_shards_in_one_place_share_its_bucket() -> None:
    shards = {"world": {}, "near": {"match": {"countries": ["DE"]}}}
    state = compiled(spec("alpha", regions={"default": "world", "shards": shards}))
    assert [a for a in addresses(state) if a.startswith(("r2", "weights"))] == [
        "r2_bucket/shop-local-auto", "weights/alpha/near", "weights/alpha/world",
    ]  # fmt: skip


def test_a_worker_waits_for_weights_and_pins() -> None:
    state = compiled(spec("alpha", cache={"weights": {"kv": {"pin": ["model"]}}}))
    needs = state.resources[Address("worker", "alpha")].needs
    assert {Address("weights", "alpha/default"), Address("kv_pins", "alpha")} <= needs


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"shards": {"world": {}}}, {"default": "world", "shards": {"world": {"match": {}}}}),
        (
            {
                "default": "a",
                "shards": {"a": {}, "b": {"match": {"continents": ["EU", "AF"], "countries": ["TR", "IL"]}}},
            },
            {
                "shards": {"b": {"match": {"countries": ["IL", "TR"], "continents": ["AF", "EU"]}}, "a": {}},
                "default": "a",
            },
        ),
    ],
)
def test_what_means_the_same_is_the_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    states = [compiled(spec("alpha", regions=r)) for r in (one, other)]
    assert states[0] == states[1]


def test_labels_of_the_metadata_change_nothing() -> None:
    assert compiled(spec("alpha")) == compiled(spec("alpha", metadata={"name": "alpha", "labels": {"team": "x"}}))


def test_the_worker_module() -> None:
    shards = {"world": {}, "eu": {"jurisdiction": "eu", "match": {"continents": ["EU"]}}}
    resource = compiled(spec("alpha", regions={"default": "world", "shards": shards})).resources[
        Address("worker", "alpha")
    ]
    inputs: Any = resource.resolve(lambda ref: f"<{ref.address} {ref.output}>")
    module = worker.module(inputs)
    assert module["default_shard"] == "world" and module["format"] == "edgespec.worker-config/v1"
    assert module["shards"]["eu"] == {
        "artifact": "<model/alpha artifact>", "bucket": "WEIGHTS_EU", "continents": ["EU"], "countries": [],
    }  # fmt: skip
    assert set(module["artifacts"]) == {"<model/alpha artifact>"}
    assert inputs["bindings"].keys() == {"WEIGHTS_WORLD", "WEIGHTS_EU", "WEIGHTS_KV"}


LABELS = {"type": "text-classification", "labels": ["refund", "other"]}


def test_display_text_is_in_the_worker_and_nowhere_else() -> None:
    plain = compiled(spec("alpha", task=LABELS))
    shown = compiled(spec("alpha", task={**LABELS, "display": {"refund": "Refund request"}}))
    changed = [a for a, r in shown.resources.items() if r.inputs != plain.resources[a].inputs]
    assert changed == [Address("worker", "alpha")]
    config: Any = shown.resources[changed[0]].inputs["config"]
    assert config["display"] == {"refund": "Refund request"}
    assert worker.module({"config": config, "artifact": "a" * 64, "manifest": {}})["display"] == config["display"]
    before: Any = plain.resources[changed[0]].inputs["config"]
    assert "display" not in before  # so that Workers deployed before it stay as they are


def test_gates_are_told_as_they_are_written() -> None:
    gates = {"accuracy": {"min": 0.8}, "macro_f1": {"max_drop": 0.02}}
    state = compiled(spec("alpha", task=LABELS, quality={"data": "data/t.jsonl", "metrics": gates}))
    gate: Any = state.resources[Address("deployment", "alpha")].inputs["quality"]
    assert gate["metrics"] == gates


def test_a_location_never_replaces_a_bucket() -> None:
    bucket = {"name": "b", "location": "enam", "jurisdiction": "default"}
    assert BUCKET.diff(bucket, {**bucket, "location": "WNAM"}).verdict is Verdict.SAME
    assert BUCKET.diff(bucket, {**bucket, "jurisdiction": "eu"}).verdict is Verdict.REPLACE


def test_references_are_found_at_any_depth() -> None:
    one, two = (Ref(Address("t", n), "id") for n in "ab")
    assert list(references({"x": [{"y": one}, (two,)], "z": "text"})) == [one, two]
