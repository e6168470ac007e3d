"""What is kept of what served: found in state alone, and nothing that never served."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from edgespec.address import Address
from edgespec.plan.archives import with_archives
from edgespec.plan.model import Action, Request
from edgespec.providers.cloudflare.archive import kept
from edgespec.records import replace
from edgespec.resources.compile import compile_specs
from edgespec.spec.models import EdgeModel
from edgespec.state.model import Key, ResourceRecord, Status
from tests.world import BUNDLE, ENVIRONMENT, PROJECT, MemoryStore, World, apply, facts, plan, spec

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


# --- what an interrupted run has left ---------------------------------------------------------------------------------

WEIGHTS = Address("weights", "alpha/default")


class Left:
    """A state as one that was interrupted, and what a plan keeps of it. Artifacts go by letters."""

    def __init__(self) -> None:
        self.shop = Shop(keep=5)
        self.shop.apply(version("int8"))
        self.state = self.shop.store.load()

    def record(self, address: Address) -> ResourceRecord:
        return self.state.records[Key(address)]

    def weights(self, letter: str, deposed: str = "", name: str = "alpha/default") -> None:
        """Weights of an artifact of that letter, the current ones or pushed aside."""
        found = self.record(WEIGHTS)
        address = Address(WEIGHTS.type, name)
        made = replace(found, address=address, inputs={**found.inputs, "artifact": letter * 64})
        self.state = self.state.put(made, deposed)

    def edit(self, address: Address, *, name: str = "", deposed: str = "", **inputs: Any) -> None:
        """Another record like that of `address`."""
        found = self.record(address)
        made = replace(found, address=Address(address.type, name or address.name), inputs={**found.inputs, **inputs})
        self.state = self.state.put(made, deposed)

    def without(self, *addresses: Address) -> None:
        kept = {k: r for k, r in self.state.records.items() if k.address not in addresses}
        self.state = replace(self.state, records=kept)

    def kept(self, wanted: EdgeModel) -> list[str]:
        """The letters of what the archive of its weights is to have, newest first."""
        known = {wanted.name: facts(self.shop.world, wanted)}
        desired = with_archives(compile_specs(PROJECT, ENVIRONMENT, [wanted], known, BUNDLE), self.state, 5)
        made = desired.resources.get(Address("archive", f"{wanted.name}/default"))
        artifacts: Any = made.inputs["artifacts"] if made is not None else []
        return [artifact[0] for artifact in artifacts]


WORKER, DEPLOYMENT = Address("worker", "alpha"), Address("deployment", "alpha")


@pytest.mark.parametrize(("serves", "kept"), [("v2", ["b", "a"]), ("v1", ["a"])])
def test_newer_weights_have_served_once_the_newest_version_has_the_traffic(serves: str, kept: list[str]) -> None:
    """The older ones are there still: their removal was interrupted."""
    left = Left()
    left.weights("a", "1")
    left.weights("b")
    worker = left.record(WORKER)
    left.state = left.state.put(replace(worker, outputs={**worker.outputs, "version_id": "v2"}))
    left.edit(DEPLOYMENT, version=serves)
    assert left.kept(version("none")) == kept


def test_what_was_pushed_aside_is_told_in_the_order_in_which_it_was() -> None:
    left = Left()
    for letter, deposed in (("b", "10"), ("a", "9")):
        left.weights(letter, deposed)
    left.weights("c")
    left.edit(DEPLOYMENT, version=left.record(WORKER).outputs["version_id"])
    assert left.kept(version("none")) == ["c", "b", "a"]


def test_what_the_cache_knows_of_the_next_artifact_counts_more_than_a_record_in_between() -> None:
    left = Left()
    model = left.record(Address("model", "alpha"))
    left.state = left.state.put(replace(model, status=Status.UPDATING))
    assert left.kept(version("int8")) == []
    left.shop.world.cache.clear()  # nobody can say that it will be the same
    assert len(left.kept(version("int8"))) == 1


def test_weights_of_before_there_were_jurisdictions_are_of_the_same_bucket() -> None:
    left = Left()
    found = left.record(WEIGHTS)
    left.state = left.state.put(replace(found, inputs={k: v for k, v in found.inputs.items() if k != "jurisdiction"}))
    assert len(left.kept(version("none"))) == 1


class Moved(Left):
    """Renamed to omega, and interrupted before the deployment: its weights are under the new name, and what answers is
    under the old one."""

    def __init__(self) -> None:
        super().__init__()
        self.weights("a", name="omega/default")
        self.without(WEIGHTS)
        self.edit(WORKER, artifact="a" * 64)

    def kept(self, wanted: EdgeModel | None = None) -> list[str]:
        return super().kept(wanted or replace_name(version("none")))


def test_what_a_worker_of_an_older_name_serves_is_kept() -> None:
    assert Moved().kept() == ["a"]
    begun = Moved()
    begun.edit(DEPLOYMENT, name="omega")
    made = begun.record(Address("deployment", "omega"))
    begun.state = begun.state.put(replace(made, status=Status.CREATING))
    assert begun.kept() == ["a"]


def test_what_none_serves_is_not() -> None:
    other = Moved()
    other.edit(WORKER, artifact="b" * 64)
    assert other.kept() == []
    other.edit(Address("model", "alpha"), name="beta", artifact="a" * 64)  # no Worker
    assert other.kept() == []
    own = Moved()
    own.edit(WORKER, name="omega")
    own.without(WORKER)  # only the new name's Worker has it, and nothing deploys that
    assert own.kept() == []
    pushed = Moved()
    pushed.edit(WORKER, deposed="1")
    pushed.edit(WORKER, artifact="b" * 64)
    assert pushed.kept() == []
    idle = Moved()
    idle.without(DEPLOYMENT)
    assert idle.kept() == []
