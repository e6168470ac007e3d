"""What is kept of what served: found in state alone, and nothing that never served."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgespec.address import Address
from edgespec.plan.model import Action, Request
from edgespec.providers.cloudflare.archive import kept
from edgespec.records import replace
from edgespec.spec.models import EdgeModel
from edgespec.state.model import Key
from tests.world import MemoryStore, World, apply, plan, spec

EU = {"jurisdiction": "eu", "match": {"continents": ["EU"]}}
TWO = {"default": "world", "shards": {"world": {"location": "wnam"}, "eu": EU}}


def version(method: str, **fields: Any) -> EdgeModel:
    return spec("alpha", quantization={"method": method}, cache={"weights": {"tiers": ["memory"]}}, **fields)


class Shop:
    def __init__(self, keep: int = 2) -> None:
        self.world = World(keep=keep)
        self.store = MemoryStore(self.world)

    def apply(self, *specs: EdgeModel, fails: str = "") -> str:
        """The artifact of alpha afterwards."""
        self.world.fail = {fails} if fails else set()
        result = apply(self.world, self.store, specs)
        assert result.diagnostics.has_errors == bool(fails)
        self.world.fail = set()
        record = self.store.load().get(Address("model", "alpha"))
        assert record is not None
        return str(record.outputs["artifact"])

    def kept(self, shard: str = "default") -> Sequence[str]:
        record = self.store.load().get(Address("archive", f"alpha/{shard}"))
        return () if record is None else record.inputs["artifacts"]  # type: ignore[return-value]

    def actions(self, *specs: EdgeModel) -> dict[str, str]:
        made = plan(self.world, self.store, specs)
        return {str(c.key): c.action.value for c in made.changes if c.action is not Action.NOOP}


def test_the_newest_stay() -> None:
    shop = Shop()
    one, two, three = (shop.apply(version(m)) for m in ("int8", "none", "fp16"))
    assert shop.kept() == [two, one]
    four = shop.apply(version("int4"))
    assert shop.kept() == [three, two]
    assert shop.apply(version("none")) == two
    assert shop.kept() == [four, three]


def test_the_list_is_the_same_whether_what_comes_back_is_known_or_built() -> None:
    """A plan that is reviewed where nothing is cached is carried out where all is."""
    lists = []
    for forget in (False, True):
        shop = Shop(keep=3)
        one, two = shop.apply(version("int8")), shop.apply(version("none"))
        if forget:
            shop.world.cache.clear()
        planned = plan(shop.world, shop.store, [version("int8")])
        lists.append([c.after for c in planned.changes if c.address.type == "archive"])
        assert shop.apply(version("int8")) == one
        assert shop.kept() == [two, one] and shop.actions(version("int8")) == {}
    assert lists[0] == lists[1]


def test_what_never_passed_its_gate_is_not_kept() -> None:
    shop = Shop()
    one = shop.apply(version("int8"))
    bad = shop.apply(version("none"), fails="update deployment/alpha")
    assert shop.kept() == [one]  # it serves until something else does
    good = shop.apply(version("fp16"))
    assert shop.kept() == [one]
    assert bad not in shop.kept() and good not in shop.kept()
    assert shop.actions(version("fp16")) == {}


def test_a_first_version_that_never_served_is_not_kept() -> None:
    shop = Shop()
    shop.apply(version("int8"), fails="create deployment/alpha")
    shop.apply(version("none"))
    assert shop.kept() == ()


def test_a_version_that_only_the_worker_changed_in_is_no_other_artifact() -> None:
    shop = Shop()
    shop.apply(version("int8"))
    shop.apply(
        spec("alpha", quantization={"method": "int8"}, cache={"weights": {"tiers": ["memory"], "memory": "1MiB"}})
    )
    assert shop.kept() == ()


def test_back_to_what_served_after_a_failure() -> None:
    shop = Shop()
    one = shop.apply(version("int8"))
    shop.apply(version("none"), fails="update deployment/alpha")
    assert shop.apply(version("int8")) == one
    assert shop.kept() == [one]  # it was to be pushed aside, and is what serves
    assert shop.actions(version("int8")) == {}


def test_each_shard_keeps_what_its_bucket_has() -> None:
    shop = Shop()
    one = shop.apply(version("int8", regions=TWO))
    assert shop.kept("eu") == ()
    two = shop.apply(version("none", regions=TWO))
    assert (shop.kept("world"), shop.kept("eu")) == ([one], [one])
    moved = {"shards": {"world": {"location": "enam"}}}
    shop.apply(version("none", regions=moved))  # another bucket has nothing of before
    assert (shop.kept("world"), shop.kept("eu")) == ((), ())
    shop.apply(version("fp16", regions=moved))
    assert shop.kept("world") == [two]


def test_a_shard_that_waits_for_the_traffic_has_served_nothing() -> None:
    """Its weights are those of the model as it is, since the model was left out; the deployment was, with it."""
    shop = Shop()
    shop.apply(version("int8", regions=TWO))
    one_place = version("none", regions={"shards": {"default": {}}})
    part = Request(excludes=(Address("model", "alpha"),))
    assert not apply(shop.world, shop.store, [one_place], request=part).diagnostics.has_errors
    assert plan(shop.world, shop.store, [one_place], request=part).is_empty
    assert shop.kept() == ()


def test_a_spec_that_goes_takes_what_was_kept_along() -> None:
    shop = Shop()
    shop.apply(version("int8"))
    shop.apply(version("none"))
    result = apply(shop.world, shop.store, [])
    assert not result.diagnostics.has_errors
    assert not shop.store.load().records and not shop.world.buckets


def test_what_another_name_is_archived_under_follows_a_rename() -> None:
    shop = Shop()
    one = shop.apply(version("int8"))
    two = shop.apply(version("none"))
    named = replace_name(version("fp16", lifecycle={"renamed_from": "alpha"}))
    assert not apply(shop.world, shop.store, [named]).diagnostics.has_errors
    record = shop.store.load().records[Key(Address("archive", "omega/default"))]
    assert record.inputs["artifacts"] == [two, one]


def replace_name(found: EdgeModel) -> EdgeModel:
    return found.model_copy(update={"metadata": found.metadata.model_copy(update={"name": "omega"})})


def test_what_is_remembered_of_its_time() -> None:
    shop = Shop()
    shop.apply(version("int8"))
    state = shop.store.load()
    live = state.records[Key(Address("deployment", "alpha"))]
    measured = replace(live, outputs={**live.outputs, "metrics": {"accuracy": 0.9}, "teacher": {"accuracy": 0.95}})
    shop.store.save(state.put(measured))
    shop.apply(version("none"))
    record = shop.store.load().records[Key(Address("archive", "alpha/default"))]
    [told] = record.inputs["served"].values()  # type: ignore[union-attr]
    assert told["metrics"] == {"accuracy": 0.9} and told["teacher"] == {"accuracy": 0.95}  # type: ignore[index,call-overload]
    assert told["version"] == live.inputs["version"]  # type: ignore[index,call-overload]


def test_what_a_bucket_has_of_an_archive() -> None:
    def blob(name: str) -> dict[str, Any]:
        return {"sha256": name, "size": 1}

    inputs: dict[str, Any] = {
        "artifacts": ["x", "y"],
        "served": {"x": {"blobs": [blob("1"), blob("2")]}, "y": {"blobs": [blob("2"), blob("3")]}},
        "blobs": [blob("1"), blob("2"), blob("3")],
    }
    assert kept(inputs, {}) is None
    whole = kept(inputs, {"1": 1, "2": 1, "3": 1, "4": 9})
    assert whole is not None and whole.inputs == inputs and whole.complete
    part = kept(inputs, {"1": 1, "2": 1, "3": 9})
    assert part is not None
    assert (part.inputs["artifacts"], part.inputs["lost"]) == (["x"], ["y"])
    assert part.inputs["blobs"] == inputs["blobs"]  # what is left of it is deleted with the record
    again = kept(part.inputs, {"1": 1})
    assert again is not None and (again.inputs["artifacts"], again.inputs["lost"]) == ([], ["y", "x"])
