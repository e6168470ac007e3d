"""What one run does with one plan. Crashes, and what the next run makes of them, are in tests/property."""

from __future__ import annotations

from typing import Any

import pytest

from edgespec.address import Address
from edgespec.apply.applier import apply as run_steps
from edgespec.apply.applier import check_fresh
from edgespec.diagnostics import EdgespecError
from edgespec.plan.events import Event, Outcome, StepFinished, StepStarted
from edgespec.plan.model import StepKind
from edgespec.providers.base import ProviderError
from edgespec.records import replace
from edgespec.resources.base import DesiredResource, DesiredState, Ref, ReplaceOrder, ResourceType
from edgespec.state.model import Key, Status
from tests.world import MemoryStore, Models, World, apply, plan, providers, spec

MEMORY = {"weights": {"tiers": ["memory"]}}
TWO = {"source": "./models/two"}


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def store(world: World) -> MemoryStore:
    return MemoryStore(world)


def outcomes(result: Any) -> dict[str, str]:
    return {str(s): o.value for s, o in result.outcomes.items()}


def statuses(store: MemoryStore) -> dict[str, str]:
    return {str(k): r.status.value for k, r in store.load().records.items()}


def test_a_failure_skips_what_needs_it_and_nothing_else(world: World, store: MemoryStore) -> None:
    world.fail = {"create weights/alpha/default"}
    events: list[Event] = []
    result = apply(world, store, [spec("alpha"), spec("beta")], events=events)
    assert {s: o for s, o in outcomes(result).items() if o != "done"} == {
        "create:weights/alpha/default": "failed",
        "create:worker/alpha": "skipped",
        "create:deployment/alpha": "skipped",
    }
    assert [d.address for d in result.diagnostics] == ["weights/alpha/default"]
    finished = {str(e.step): e for e in events if isinstance(e, StepFinished)}
    assert finished.keys() == outcomes(result).keys()
    assert [d.code for d in finished["create:weights/alpha/default"].diagnostics] == ["ES401"]
    started = {str(e.step) for e in events if isinstance(e, StepStarted)}
    assert "create:worker/alpha" not in started
    world.fail = set()
    assert set(outcomes(apply(world, store, [spec("alpha"), spec("beta")])).values()) == {"done"}


def test_nothing_done_takes_the_intent_back(world: World, store: MemoryStore) -> None:
    world.fail = {"create weights/alpha/default"}
    apply(world, store, [spec("alpha")])
    assert "weights/alpha/default" not in statuses(store)


def test_without_that_certainty_the_intent_stays(world: World, store: MemoryStore, monkeypatch: Any) -> None:
    def lost(self: Models, address: Address, *rest: object) -> Any:
        raise ProviderError(address, "Lost", "The connection broke.")

    monkeypatch.setattr(Models, "create", lost)
    apply(world, store, [spec("alpha")])
    assert statuses(store)["model/alpha"] == "creating"


def test_nothing_done_puts_back_what_was_pushed_aside(world: World, store: MemoryStore) -> None:
    apply(world, store, [spec("alpha", cache=MEMORY)])
    before = store.load().records
    world.fail = {"create weights/alpha/default"}
    result = apply(world, store, [spec("alpha", cache=MEMORY, model=TWO)])
    assert outcomes(result)["delete:weights/alpha/default"] == "skipped"
    after = store.load().records
    assert after.keys() == before.keys()
    weights = Key(Address("weights", "alpha/default"))
    assert after[weights] == before[weights]


def test_an_update_that_did_nothing_leaves_the_record(world: World, store: MemoryStore) -> None:
    apply(world, store, [spec("alpha", cache=MEMORY)])
    world.fail = {"update deployment/alpha"}
    gate = {"data": "d.jsonl", "metrics": {"spearman": {"min": 0.9}}}
    result = apply(world, store, [spec("alpha", cache=MEMORY, quality=gate)])
    assert outcomes(result) == {"update:deployment/alpha": "failed"}
    record = store.load().get(Address("deployment", "alpha"))
    assert record is not None and record.status is Status.READY and record.inputs["quality"] is None


def test_a_rebuild_to_the_same_bytes_replaces_nothing(world: World, store: MemoryStore) -> None:
    apply(world, store, [spec("alpha")])
    world.tools = "2.0"
    world.effects.clear()
    assert outcomes(apply(world, store, [spec("alpha")])) == {
        "update:model/alpha": "done",
        "create:weights/alpha/default": "unchanged",
        "create:archive/alpha/default": "done",
        "update:worker/alpha": "unchanged",
        "update:deployment/alpha": "unchanged",
        "delete:weights/alpha/default": "unchanged",
    }
    assert world.effects == ["build model/alpha"]
    assert plan(world, store, [spec("alpha")]).is_empty


def test_a_rebuild_to_the_same_bytes_repairs_what_is_not_whole(world: World, store: MemoryStore) -> None:
    """The plan replaces the weights, since it cannot know the artifact; the old ones are it, and lack an object."""
    apply(world, store, [spec("alpha", cache=MEMORY)])
    (objects,) = world.buckets.values()
    whole = dict(objects)
    objects.pop(min(objects))
    world.broken = {"shop-local-alpha"}
    world.tools = "2.0"
    result = apply(world, store, [spec("alpha", cache=MEMORY)])
    assert outcomes(result)["create:weights/alpha/default"] == "done"
    assert outcomes(result)["delete:weights/alpha/default"] == "unchanged"
    assert objects == whole and not world.broken


def test_adoption(world: World, store: MemoryStore) -> None:
    apply(world, store, [spec("alpha")])
    ids = dict(world.namespaces)
    store.text = ""
    world.effects.clear()
    result = apply(world, store, [spec("alpha")])
    assert {s for s, o in outcomes(result).items() if s.startswith("adopt")} == {
        "adopt:kv_namespace/shop-local-weights", "adopt:r2_bucket/shop-local-auto", "adopt:worker/alpha",
    }  # fmt: skip
    assert world.namespaces == ids and not [e for e in world.effects if e.startswith(("create", "upload"))]
    assert plan(world, store, [spec("alpha")]).is_empty


def test_what_was_to_be_adopted_has_gone(world: World, store: MemoryStore) -> None:
    world.namespaces["other"] = "shop-local-weights"
    made = plan(world, store, [spec("alpha")])
    world.namespaces.clear()
    result = run_steps(made, store.load(), providers(world), store, lambda _: None)
    assert not result.diagnostics.has_errors and list(world.namespaces.values()) == ["shop-local-weights"]


def test_what_only_a_build_can_tell_is_in_state_afterwards(world: World, store: MemoryStore) -> None:
    world.absent = {"./models/one"}
    result = apply(world, store, [spec("alpha", cache=MEMORY)])
    assert not result.diagnostics.has_errors
    record = store.load().get(Address("model", "alpha"))
    assert record is not None and isinstance(record.inputs["source_digest"], str)
    assert plan(world, store, [spec("alpha", cache=MEMORY)]).is_empty


def test_a_stale_plan_is_refused_before_any_effect(world: World, store: MemoryStore) -> None:
    made = plan(world, store, [spec("alpha")])
    apply(world, store, [spec("beta")])
    world.effects.clear()
    text = store.text
    with pytest.raises(EdgespecError) as caught:
        run_steps(made, store.load(), providers(world), store, lambda _: None)
    assert [d.code for d in caught.value.diagnostics] == ["ES302"]
    assert not world.effects and store.text == text
    check_fresh(made, made.refreshed)
    with pytest.raises(EdgespecError):
        check_fresh(made, replace(made.refreshed, lineage="another"))


def test_an_empty_plan_writes_nothing(world: World, store: MemoryStore) -> None:
    apply(world, store, [spec("alpha")])
    text = store.text
    apply(world, store, [spec("alpha")])
    assert store.text == text


def test_an_object_that_is_whole_by_now_is_ready_without_a_step(world: World, store: MemoryStore) -> None:
    apply(world, store, [spec("alpha", cache=MEMORY)])
    store.text = store.text.replace('"r2_bucket/shop-local-auto", "deposed": "", "status": "ready"',
                                    '"r2_bucket/shop-local-auto", "deposed": "", "status": "creating"')  # fmt: skip
    assert statuses(store)["r2_bucket/shop-local-auto"] == "creating"
    assert not apply(world, store, [spec("alpha", cache=MEMORY)]).outcomes
    assert statuses(store)["r2_bucket/shop-local-auto"] == "ready"


def test_intents_are_written_before_calls(world: World, store: MemoryStore, monkeypatch: Any) -> None:
    seen: list[str] = []
    effect = World.effect

    def watch(self: World, what: str) -> None:
        seen.append(statuses(store)[what.split()[1]])
        effect(self, what)

    monkeypatch.setattr(World, "effect", watch)
    apply(world, store, [spec("alpha", cache=MEMORY)])
    apply(world, store, [spec("alpha", cache=MEMORY, quality={"data": "d", "metrics": {"spearman": {"min": 0}}})])
    apply(world, store, [], destroy=True)
    assert set(seen) == {"creating", "deleting"}


def test_the_order_of_a_delete_first_replacement(world: World, store: MemoryStore) -> None:
    """No type of today is replaced so; the applier must be able to."""
    from edgespec.plan.model import Refreshed
    from edgespec.plan.planner import make_plan

    done: list[str] = []

    class Provider(Models):
        def create(self, address: Address, inputs: Any, progress: Any, nonce: str = "") -> Any:
            done.append(f"create {inputs['x']}")
            return {"id": inputs["x"]}

        def delete(self, record: Any, others: Any) -> None:
            done.append(f"delete {record.inputs['x']}")

    type_ = ResourceType("thing", replace_on=frozenset({"x"}), replace_order=ReplaceOrder.DELETE_FIRST)
    a, b = Address("thing", "a"), Address("thing", "b")
    for x in ("1", "2"):
        resources = {
            a: DesiredResource(a, type_, {"x": x}, ()),
            b: DesiredResource(b, type_, {"x": Ref(a, "id")}, ()),
        }
        state = store.load()
        made = make_plan(DesiredState(resources), state, Refreshed(state), spec_digest="0" * 64).unwrap()
        run_steps(made, state, {"thing": Provider(world)}, store, lambda _: None)
    assert done == ["create 1", "create 1", "delete 1", "delete 1", "create 2", "create 2"]
    assert {s.id.kind for s in made.steps} == {StepKind.DELETE, StepKind.CREATE}


def test_counts(world: World, store: MemoryStore) -> None:
    result = apply(world, store, [spec("alpha", cache=MEMORY)])
    assert result.count(Outcome.DONE) == 5 and result.count(Outcome.FAILED, Outcome.SKIPPED) == 0
