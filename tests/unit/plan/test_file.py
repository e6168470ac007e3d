from __future__ import annotations

import copy
from typing import Any

import pytest

from edgespec import assets
from edgespec.diagnostics import EdgespecError
from edgespec.plan.file import check_same, to_document
from edgespec.plan.model import Plan
from edgespec.values import digest
from tests.world import ENVIRONMENT, PROJECT, MemoryStore, World, apply, plan, spec


def document(made: Plan, **changed: Any) -> dict[str, Any]:
    options: dict[str, Any] = {"project": PROJECT, "environment": ENVIRONMENT, "names": None, "destroy": False}
    return to_document(made, **{**options, **changed})


@pytest.fixture
def made() -> Plan:
    world = World()
    return plan(world, MemoryStore(world), [spec("alpha")])


def resealed(saved: dict[str, Any], **changed: Any) -> dict[str, Any]:
    body = {k: v for k, v in {**saved, **changed}.items() if k != "digest"}
    return {**body, "digest": digest(body)}


def reason(saved: dict[str, Any], current: dict[str, Any]) -> str:
    with pytest.raises(EdgespecError) as caught:
        check_same(saved, current)
    (problem,) = caught.value.diagnostics
    return f"{problem.code} {problem.detail}"


def test_the_same_plan_gives_the_same_document(made: Plan) -> None:
    assert document(made) == document(made)
    assert assets.schema_error("plan", document(made)) is None
    check_same(document(made), document(made))


def test_unknown_values_are_null_and_said_to_be_unknown() -> None:
    world = World()
    store = MemoryStore(world)
    apply(world, store, [spec("alpha")])
    changed = document(plan(world, store, [spec("alpha", model={"source": "./models/two"})]))
    (deployment,) = (c for c in changed["changes"] if c["address"] == "deployment/alpha")
    (version,) = deployment["fields"]
    assert (version["path"], version["after"], version["known_after_apply"]) == ("version", None, True)


def test_an_edited_file_is_refused(made: Plan) -> None:
    saved = copy.deepcopy(document(made))
    saved["changes"][0]["after"]["title"] = "another"
    assert reason(saved, document(made)).startswith("ES203")


def test_an_edited_file_with_a_new_digest_is_stale(made: Plan) -> None:
    saved = document(made)
    forged = resealed(saved, steps=saved["steps"][:1])
    assert "what is live, or what is in the build cache, changed" in reason(forged, saved)


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("project", "other", "it was made for other in local"),
        ("environment", "production", "it was made for shop in production"),
        ("spec_digest", "f" * 64, "the specs or their data changed"),
        ("state", {"lineage": "lineage", "serial": 4}, "the state moved from serial 4 to 0"),
    ],
)
def test_why_a_plan_is_stale(made: Plan, field: str, value: Any, why: str) -> None:
    found = reason(resealed(document(made), **{field: value}), document(made))
    assert found.startswith("ES202") and why in found


def test_names_and_destroy_are_part_of_it(made: Plan) -> None:
    assert document(made, names=("b", "a"))["names"] == ["a", "b"]
    assert len({document(made, **o)["digest"] for o in ({}, {"names": ("a",)}, {"destroy": True})}) == 3
