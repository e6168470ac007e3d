"""A plan of twice as many resources makes twice as many calls: counted, never timed. A walk over all of state for each
spec, or a closure over the graph for each change, would make four times as many."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from edgespec.diagnostics import Diagnostics
from edgespec.plan.model import Plan, Request
from edgespec.review import review
from edgespec.spec.document import Source, parse
from edgespec.spec.models import EdgeModel, Project
from edgespec.state.codec import encode
from edgespec.state.codec import parse as parse_state
from edgespec.workspace import Workspace
from tests import world as w

FEW, MORE, MOST_LINEAR = 16, 64, 1.05
"""`MOST_LINEAR` times as many calls a spec with MORE as with FEW: sorting is n log n, the rest may not grow."""


def calls(function: Callable[[], object]) -> int:
    """How many functions `function` calls in this thread, Python's and C's."""
    made = 0

    def count(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(before)
    return made


def specs(count: int) -> list[EdgeModel]:
    shards = {"eu": {"location": "weur", "match": {"continents": ["EU"]}}, "us": {"location": "enam"}}
    regions = {"default": "us", "shards": shards}
    cache = {"weights": {"tiers": ["memory", "kv"], "kv": {"pin": ["tokenizer"]}}}
    return [w.spec(f"model-{n:03}", regions=regions, cache=cache) for n in range(count)]


def judge(made: Plan, wanted: list[EdgeModel], known: w.World) -> None:
    node = (parse(Source("spec.yaml", "kind: EdgeModel")).value or [])[0]
    project = Project.model_validate({"apiVersion": "edgespec/v1", "kind": "Project", "name": w.PROJECT,
                                      "environments": {"local": {"target": {"type": "local"}}}})  # fmt: skip
    nodes = {s.name: node for s in wanted}
    place = Workspace(Path("/nowhere"), project, w.ENVIRONMENT, tuple(wanted), nodes, node, Diagnostics())
    review(place, made, wanted, {s.name: w.facts(known, s) for s in wanted}, w.BUNDLE)


@pytest.mark.parametrize("what", ["new", "same", "gone"])
def test_twice_the_specs_take_twice_the_calls(what: str) -> None:
    made = {}
    for count in (FEW, MORE):
        known, store, wanted = w.World(), w.MemoryStore(w.World()), specs(count)
        if what != "new":
            assert not w.apply(known, store, wanted).diagnostics.has_errors
        request = Request(destroy=what == "gone")

        def plan(
            known: w.World = known,
            store: w.MemoryStore = store,
            wanted: list[EdgeModel] = wanted,
            request: Request = request,
        ) -> None:
            found = w.plan(known, store, wanted, request=request)
            assert found.is_empty == (what == "same")
            judge(found, [] if what == "gone" else wanted, known)

        made[count] = calls(plan) / count
    assert made[MORE] < MOST_LINEAR * made[FEW]


def test_state_is_read_and_written_in_time_with_its_size() -> None:
    made = {}
    for count in (FEW, MORE):
        known, store = w.World(), w.MemoryStore(w.World())
        w.apply(known, store, specs(count))
        made[count] = calls(lambda text=store.text: encode(parse_state(text, "state"))) / count  # type: ignore[misc]
    assert made[MORE] < MOST_LINEAR * made[FEW]
