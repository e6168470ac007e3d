from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec import assets
from edgespec.spec.document import Node, Source, parse
from edgespec.spec.overlays import merge
from edgespec.spec.selectors import parse_selector
from edgespec.workspace import load_workspace

LABELS = {"team": "support", "tier": "gold", "empty": ""}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("team=support", True),
        ("team==support", True),
        (" team = support ", True),
        ("team=other", False),
        ("team!=other", True),
        ("owner!=x", True),  # as in Kubernetes: there is no such label
        ("team!=support", False),
        ("team=support,tier=gold", True),
        ("team=support, tier=silver", False),
        ("tier in (gold, silver)", True),
        ("tier in (silver)", False),
        ("tier notin (silver)", True),
        ("owner notin (silver)", True),
        ("team", True),
        ("owner", False),
        ("!owner", True),
        ("!team", False),
        ("team,!owner,tier in (gold)", True),
        ("empty=", True),
        ("empty in (,a)", True),
        ("team=", False),
        ("in in (a)", False),
    ],
)
def test_selectors(text: str, matches: bool) -> None:
    assert parse_selector(text).matches(LABELS) is matches


@pytest.mark.parametrize(
    "text", ["", ",", "a,", "a b", "=a", "a in", "a in b", "a in (b", "!", "!!a", "a=(b)", "a)", "a=b=c"]
)
def test_what_is_no_selector(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_selector(text)


def node(data: Any) -> Node:
    (found,) = parse(Source("a.yaml", json.dumps(data))).unwrap()
    return found


# RFC 7396, "Test cases", of maps; text for numbers.
@pytest.mark.parametrize(
    ("base", "over", "merged"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": ["1"]}, {"a": ["1"]}),
        ({"e": None}, {"a": "1"}, {"e": None, "a": "1"}),
        ({"k": "v"}, {"a": {"bb": {"ccc": None}}}, {"k": "v", "a": {"bb": {}}}),
    ],
)
def test_maps_merge_lists_and_scalars_replace_null_removes(base: Any, over: Any, merged: Any) -> None:
    assert merge(node(base), node(over)).plain() == merged


_VALUES = st.recursive(
    st.none() | st.sampled_from(["x", "y", "1"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)
_MAPS = st.dictionaries(st.sampled_from("abcd"), _VALUES, max_size=4)


@given(_MAPS, _MAPS, _MAPS)
def test_a_merge_is_a_merge_patch_that_changes_neither_side(base: Any, first: Any, second: Any) -> None:
    nodes = [node(base), node(first), node(second)]
    once = merge(nodes[0], nodes[1])
    twice = merge(once, nodes[2])
    assert once.plain() == _patched(base, first)
    assert twice.plain() == _patched(_patched(base, first), second)
    assert [n.plain() for n in nodes] == [base, first, second]
    assert set(twice.keys) == set(twice.entries)
    assert merge(once, nodes[1]).plain() == once.plain()


def _patched(base: Any, over: Any) -> Any:
    """RFC 7396, "Processing Merge Patch Documents"."""
    if not isinstance(over, dict):
        return over
    found = dict(base) if isinstance(base, dict) else {}
    for key, value in over.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = _patched(found.get(key), value)
    return found


@pytest.mark.parametrize(
    ("overlay", "fits"),
    [
        ({"cache": {"weights": {"memory": "3MiB", "kv": None}}}, True),
        ({"task": {"max_tokens": 5}, "regions": {"default": None, "shards": {"eu": {"jurisdiction": "eu"}}}}, True),
        ({"quality": {"metrics": {"accuracy": None}}, "metadata": {"labels": {"a": "b"}}}, True),
        ({}, True),
        ({"worker": {"engin": "edge"}}, False),
        ({"regions": {"defualt": "eu"}}, False),
        ({"metadata": {"name": "x"}}, False),
        ({"kind": "EdgeModel"}, False),
        (None, False),
    ],
)
def test_editors_know_what_an_overlay_may_say(overlay: Any, fits: bool) -> None:
    environments = {"a": {"target": {"type": "local"}, "overrides": {"*": overlay}}}
    document = {"apiVersion": "edgespec/v1", "kind": "Project", "name": "shop", "environments": environments}
    assert (assets.schema_error("project", document) is None) is fits


PROJECT = """apiVersion: edgespec/v1
kind: Project
name: shop
environments:
  local:
    target: {type: local}
  staging:
    target: {type: local}
    overrides:
      support: {cache: {weights: {memory: 3MiB}}}
      "team=a": {cache: {weights: {memory: 2MiB}}, worker: {engine: edge}}
      "tier=gold": {worker: {engine: auto}}
      "*": {cache: {weights: {memory: 1MiB, kv: {ttl: 1d}}}, metadata: {labels: {team: z}}}
  empty:
    target: {type: local}
    overrides: {}
"""
SPEC = """apiVersion: edgespec/v1
kind: EdgeModel
metadata: {{name: {name}, labels: {{team: {team}}}}}
model: {{source: ./m}}
task: {{type: embedding}}
cache: {{weights: {{kv: {{ttl: 3d, cache_ttl: 2h}}}}}}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "specs").mkdir()
    (tmp_path / "edgespec.yaml").write_text(PROJECT)
    for name, team in (("support", "a"), ("find", "a"), ("other", "b")):
        (tmp_path / "specs" / f"{name}.yaml").write_text(SPEC.format(name=name, team=team))
    return tmp_path


def test_the_more_special_wins_wherever_it_is_written(root: Path) -> None:
    plain, staging = (load_workspace(root, e, {}) for e in ("local", "staging"))
    memory = {s.name: s.cache.weights.memory >> 20 for s in staging.specs}
    assert memory == {"find": 2, "other": 1, "support": 3}
    # labels are those of the spec's own file: `*` gave all of them another team
    assert {s.name: s.worker.engine for s in staging.specs} == {"find": "edge", "other": "auto", "support": "edge"}
    assert {s.metadata.labels["team"] for s in staging.specs} == {"z"}
    assert {s.cache.weights.kv.ttl for s in staging.specs} == {86400}
    assert {s.cache.weights.kv.cache_ttl for s in staging.specs} == {7200}
    assert {s.cache.weights.memory for s in plain.specs} == {64 << 20}


def test_where_a_value_stands(root: Path) -> None:
    support = load_workspace(root, "staging", {}).nodes["support"]
    weights = support.entries["cache"].entries["weights"]
    assert str(weights.where).startswith("specs/support.yaml:6:")
    assert str(weights.entries["memory"].where) == "edgespec.yaml:10:43"
    assert str(weights.entries["kv"].entries["ttl"].where) == "edgespec.yaml:13:55"
    assert str(weights.entries["kv"].entries["cache_ttl"].where).startswith("specs/support.yaml:6:")


def test_the_digest_is_of_what_the_specs_come_to(root: Path) -> None:
    def digests() -> dict[str, str]:
        return {e: load_workspace(root, e, {}).spec_digest for e in ("local", "staging", "empty")}

    before = digests()
    (root / "edgespec.yaml").write_text(PROJECT.replace("3MiB", "3072KiB"))
    assert digests() == before
    (root / "edgespec.yaml").write_text(PROJECT.replace("3MiB", "4MiB"))
    after = digests()
    assert {e for e in before if before[e] != after[e]} == {"staging"}
