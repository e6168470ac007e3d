"""Specs at random, few enough values that resources are shared, moved and dropped often."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from edgespec.spec.models import EdgeModel
from tests.world import spec

NAMES = ("alpha", "beta", "gamma")
EU = {"jurisdiction": "eu", "match": {"continents": ["EU"]}}
REGIONS: tuple[dict[str, Any], ...] = (
    {},
    {"shards": {"world": {"location": "wnam"}}},
    {"shards": {"world": {"location": "enam"}}},
    {"default": "world", "shards": {"world": {"location": "wnam"}, "eu": EU}},
    {"default": "world", "shards": {"world": {}, "near": {"match": {"countries": ["DE", "FR"]}}}},
)
TASKS: tuple[dict[str, Any], ...] = (
    {"type": "embedding"},
    {"type": "keyword-extraction", "top_k": 3},
    {"type": "text-classification", "labels": ["yes", "no"]},
)


@st.composite
def cache(draw: st.DrawFn) -> dict[str, Any]:
    tiers = draw(st.sampled_from([["memory"], ["kv"], ["memory", "kv"]]))
    if "kv" not in tiers:
        return {"weights": {"tiers": tiers}}
    pin = draw(st.sampled_from([[], ["tokenizer"], ["model", "tokenizer"]]))
    return {"weights": {"tiers": tiers, "kv": {"pin": pin, "chunk": draw(st.sampled_from(["1MiB", "8MiB"]))}}}


@st.composite
def one_spec(draw: st.DrawFn, name: str) -> EdgeModel:
    fields: dict[str, Any] = {
        "model": {"source": draw(st.sampled_from(["./models/one", "./models/two"]))},
        "task": draw(st.sampled_from(TASKS)),
        "cache": draw(cache()),
    }
    regions = draw(st.sampled_from(REGIONS))
    if regions:
        fields["regions"] = regions
    return spec(name, **fields)


@st.composite
def specs(draw: st.DrawFn) -> tuple[EdgeModel, ...]:
    names = draw(st.sets(st.sampled_from(NAMES)))
    return tuple(draw(one_spec(name)) for name in sorted(names))
