from __future__ import annotations

import copy
from typing import Any

import pytest

from edgespec import assets
from edgespec.address import Address
from edgespec.diagnostics import EdgespecError
from edgespec.plan.file import check_base, check_same, request_of, to_document
from edgespec.plan.model import Plan, Request
from edgespec.records import replace
from edgespec.state.model import State
from edgespec.values import digest
from tests.world import ENVIRONMENT, PROJECT, MemoryStore, World, apply, build, facts, plan, spec


def document(made: Plan, **changed: Any) -> dict[str, Any]:
    return to_document(made, **{"project": PROJECT, "environment": ENVIRONMENT, **changed})


@pytest.fixture
def made() -> Plan:
    world = World()
    return plan(world, MemoryStore(world), [spec("alpha")])


def resealed(saved: dict[str, Any], **changed: Any) -> dict[str, Any]:
    body = {k: v for k, v in {**saved, **changed}.items() if k != "digest"}
    return {**body, "digest": digest(body)}


def refusal(saved: dict[str, Any], current: dict[str, Any]) -> str:
    """Why a saved plan is not applied, as apply finds it out: `current` is the plan made anew; empty when it is."""
    state = State(current["state"]["lineage"], PROJECT, ENVIRONMENT, current["state"]["serial"])
    try:
        check_base(
            saved,
            project=current["project"],
            environment=current["environment"],
            spec_digest=current["spec_digest"],
            state=state,
        )
        check_same(saved, current)
    except EdgespecError as e:
        (problem,) = e.diagnostics
        return f"{problem.code} {problem.detail}"
    return ""


def test_the_same_plan_gives_the_same_document(made: Plan) -> None:
    assert document(made) == document(made)
    assert assets.schema_error("plan", document(made)) is None
    assert not refusal(document(made), document(made))


def test_unknown_values_are_null_and_say_what_will_tell_them() -> None:
    world = World()
    store = MemoryStore(world)
    apply(world, store, [spec("alpha")])
    changed = document(plan(world, store, [spec("alpha", model={"source": "./models/two"})]))
    fields = {(c["address"], f["path"]): f for c in changed["changes"] for f in c["fields"]}
    version = fields["deployment/alpha", "version"]
    assert (version["after"], version["known_after"], version["source"]) == (None, "apply", "worker/alpha.version_id")
    artifact = fields["weights/alpha/default", "artifact"]
    assert (artifact["after"], artifact["known_after"], artifact["source"]) == (None, "build", "model/alpha.artifact")
    assert artifact["replaces"] and artifact["why"] and artifact["avoid"]


def test_an_edited_file_is_refused(made: Plan) -> None:
    saved = copy.deepcopy(document(made))
    saved["changes"][0]["after"]["title"] = "another"
    assert refusal(saved, document(made)).startswith("ES203")


def test_an_edited_file_with_a_new_digest_is_stale(made: Plan) -> None:
    saved = document(made)
    forged = resealed(saved, steps=saved["steps"][:1])
    assert "what there is to do changed" in refusal(forged, saved)


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("project", "other", "it was made for other in local"),
        ("environment", "production", "it was made for shop in production"),
        ("spec_digest", "f" * 64, "the specs or their data changed"),
        ("state", {"lineage": "lineage", "serial": 4}, "the state moved from serial 4 to 0"),
        ("state", {"lineage": "another", "serial": 0}, "the state was replaced by one of another history"),
        ("live", {"worker/alpha": "0" * 16}, "what is live changed: worker/alpha"),
        ("artifacts", {}, "what is in the build cache changed: model/alpha"),
        ("summary", {}, "what there is to do changed"),
    ],
)
def test_why_a_plan_is_stale(made: Plan, field: str, value: Any, why: str) -> None:
    found = refusal(resealed(document(made), **{field: value}), document(made))
    assert found.startswith("ES202") and why in found


def test_it_says_which_live_object_and_which_artifact_changed() -> None:
    world = World()
    store = MemoryStore(world)
    apply(world, store, [spec("alpha")])
    saved = document(plan(world, store, []))
    world.scripts["shop-local-alpha"].public = False
    assert "what is live changed: deployment/alpha" in refusal(saved, document(plan(world, store, [])))
    world.scripts["shop-local-alpha"].public = True
    wanted = [spec("alpha", model={"source": "./models/two"})]
    saved = document(plan(world, store, wanted))
    changed = "what is in the build cache changed: model/alpha"
    saved["artifacts"]["model/alpha"]["key"] = "0" * 64
    assert changed in refusal(resealed(saved), document(plan(world, store, wanted)))


def test_what_was_built_meanwhile_was_agreed_to() -> None:
    """A plan is reviewed on one machine and applied on another, whose build cache is another. `known after build` may
    be known there; what was known must be the same, and with it nothing else may differ."""
    world = World()
    store = MemoryStore(world)
    apply(world, store, [spec("alpha"), spec("beta")])
    cached = dict(world.cache)
    wanted = [spec("alpha", model={"source": "./models/two"}), spec("beta")]
    world.cache.clear()  # a reviewer's, who has built nothing, not even what is deployed
    reviewed = document(plan(world, store, wanted))
    world.cache |= cached
    assert refusal(reviewed, document(plan(world, store, wanted))) == ""
    known = facts(world, wanted[0]).build
    world.cache[str(known.key)] = build(world, known.inputs)
    built = document(plan(world, store, wanted))
    assert built["digest"] != reviewed["digest"] and refusal(reviewed, built) == ""
    assert "what is in the build cache changed: model/alpha" in refusal(built, reviewed)  # it was known by its digest
    another = copy.deepcopy(built)
    another["artifacts"]["model/alpha"]["artifact"] = "0" * 64
    assert "what is in the build cache changed: model/alpha" in refusal(built, resealed(another))
    for edit in (
        lambda d: d["changes"].pop(),
        lambda d: d["changes"][0].update(action="delete"),
        lambda d: d["changes"][0].update(protected=True),
        lambda d: d["steps"].pop(),
        lambda d: d["protections"].update({"worker/alpha": True}),
        lambda d: change_of(d, "weights")["after"].update(bucket="another"),
        lambda d: change_of(d, "weights")["after"].update(more=1),
        lambda d: change_of(d, "weights")["fields"].pop(),
        lambda d: change_of(d, "deployment")["fields"][0].update(source="worker/beta.version_id"),
        lambda d: change_of(d, "model")["fields"][0].update(after="./models/three"),
    ):
        other = copy.deepcopy(built)
        edit(other)
        assert "what there is to do changed" in refusal(reviewed, resealed(other))


def change_of(found: dict[str, Any], kind: str) -> dict[str, Any]:
    (change,) = [c for c in found["changes"] if c["type"] == kind]
    return change


def test_a_plan_is_carried_out_once() -> None:
    world = World()
    store = MemoryStore(world)
    apply(world, store, [spec("alpha")])
    saved = document(plan(world, store, []))
    apply(world, store, [])
    assert "this plan or another was applied" in refusal(saved, document(plan(world, store, [])))


def test_the_request_is_part_of_it_and_comes_back(made: Plan) -> None:
    requests = (
        Request(),
        Request(("b", "a")),
        Request(destroy=True),
        Request(targets=(Address("worker", "alpha"),)),
        Request(excludes=(Address("worker", "alpha"),)),
        Request(refresh_only=True),
        Request(allow_destroy=True),
    )
    documents = [document(replace(made, request=r)) for r in requests]
    assert len({d["digest"] for d in documents}) == len(requests)
    for request, found in zip(requests, documents, strict=True):
        assert assets.schema_error("plan", found) is None
        assert request_of(found) == replace(request, names=tuple(sorted(request.names)))
