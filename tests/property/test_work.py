"""What a plan says that it takes, against what an apply really does."""

from __future__ import annotations

from hypothesis import given, settings

from edgespec.plan.explain import explain
from edgespec.plan.model import Action
from edgespec.plan.work import Work, total, work_of
from edgespec.spec.models import EdgeModel
from tests.property.strategies import specs
from tests.world import MemoryStore, World, apply, build, facts, plan, spec


def done(world: World, before: int, what: str) -> int:
    return sum(e.startswith(what + " ") for e in world.effects[before:])


@settings(max_examples=60, deadline=None)
@given(specs(), specs())
def test_what_is_planned_is_at_least_what_is_done(one: tuple[EdgeModel, ...], other: tuple[EdgeModel, ...]) -> None:
    world = World()
    store = MemoryStore(world)
    apply(world, store, one)
    for wanted in other:  # every artifact is in the cache: nothing is left to be known
        known = facts(world, wanted).build
        world.cache[str(known.key)] = build(world, known.inputs)
    made = plan(world, store, other)
    work, before = total(made), len(world.effects)
    assert work.upload is not None and work.r2_writes is not None and work.kv_writes is not None
    assert not work.stages
    apply(world, store, other)
    assert work.r2_writes >= done(world, before, "put")
    assert work.kv_writes >= done(world, before, "pin")
    assert work.r2_deletes >= done(world, before, "remove")
    assert work.kv_deletes >= done(world, before, "unpin")
    assert bool(work.r2_writes) >= bool(done(world, before, "put"))
    if not one:  # nothing has to be looked at to know what is missing
        assert work.r2_writes == done(world, before, "put")
        assert work.kv_writes == done(world, before, "pin")


def test_only_what_is_missing_is_counted() -> None:
    """Another head over the same base: the tokenizer's chunks stay where they are."""
    world = World(keep=0)
    store = MemoryStore(world)
    apply(world, store, [spec("alpha", cache={"weights": {"kv": {"pin": ["model", "tokenizer"]}}})])
    wanted = spec("alpha", quantization={"method": "none"}, cache={"weights": {"kv": {"pin": ["model", "tokenizer"]}}})
    known = facts(world, wanted).build
    manifest = world.cache[str(known.key)] = build(world, known.inputs)
    made = plan(world, store, [wanted])
    found = {str(k): w for k, w in work_of(made).items()}
    size = len(manifest.encode())
    assert found["weights/alpha/default"] == Work(upload=20 + size, r2_writes=3, r2_deletes=3)
    assert found["kv_pins/alpha"] == Work(upload=40, kv_writes=4, kv_deletes=2)
    assert found["model/alpha"] == Work()
    assert found["worker/alpha"].upload == 1000 + size
    before = len(world.effects)
    apply(world, store, [wanted])
    assert [done(world, before, w) for w in ("put", "pin", "remove", "unpin")] == [3, 4, 3, 2]


def test_what_another_takes_over_is_neither_deleted_nor_sent_again() -> None:
    """Models over the same base have their tokenizer in common: it stays when one goes and another comes."""
    world = World(keep=0)
    store = MemoryStore(world)
    pinned = {"weights": {"kv": {"pin": ["tokenizer"]}}}
    apply(world, store, [spec("alpha", cache=pinned)])
    wanted = spec("beta", quantization={"method": "none"}, cache=pinned)
    known = facts(world, wanted).build
    world.cache[str(known.key)] = build(world, known.inputs)
    made = plan(world, store, [wanted])
    order = [str(s.id) for s in made.steps]
    for kind in ("kv_pins/{}", "weights/{}/default"):
        assert order.index("create:" + kind.format("beta")) < order.index("delete:" + kind.format("alpha"))
    waits = {str(e.step): {str(w.step): w.why for w in e.waits} for e in explain(made.steps)}
    assert waits["delete:kv_pins/alpha"]["create:kv_pins/beta"] == "what both have is to stay"
    work, before = total(made), len(world.effects)
    assert (work.r2_writes, work.r2_deletes, work.kv_writes, work.kv_deletes) == (3, 3, 2, 0)
    apply(world, store, [wanted])
    assert [done(world, before, w) for w in ("put", "remove", "pin", "unpin")] == [3, 3, 2, 0]


def test_what_is_kept_is_neither_deleted_nor_sent_again() -> None:
    world = World(keep=1)
    store = MemoryStore(world)
    versions = [spec("alpha", quantization={"method": m}) for m in ("int8", "none", "fp16")]
    for wanted in versions:
        known = facts(world, wanted).build
        world.cache[str(known.key)] = build(world, known.inputs)
    apply(world, store, versions[:1])
    found = {str(k): w for k, w in work_of(plan(world, store, versions[1:2])).items()}
    assert (found["weights/alpha/default"].r2_deletes, found["archive/alpha/default"]) == (0, Work())
    apply(world, store, versions[1:2])
    back = {str(k): w for k, w in work_of(plan(world, store, versions[:1])).items()}
    assert back["weights/alpha/default"] == Work()  # it is all there
    third = {str(k): w for k, w in work_of(plan(world, store, versions[2:])).items()}
    assert (third["weights/alpha/default"].r2_deletes, third["archive/alpha/default"].r2_deletes) == (0, 3)
    before = len(world.effects)
    apply(world, store, versions[2:])
    assert [done(world, before, w) for w in ("put", "remove")] == [3, 3]


def test_before_a_build_it_is_not_known() -> None:
    world = World()
    made = plan(world, MemoryStore(world), [spec("alpha")])
    assert total(made).upload is None and total(made).r2_writes is None
    assert total(made).stages == ("fetch", "export", "quantize", "pack")
    assert {c.action for c in made.changes} == {Action.CREATE}
