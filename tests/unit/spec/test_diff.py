"""Every difference is told, nothing else is, and what a reviewer has to know has its risk."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.spec.diff.model import Note, Risk, worst
from edgespec.spec.diff.project import environment_notes, project_notes
from edgespec.spec.diff.regions import region_notes
from edgespec.spec.diff.sections import spec_notes
from edgespec.spec.models import EdgeModel, Environment, Project, Regions

BASE: dict[str, Any] = {
    "apiVersion": "edgespec/v1",
    "kind": "EdgeModel",
    "metadata": {"name": "support", "labels": {"team": "care"}},
    "model": {
        "source": "package:minilm",
        "pipeline": [
            {"finetune": {"train": "data/train.jsonl", "epochs": 2.0}},
            {"prune": {"layers": [0, 2, 4], "ffn": 0.5}},
            {"head": {"train": "data/train.jsonl", "seed": 7}},
        ],
    },
    "task": {"type": "text-classification", "labels": ["refund", "other"], "max_tokens": 64, "display": {"other": "-"}},
    "quantization": {"method": "gptq", "bits": 8, "group_size": 64, "calibration": {"data": "data/c.jsonl"}},
    "regions": {
        "default": "world",
        "shards": {"world": {"location": "wnam"}, "eu": {"jurisdiction": "eu", "match": {"continents": ["EU"]}}},
    },
    "cache": {"weights": {"tiers": ["memory", "kv"], "memory": 2**25, "kv": {"ttl": 3600, "pin": ["tokenizer"]}}},
    "worker": {"engine": "edge", "plan": "paid"},
    "quality": {"data": "data/test.jsonl", "metrics": {"accuracy": {"min": 0.9, "max_drop": 0.01}}},
    "budget": {"script": 10**7, "memory": 10**8, "cpu_ms": {"p50": 5.0}, "monthly_cost": 20.0, "requests": 10**6},
    "lifecycle": {"prevent_destroy": True},
    "tune": {"quantization": ["int8"], "metric": "accuracy"},
}


def notes(edit: Callable[[dict[str, Any]], object]) -> list[Note]:
    document = copy.deepcopy(BASE)
    edit(document)
    return [*spec_notes(EdgeModel.model_validate(BASE), EdgeModel.model_validate(document))]


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [p for k, v in value.items() for p in paths(v, (*path, k))]
    if isinstance(value, list) and any(isinstance(v, dict) for v in value):
        return [p for i, v in enumerate(value) for p in paths(v, (*path, i))]
    return [path]


OTHER: dict[str, Any] = {
    "source": "package:e5", "train": "data/other.jsonl", "method": "awq", "location": "oc", "jurisdiction": "us",
    "engine": "auto", "plan": "free", "default": "eu", "metric": "macro_f1", "data": "data/d.jsonl",
    "group_size": 32, "bits": 4, "display": "+", "pin": ["model"], "continents": ["AS"], "tiers": ["memory"],
    "layers": [0, 1], "labels": ["refund", "more"],
}  # fmt: skip
_SKIPPED = {("apiVersion",), ("kind",), ("metadata", "name"), ("task", "type"), ("quantization", "method")}


def changed(path: tuple[Any, ...], value: Any) -> Any:
    name = path[-1]
    if isinstance(value, bool):
        return not value
    if name in OTHER:
        return OTHER[name]
    if isinstance(value, float):
        return value / 2
    return value * 2 if isinstance(value, int) else ["int4"] if isinstance(value, list) else f"{value}x"


@pytest.mark.parametrize("path", [p for p in paths(BASE) if p not in _SKIPPED], ids=lambda p: ".".join(map(str, p)))
def test_no_field_can_change_without_being_told(path: tuple[Any, ...]) -> None:
    def edit(document: dict[str, Any]) -> None:
        for part in path[:-1]:
            document = document[part]
        document[path[-1]] = changed(path, document[path[-1]])

    found = notes(edit)
    assert found
    for note in found:
        assert note.said
        assert (note.risk is Risk.LOW) == (not note.why)


@given(st.sets(st.sampled_from([p for p in paths(BASE) if len(p) > 1 and p not in _SKIPPED]), max_size=6))
def test_nothing_is_told_where_nothing_differs(written: set[tuple[Any, ...]]) -> None:
    """However a value is spelled."""
    assert notes(lambda d: d["cache"]["weights"].update(memory="32MiB")) == []
    assert notes(lambda d: d["cache"]["weights"]["kv"].update(ttl="1h")) == []


@pytest.mark.parametrize(
    ("edit", "risk", "said"),
    [
        (lambda d: d.pop("quality"), Risk.HIGH, "the gate is removed"),
        (lambda d: d["quality"]["metrics"]["accuracy"].update(min=0.8), Risk.MEDIUM, "accuracy: min 0.9 -> 0.8"),
        (lambda d: d["quality"]["metrics"]["accuracy"].update(min=0.95), Risk.LOW, "accuracy: min 0.9 -> 0.95"),
        (lambda d: d["quality"]["metrics"]["accuracy"].pop("max_drop"), Risk.MEDIUM, "max_drop 0.01 -> (none)"),
        (lambda d: d["quality"]["metrics"]["accuracy"].update(max_drop=0.005), Risk.LOW, "max_drop 0.01 -> 0.005"),
        (lambda d: d["lifecycle"].update(prevent_destroy=False), Risk.HIGH, "prevent_destroy is lifted"),
        (lambda d: d["task"].update(labels=["refund", "more", "other"]), Risk.MEDIUM, "labels: +more"),
        (lambda d: d["task"].update(labels=["other", "refund"]), Risk.MEDIUM, "another order"),
        (lambda d: d["task"].update(labels=["refund", "more"]), Risk.HIGH, "labels: +more, -other"),
        (lambda d: d["task"].update(multi_label=True), Risk.HIGH, "multi_label: false -> true"),
        (lambda d: d["task"].update(max_tokens=128), Risk.LOW, "max_tokens: 64 -> 128"),
        (lambda d: d.update(task={"type": "embedding"}), Risk.HIGH, "type: text-classification -> embedding"),
        (lambda d: d["model"]["pipeline"].pop(1), Risk.LOW, "stage prune is removed"),
        (lambda d: d["model"]["pipeline"].insert(1, {"prune": {"heads": 0.5}}), Risk.LOW, "stage prune-2 is new"),
        (lambda d: d["model"]["pipeline"].insert(0, d["model"]["pipeline"].pop(1)), Risk.LOW, "in another order"),
        (lambda d: d["regions"]["shards"]["eu"].update(jurisdiction="us"), Risk.HIGH, "shard eu moves (Europe)"),
        (lambda d: d["regions"]["shards"]["world"].update(location="enam"), Risk.MEDIUM, "near wnam -> near enam"),
    ],
)
def test_what_a_reviewer_has_to_know(edit: Callable[[dict[str, Any]], object], risk: Risk, said: str) -> None:
    found = notes(edit)
    assert worst(n.risk for n in found) is risk
    assert any(said in n.said for n in found), [n.said for n in found]


def regions(shards: dict[str, Any], default: str = "world") -> Regions:
    return Regions.model_validate({"default": default, "shards": {"world": {}, **shards}})


def test_who_is_served_from_where() -> None:
    europe = {"eu": {"jurisdiction": "eu", "match": {"continents": ["EU"]}}}
    north = {"north": {"location": "weur", "match": {"countries": ["NO", "SE"]}}}
    said = [n.said for n in region_notes(regions(europe), regions({**europe, **north}))]
    assert "NO, SE: by continent -> north (near weur)" in said
    (moved, *_) = region_notes(regions(europe), regions({}))
    assert (moved.said, moved.risk) == ("Europe: eu (jurisdiction eu) -> world (wherever R2 puts it)", Risk.HIGH)


def test_a_continent_and_a_country_of_the_same_code() -> None:
    america = {"na": {"match": {"continents": ["NA"]}}}
    namibia = {"na": {"match": {"countries": ["NA"]}}}
    said = [n.said for n in region_notes(regions(america), regions(namibia))]
    assert "North America: na (wherever R2 puts it) -> world (wherever R2 puts it)" in said
    assert "NA: by continent -> na (wherever R2 puts it)" in said


def test_a_shard_under_another_name_in_the_same_place_loses_nothing() -> None:
    one = {"eu": {"jurisdiction": "eu", "match": {"continents": ["EU"]}}}
    other = {"europe": {"jurisdiction": "eu", "match": {"continents": ["EU"]}}}
    assert worst(n.risk for n in region_notes(regions(one), regions(other))) is Risk.MEDIUM


def environment(**fields: Any) -> Environment:
    return Environment.model_validate({"target": {"type": "local", "port": 1}, **fields})


def test_environments() -> None:
    def risk(before: Environment, after: Environment) -> Risk:
        found = [*environment_notes(before, after)]
        assert found
        return worst(n.risk for n in found)

    cloud = {"type": "cloudflare", "account": "0" * 32}
    assert risk(environment(protect=True), environment()) is Risk.HIGH
    assert risk(environment(), environment(protect=True)) is Risk.LOW
    assert risk(environment(), environment(target={"type": "local", "port": 2})) is Risk.LOW
    assert risk(environment(), environment(target=cloud)) is Risk.HIGH
    assert risk(environment(), environment(state={"type": "local", "path": "x"})) is Risk.HIGH
    assert risk(environment(promote_from="staging"), environment()) is Risk.HIGH
    assert risk(environment(keep=5), environment(keep=1)) is Risk.MEDIUM
    assert [*environment_notes(environment(), environment(overrides={"*": {}}))] == []


def test_the_name_of_the_project_and_its_build_cache() -> None:
    def project(**fields: Any) -> Project:
        return Project.model_validate({"apiVersion": "edgespec/v1", "kind": "Project", "name": "shop", **fields})

    (renamed,) = project_notes(project(), project(name="store"))
    assert (renamed.said, renamed.risk) == ("name: shop -> store", Risk.HIGH)
    (cache,) = project_notes(project(), project(build={"cache": {"bucket": "shop-cache"}}))
    assert cache.risk is Risk.LOW
    assert [*project_notes(project(), project())] == []
