"""No phantom differences: however specs and what is observed are spelled, the plan after an apply is empty.

Specs come as YAML text, so that every spelling goes the way that a user's does; what is observed is respelled between
the account and the planner: lists that are sets in another order, codes in the other case, sizes and durations as text,
defaults said or left out, empty lists for nothing, bindings as the list that the API answers with."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.plan.model import Action, Plan, Refreshed
from edgespec.plan.planner import make_plan
from edgespec.records import replace
from edgespec.resources.base import Verdict
from edgespec.resources.compile import TYPES
from edgespec.spec.document import Source
from edgespec.spec.load import load_project, load_specs
from edgespec.spec.models import EdgeModel
from edgespec.spec.pipeline import Quantization
from edgespec.state.model import State
from edgespec.values import Inputs
from tests.property.strategies import specs
from tests.world import MemoryStore, World, apply, plan

EXAMPLES: Final = int(os.environ.get("EDGESPEC_EXAMPLES", "40"))
PROJECT = load_project(
    Source("edgespec.yaml", "apiVersion: edgespec/v1\nkind: Project\nname: shop\n"), {}, None
).unwrap()
RICH: Final = """
apiVersion: edgespec/v1
kind: EdgeModel
metadata: {name: rich, labels: {team: edge}}
model: {source: ./models/one}
task: {type: text-classification, labels: [yes, no], display: {yes: "Yes!"}}
regions:
  default: world
  shards:
    world: {location: wnam}
    eu: {jurisdiction: eu, match: {continents: [EU, AF], countries: [US, BR, CA]}}
cache:
  weights: {tiers: [memory, kv], memory: 64MiB, kv: {chunk: 1MiB, ttl: 7d, cache_ttl: 1h, pin: [tokenizer, model]}}
quality: {data: d.jsonl, metrics: {accuracy: {min: 0.5}, macro_f1: {min: 0.5, max_drop: 0.1}}}
"""

# --- the same spec, written by somebody else -------------------------------------------------------------------------

_SETS: Final = {"tiers", "pin", "continents", "countries"}
_SIZES: Final = {"memory", "chunk"}
_DURATIONS: Final = {"ttl", "cache_ttl"}


def _size(value: int, rng: random.Random) -> str:
    forms = [str(value), f"{value}B"]
    forms += [f"{value // 1024}KiB"] * (value % 1024 == 0) + [f"{value // 2**20}MiB"] * (value % 2**20 == 0)
    return rng.choice(forms)


def _duration(value: int, rng: random.Random) -> str:
    forms = [str(value), f"{value}s"]
    forms += [f"{value // 3600}h"] * (value % 3600 == 0) + [f"{value // 60}m"] * (value % 60 == 0)
    return rng.choice(forms)


def respelled_spec(spec: EdgeModel, rng: random.Random) -> EdgeModel:
    """The same spec: keys and sets in another order, other units and cases, every default said or none."""
    said = spec.model_dump(mode="json", exclude_unset=rng.random() < 0.5, exclude_none=True)
    if "task" in said and getattr(spec.task, "display", None):
        said["task"]["display"] = dict(spec.task.display)  # type: ignore[union-attr]
    if "quantization" in said:  # options of other methods are refused
        said["quantization"] = {"method": spec.quantization.method}
    tiers = spec.cache.weights.tiers
    weights = said.get("cache", {}).get("weights", {})  # limits of tiers that are not used are refused
    for name, fields in (("memory", ["memory"]), ("kv", ["kv"])):
        for field in fields if name not in tiers else ():
            chunk = weights.pop(field, {})
            if field == "kv" and isinstance(chunk, dict) and "chunk" in chunk:
                weights["kv"] = {"chunk": chunk["chunk"]}
    for shard in said.get("regions", {}).get("shards", {}).values():
        if not shard.get("match", {}).get("continents") and not shard.get("match", {}).get("countries"):
            shard.pop("match", None)
    text = yaml.safe_dump(_shuffled(said, rng), sort_keys=False)
    (loaded,) = load_specs([Source("specs/a.yaml", text)], PROJECT.project).unwrap()
    return loaded.spec


def _shuffled(value: Any, rng: random.Random, name: str = "") -> Any:
    if isinstance(value, dict):
        items = list(value.items())
        rng.shuffle(items)
        return {k: _shuffled(v, rng, k) for k, v in items}
    if isinstance(value, list):
        found = [_shuffled(v, rng) for v in value]
        if name in _SETS:
            rng.shuffle(found)
        return found
    if name in _SIZES and isinstance(value, int):
        return _size(value, rng)
    if name in _DURATIONS and isinstance(value, int):
        return _duration(value, rng)
    if name in ("location", "jurisdiction") and isinstance(value, str):
        return rng.choice([value, value.upper()])
    return value


# --- the same object, as another answer would tell it ----------------------------------------------------------------


def _case(value: str, rng: random.Random) -> str:
    return rng.choice([value, value.upper(), value.lower()])


def _bucket(inputs: dict[str, Any], rng: random.Random) -> None:
    inputs["location"] = rng.choice([inputs["location"], "WNAM", "EEUR", None])  # best effort, says the server
    inputs["jurisdiction"] = _case(inputs["jurisdiction"], rng)
    _left_out(inputs, "jurisdiction", "default", rng)


def _weights(inputs: dict[str, Any], rng: random.Random) -> None:
    rng.shuffle(inputs["blobs"])
    inputs["jurisdiction"] = _case(inputs["jurisdiction"], rng)
    _left_out(inputs, "jurisdiction", "default", rng)


def _pins(inputs: dict[str, Any], rng: random.Random) -> None:
    rng.shuffle(inputs["files"])


def _model(inputs: dict[str, Any], rng: random.Random) -> None:
    inputs["chunk"] = rng.choice([inputs["chunk"], _size(inputs["chunk"], rng)])
    task = inputs["task"]
    for field, default in (("multi_label", False), ("threshold", 0.5), ("max_tokens", 128), ("normalize", True)):
        _left_out(task, field, default, rng)
    inputs["task"] = _shuffled(task, rng)


def _worker(inputs: dict[str, Any], rng: random.Random) -> None:
    config = inputs["config"]
    for shard in config["shards"].values():
        for codes in ("continents", "countries"):
            rng.shuffle(shard[codes])
            shard[codes] = [_case(c, rng) for c in shard[codes]]
            _left_out(shard, codes, [], rng)
    weights = config["cache"]["weights"]
    weights["memory"] = rng.choice([weights["memory"], _size(weights["memory"], rng)])
    if weights.get("kv"):
        for field in ("ttl", "cache_ttl"):
            weights["kv"][field] = rng.choice([weights["kv"][field], _duration(weights["kv"][field], rng)])
    else:
        _left_out(weights, "kv", None, rng)
    for field in ("text_bytes", "body_bytes"):
        config["limits"][field] = rng.choice([config["limits"][field], _size(config["limits"][field], rng)])
    config.setdefault("display", rng.choice([{}, None]))
    _left_out(inputs, "compatibility_flags", [], rng)
    for binding in inputs["bindings"].values():
        if "jurisdiction" in binding:
            binding["jurisdiction"] = _case(binding["jurisdiction"], rng)
            _left_out(binding, "jurisdiction", "default", rng)
    if rng.random() < 0.5:
        listed = [{"name": name, **binding} for name, binding in inputs["bindings"].items()]
        rng.shuffle(listed)
        inputs["bindings"] = listed


def _deployment(inputs: dict[str, Any], rng: random.Random) -> None:
    _left_out(inputs, "workers_dev", True, rng)
    _left_out(inputs, "quality", None, rng)


def _left_out(inputs: dict[str, Any], field: str, default: object, rng: random.Random) -> None:
    """Without a field that says what holds anyway."""
    if str(inputs.get(field)).lower() == str(default).lower() and rng.random() < 0.5:
        inputs.pop(field, None)


RESPELL: Final[dict[str, Callable[[dict[str, Any], random.Random], None]]] = {
    "r2_bucket": _bucket,
    "weights": _weights,
    "archive": _weights,
    "kv_namespace": lambda inputs, rng: None,
    "kv_pins": _pins,
    "model": _model,
    "worker": _worker,
    "deployment": _deployment,
}


def respelled(type_: str, inputs: Inputs, rng: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = _copy(inputs)
    RESPELL[type_](found, rng)
    items = list(found.items())
    rng.shuffle(items)
    return dict(items)


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _copy(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copy(v) for v in value]
    return value


def seen_otherwise(state: State, rng: random.Random) -> State:
    """Every record as another server, or an older edgespec, would tell it."""
    records = {k: replace(r, inputs=respelled(k.address.type, r.inputs, rng)) for k, r in state.records.items()}
    return replace(state, records=records)


def planned_again(made: Plan, rng: random.Random) -> Plan:
    """The same plan with everything that was observed, and what state remembers, in other words."""
    previous, live = seen_otherwise(made.refreshed, rng), seen_otherwise(made.refreshed, rng)
    return make_plan(made.desired, previous, Refreshed(live), spec_digest=made.spec_digest).unwrap()


# --- the properties --------------------------------------------------------------------------------------------------


def rich(**fields: Any) -> EdgeModel:
    return load_specs([Source("specs/rich.yaml", RICH)], PROJECT.project).unwrap()[0].spec.model_copy(update=fields)


def with_a_past(world: World) -> MemoryStore:
    """`rich` has served another artifact before, so that there is something to keep."""
    store = MemoryStore(world)
    apply(world, store, [rich(quantization=Quantization(method="none"))])
    return store


def test_every_type_is_respelled() -> None:
    assert RESPELL.keys() == TYPES.keys()


@settings(max_examples=EXAMPLES, deadline=None)
@given(specs(), st.randoms(use_true_random=False))
def test_the_plan_after_an_apply_is_empty_in_any_spelling(wanted: tuple[EdgeModel, ...], rng: random.Random) -> None:
    wanted = (*wanted, rich())
    world = World()
    store = with_a_past(world)
    assert not apply(world, store, wanted).diagnostics.has_errors
    again = [respelled_spec(s, rng) for s in wanted]
    second = plan(world, store, again)
    assert {k.address.type for k in second.refreshed.records} == TYPES.keys()
    assert second.is_empty, told(second)
    assert not second.drift
    third = planned_again(second, rng)
    assert third.is_empty, told(third)
    assert not third.drift, third.drift


def told(made: Plan) -> list[str]:
    return [f"{c.key}: {f.path}: {f.before!r} -> {f.after!r}" for c in made.changes for f in c.fields]


@settings(max_examples=EXAMPLES, deadline=None)
@given(specs(), specs(), st.integers(0, 1000), st.randoms(use_true_random=False))
def test_a_change_always_names_a_field(
    one: tuple[EdgeModel, ...], other: tuple[EdgeModel, ...], disturbance: int, rng: random.Random
) -> None:
    world = World()
    store = MemoryStore(world)
    apply(world, store, one)
    if disturbance % 3:
        world.disturb(disturbance)
    made = plan(world, store, [respelled_spec(s, rng) for s in other])
    for change in made.changes:
        if change.action in (Action.UPDATE, Action.REPLACE):
            assert change.fields, change.key
            assert all(f.before != f.after for f in change.fields), change.fields
        if change.action is Action.REPLACE:
            assert any(f.replaces for f in change.fields)
    for drift in made.drift:
        assert drift.fields or drift.kind.value == "gone"


@pytest.mark.parametrize("type_", sorted(TYPES))
def test_a_real_difference_is_never_lost(type_: str) -> None:
    """The other direction: a canonical form that made everything equal would pass all of the above."""
    world = World()
    store = with_a_past(world)
    apply(world, store, [rich()])
    records = [r for k, r in store.load().records.items() if k.address.type == type_]
    for record in records:
        for path, inputs in _changed(dict(record.inputs)):
            found = TYPES[type_].diff(record.inputs, inputs)
            if path[0] in TYPES[type_].create_only:
                continue
            assert found.verdict is not Verdict.SAME, path
            assert found.fields


def _changed(value: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """Each copy of `value` in which one leaf is another."""
    if isinstance(value, Mapping):
        return [(where, {**value, k: inner}) for k, v in value.items() for where, inner in _changed(v, (*path, str(k)))]
    if isinstance(value, list):
        return [(where, [*value[:i], inner, *value[i + 1 :]]) for i, v in enumerate(value)
                for where, inner in _changed(v, (*path, str(i)))]  # fmt: skip
    if isinstance(value, bool):
        return [(path, not value)]
    if isinstance(value, (int, float)):
        return [(path, value + 1)]
    return [(path, f"{value}x")] if isinstance(value, str) else []
