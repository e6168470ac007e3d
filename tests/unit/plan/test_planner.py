"""Rules that the golden cases of tests/cases/plan do not show."""

from __future__ import annotations

from edgespec.address import Address
from edgespec.plan.model import Action, Reason
from tests.world import MemoryStore, World, apply, plan, spec

MEMORY = {"weights": {"tiers": ["memory"]}}


def actions(world: World, store: MemoryStore, *specs: object, **options: object) -> dict[str, str]:
    made = plan(world, store, specs, **options)  # type: ignore[arg-type]
    return {str(c.key): c.action.value for c in made.changes if c.action is not Action.NOOP}


def test_a_version_goes_live_only_after_its_weights_are_whole_again() -> None:
    """The Worker between them stays as it is; the deployment changes for a reason of its own."""
    world = World()
    store = MemoryStore(world)
    apply(world, store, [spec("alpha")])
    (objects,) = world.buckets.values()
    objects.pop(min(objects))
    world.scripts["shop-local-alpha"].public = False
    made = plan(world, store, [spec("alpha")])
    assert [str(s.id) for s in made.steps] == ["update:weights/alpha/default", "update:deployment/alpha"]


def test_pins_are_written_before_the_worker_that_they_are_for_goes_live() -> None:
    world = World()
    store = MemoryStore(world)
    apply(world, store, [spec("alpha")])
    gate = {"data": "d.jsonl", "metrics": {"spearman": {"min": 0.5}}}
    made = plan(world, store, [spec("alpha", cache={"weights": {"kv": {"pin": ["model"]}}}, quality=gate)])
    assert [str(s.id) for s in made.steps] == ["create:kv_pins/alpha", "update:deployment/alpha"]


def test_by_name_the_needs_come_along_and_the_others_stay() -> None:
    world = World()
    store = MemoryStore(world)
    found = actions(world, store, spec("alpha"), spec("beta"), only=["beta"])
    assert set(found) == {
        "kv_namespace/shop-local-weights", "model/beta", "r2_bucket/shop-local-auto", "weights/beta/default",
        "worker/beta", "deployment/beta",
    }  # fmt: skip
    apply(world, store, [spec("alpha"), spec("beta")], only=["beta"])
    assert not actions(world, store, spec("alpha"), spec("beta"), only=["beta"])


def test_a_removed_spec_can_be_named() -> None:
    world = World()
    store = MemoryStore(world)
    apply(world, store, [spec("alpha"), spec("beta")])
    assert set(actions(world, store, spec("alpha"), only=["beta"])) == {
        "model/beta", "weights/beta/default", "worker/beta", "deployment/beta",
    }  # fmt: skip
    assert not actions(world, store, spec("alpha"), only=["alpha"])


def test_two_removed_specs_one_after_the_other() -> None:
    """What they shared goes with the last one."""
    world = World()
    store = MemoryStore(world)
    apply(world, store, [spec("alpha"), spec("beta")])
    apply(world, store, [], only=["alpha"])
    assert world.buckets and world.namespaces and list(world.scripts) == ["shop-local-beta"]
    apply(world, store, [], only=["beta"])
    assert not world.buckets and not world.namespaces and not world.scripts and not store.load().records


def test_by_name_nothing_is_taken_from_a_spec_that_has_not_moved_yet() -> None:
    world = World()
    store = MemoryStore(world)
    apply(world, store, [spec("alpha", cache=MEMORY), spec("beta", cache=MEMORY)])
    oc = {"shards": {"world": {"location": "oc"}}}
    moved = [spec("alpha", cache=MEMORY, regions=oc), spec("beta", cache=MEMORY, regions=oc)]
    apply(world, store, moved, only=["alpha"])
    assert ("default", "shop-local-auto") in world.buckets
    assert not actions(world, store, *moved, only=["alpha"])
    beta = store.load().get(Address("worker", "beta"))
    assert beta is not None and Address("weights", "beta/default") in beta.depends_on
    apply(world, store, [], only=["beta"])  # in the order in which it was really made
    assert ("default", "shop-local-auto") not in world.buckets


def test_an_interrupted_delete_that_went_through_is_no_loss() -> None:
    """The bucket of an interrupted destroy is created again: nobody is told that it vanished."""
    world = World()
    store = MemoryStore(world)
    apply(world, store, [spec("alpha", cache=MEMORY)])
    state = store.load()
    text = store.text.replace('"status": "ready"', '"status": "deleting"')
    world.buckets.clear()
    world.scripts.clear()
    store.text = text
    made = plan(world, store, [spec("alpha", cache=MEMORY)])
    reasons = {str(c.key): c.reason for c in made.changes if c.action is Action.CREATE}
    assert state.records and reasons["r2_bucket/shop-local-auto"] is Reason.NEW


def test_what_serves_keeps_its_weights_until_the_traffic_has_moved() -> None:
    """A shard moved, and the run was killed after the new version was uploaded: the Worker's record names the new
    weights by then, and the old version still answers."""
    world = World()
    store = MemoryStore(world)
    apply(world, store, [spec("alpha", cache=MEMORY)])
    moved = [spec("alpha", cache=MEMORY, regions={"shards": {"world": {"location": "oc"}}})]
    world.fail = {"update deployment/alpha"}
    assert apply(world, store, moved).diagnostics.has_errors
    made = plan(world, store, moved)
    assert [str(s.id) for s in made.steps] == [
        "update:deployment/alpha", "delete:weights/alpha/default", "delete:r2_bucket/shop-local-auto",
    ]  # fmt: skip
    assert apply(world, store, moved).diagnostics.has_errors  # still refused: and still everything is there
    assert world.scripts["shop-local-alpha"].live == "version-1"
    world.fail = set()
    assert not apply(world, store, moved).diagnostics.has_errors


def test_a_changed_reading_of_the_location_is_no_change() -> None:
    world = World()
    store = MemoryStore(world)
    apply(world, store, [spec("alpha", cache=MEMORY, regions={"shards": {"world": {"location": "enam"}}})])
    store.text = store.text.replace('"location": "enam"', '"location": "WNAM"')
    assert not actions(world, store, spec("alpha", cache=MEMORY, regions={"shards": {"world": {"location": "enam"}}}))
