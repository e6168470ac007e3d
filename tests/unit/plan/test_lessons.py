"""What other plan/apply tools got wrong, each kind with its own input: the planner's half.

| report                           | what happened there                               | test                     |
|----------------------------------|---------------------------------------------------|--------------------------|
| workers-sdk#14284                | a namespace of that title exists, state has no id | adopts_what_exists       |
| provider#6458, #3311             | `location: enam`, the server says WNAM            | location_is_a_hint       |
| provider#5522, argo-cd#15898     | explicit defaults, empty lists                    | defaults_and_empty_lists |
| workers-sdk#12135, argo-cd#7846  | the same bindings in another order                | order_of_bindings        |
| workers-sdk#13780, argo-cd#21135 | `1h` or `3600`, `1024KiB` or `1MiB`               | units                    |
| terraform#17599                  | the YAML of a protected resource is deleted       | protection_is_in_state   |
| terraform#36403                  | a drift check, nothing changed                    | no_drift                 |
| kargo#3071, atlantis#2084        | the base moved after the plan                     | stale_before_any_effect  |
| terraform#16615, #20718          | killed between the API's 200 and the state write  | killed_after_the_call    |
| alchemy#45, #700                 | a half-made object, and state says `creating`     | half_made                |
| truss#2385                       | the build fails                                   | a_failed_build           |
| skaffold#5063                    | the base model's revision moved                   | the_base_model_moved     |
| kserve#5983                      | traffic shifts to what is not ready               | traffic_comes_last       |
| SQLMesh (stages)                 | the explainer and the evaluator disagree          | explained_as_carried_out |
| octoDNS (--force)                | a third of everything is deleted                  | a_third                  |
| OpenTofu (objchange)             | a planned value is neither configured nor prior   | planned_values           |
| Pulumi, Alchemy (renames)        | a renamed resource is deleted and made again      | a_new_name               |

The applier's half is in tests/property and tests/e2e, the spec's (scalars, `ttl: 10`, duplicate keys) in
tests/cases/spec, secrets' beside the renderers.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest

from edgespec.address import Address
from edgespec.diagnostics import EdgespecError
from edgespec.plan.drift import drift_of
from edgespec.plan.explain import explain
from edgespec.plan.file import check_base, check_same, to_document
from edgespec.plan.model import Action, Plan, Reason, Refreshed, Request
from edgespec.plan.planner import make_plan
from edgespec.plan.safety import check_safe
from edgespec.records import replace
from edgespec.state.model import Key, Status
from edgespec.values import UNKNOWN
from tests.world import ENVIRONMENT, PROJECT, Crash, MemoryStore, World, apply, plan, spec

MEMORY = {"weights": {"tiers": ["memory"]}}


def deployed(*specs: Any) -> tuple[World, MemoryStore]:
    world = World()
    store = MemoryStore(world)
    assert not apply(world, store, specs).diagnostics.has_errors
    return world, store


def changes(made: Plan) -> dict[str, str]:
    return {str(c.key): c.action.value for c in made.changes if c.action is not Action.NOOP}


def seen_as(made: Plan, address: str, **inputs: Any) -> Plan:
    """The plan again, with one object observed otherwise."""
    key = Key(Address.parse(address))
    record = made.refreshed.records[key]
    live = made.refreshed.put(replace(record, inputs={**record.inputs, **inputs}))
    return make_plan(made.desired, made.refreshed, Refreshed(live), spec_digest=made.spec_digest).unwrap()


def test_adopts_what_exists() -> None:
    world = World(namespaces={"found": "shop-local-weights"})
    made = plan(world, MemoryStore(world), [spec("alpha")])
    (change,) = (c for c in made.changes if c.address.type == "kv_namespace")
    assert (change.action, change.reason) == (Action.ADOPT, Reason.EXISTS)
    assert not any(s.id.kind.value == "create" and s.id.key.address.type == "kv_namespace" for s in made.steps)


@pytest.mark.parametrize("said", ["WNAM", "wnam", "ENAM", None])
def test_location_is_a_hint(said: str | None) -> None:
    wanted = spec("alpha", cache=MEMORY, regions={"shards": {"world": {"location": "ENAM"}}})
    world, store = deployed(wanted)
    made = plan(world, store, [wanted])
    assert not changes(made)
    assert not changes(seen_as(made, "r2_bucket/shop-local-enam", location=said))
    assert not changes(seen_as(made, "r2_bucket/shop-local-enam", jurisdiction="DEFAULT"))


def test_defaults_and_empty_lists() -> None:
    world, store = deployed(spec("alpha", cache=MEMORY))
    said = spec(
        "alpha",
        cache={"weights": {"tiers": ["memory"], "memory": "64MiB"}},
        task={"type": "embedding", "normalize": "true", "max_tokens": "128"},
        regions={"default": "default", "shards": {"default": {}}},
    )
    made = plan(world, store, [said])
    assert not changes(made)
    assert not changes(seen_as(made, "worker/alpha", compatibility_flags=None))
    assert not changes(seen_as(made, "deployment/alpha", quality={}))
    assert not changes(seen_as(made, "model/alpha", task={"type": "embedding"}, pipeline=[]))


def test_order_of_bindings() -> None:
    eu = {"jurisdiction": "eu", "match": {"continents": ["EU", "AF"]}}
    wanted = spec("alpha", regions={"default": "world", "shards": {"world": {}, "eu": eu}})
    world, store = deployed(wanted)
    made = plan(world, store, [wanted])
    bindings: Any = made.refreshed.records[Key(Address("worker", "alpha"))].inputs["bindings"]
    for names in (sorted(bindings), sorted(bindings, reverse=True)):
        listed = [{**bindings[n], "name": n} for n in names]
        assert not changes(seen_as(made, "worker/alpha", bindings=listed))
    swapped = spec("alpha", regions={"default": "world", "shards": {"eu": {**eu, "match": {"continents": ["AF", "EU"]}},
                                                                    "world": {}}})  # fmt: skip
    assert not changes(plan(world, store, [swapped]))
    lost = [{**bindings[n], "name": n} for n in sorted(bindings)[1:]]
    (found,) = (c for c in seen_as(made, "worker/alpha", bindings=lost).changes if c.address.type == "worker")
    assert [f.path for f in found.fields] == [f"bindings.{min(bindings)}"]  # and a real difference is named


def test_units() -> None:
    def wanted(chunk: str, ttl: str, cache_ttl: str) -> Any:
        return spec("alpha", cache={"weights": {"kv": {"chunk": chunk, "ttl": ttl, "cache_ttl": cache_ttl}}})

    world, store = deployed(wanted("1MiB", "1d", "1h"))
    for other in (("1024KiB", "24h", "3600"), ("1048576", "86400s", "60m"), ("1048576B", "1440m", "3600s")):
        assert not changes(plan(world, store, [wanted(*other)]))
    assert changes(plan(world, store, [wanted("1MiB", "1d", "61m")]))


def test_protection_is_in_state() -> None:
    world, store = deployed(spec("alpha", lifecycle={"prevent_destroy": True}), spec("beta"))
    for request in (Request(), Request(allow_destroy=True), Request(("alpha",), allow_destroy=True)):
        made = plan(world, store, [spec("beta")], request=request)
        (problem,) = check_safe(made, protected_environment=None)
        assert problem.code == "ES220" and "worker/alpha" in problem.detail
    destroy = plan(world, store, [], request=Request(destroy=True, allow_destroy=True))
    assert check_safe(destroy, protected_environment=None)[0].code == "ES220"
    lifted = plan(world, store, [spec("alpha"), spec("beta")])  # seen and agreed to, though nothing live changes
    assert not lifted.steps and not lifted.is_empty and set(lifted.protections.values()) == {False}
    apply(world, store, [spec("alpha"), spec("beta")])
    assert plan(world, store, [spec("alpha"), spec("beta")]).is_empty
    made = plan(world, store, [spec("beta")], request=Request(allow_destroy=True))
    assert not check_safe(made, protected_environment=None)


def test_no_drift() -> None:
    world, store = deployed(spec("alpha"))
    made = plan(world, store, [spec("alpha")])
    assert made.drift == () and drift_of(store.load(), made.refreshed) == ()
    assert plan(world, store, [], request=Request(refresh_only=True)).is_empty
    changed = plan(world, store, [spec("alpha", quantization={"method": "none"})])
    assert changed.drift == ()  # what the specs want is no drift


def test_stale_before_any_effect() -> None:
    world, store = deployed(spec("alpha"))
    wanted = [spec("alpha", quantization={"method": "none"})]
    saved = to_document(plan(world, store, wanted), project=PROJECT, environment=ENVIRONMENT)
    apply(world, store, [spec("alpha"), spec("beta")])  # a colleague's
    effects = list(world.effects)
    state = store.load()
    with pytest.raises(EdgespecError, match="the state moved"):
        check_base(saved, project=PROJECT, environment=ENVIRONMENT, spec_digest="0" * 64, state=state)
    current = to_document(plan(world, store, wanted), project=PROJECT, environment=ENVIRONMENT)
    with pytest.raises(EdgespecError, match="stale"):
        check_same(saved, current)
    assert world.effects == effects


def test_killed_after_the_call() -> None:
    """Wherever the first apply is killed, what it made is taken up again: nothing is made twice."""
    whole, _ = deployed(spec("alpha", cache=MEMORY))
    for moment in range(whole.ticks):
        world = World(crash_at=moment)
        store = MemoryStore(world)
        with contextlib.suppress(Crash):
            apply(world, store, [spec("alpha", cache=MEMORY)])
        world.crash_at, world.killed = None, False
        made = plan(world, store, [spec("alpha", cache=MEMORY)])
        assert Action.ADOPT.value not in changes(made).values()  # it is ours: no consent is asked
        apply(world, store, [spec("alpha", cache=MEMORY)])
        assert world.snapshot() == whole.snapshot()


def test_half_made() -> None:
    """Some blobs of an upload are there, and the record says `creating`: content counts, not existence."""
    world, store = deployed(spec("alpha", cache=MEMORY))
    (objects,) = world.buckets.values()
    objects.pop(min(objects))
    state = store.load()
    record = state.records[Key(Address("weights", "alpha/default"))]
    store.save(state.put(replace(record, status=Status.CREATING)))
    made = plan(world, store, [spec("alpha", cache=MEMORY)])
    (change,) = (c for c in made.changes if c.action is not Action.NOOP)
    assert (str(change.address), change.action, change.reason) == (
        "weights/alpha/default", Action.UPDATE, Reason.INTERRUPTED,
    )  # fmt: skip
    assert [(f.path, f.before, f.after) for f in change.fields] == [("status", "creating", "ready")]


def test_a_failed_build() -> None:
    world, store = deployed(spec("alpha", cache=MEMORY))
    before = world.snapshot()
    world.fail = {"create model/alpha"}
    moved = [spec("alpha", cache=MEMORY, model={"source": "./models/two"})]
    assert apply(world, store, moved).diagnostics.has_errors
    assert world.snapshot() == before


def test_the_base_model_moved() -> None:
    world, store = deployed(spec("alpha"))
    world.sources["./models/one"] = "f" * 64
    made = plan(world, store, [spec("alpha")])
    (change,) = (c for c in made.changes if c.address.type == "model")
    assert [f.path for f in change.fields] == ["source_digest"]


def test_traffic_comes_last() -> None:
    world, store = deployed(spec("alpha"))
    made = plan(world, store, [spec("alpha", model={"source": "./models/two"})])
    order = [str(s.id) for s in made.steps]
    live = order.index("update:deployment/alpha")
    for earlier in ("create:weights/alpha/default", "update:worker/alpha", "update:model/alpha"):
        assert order.index(earlier) < live
    assert order.index("delete:weights/alpha/default") > live


def test_explained_as_carried_out() -> None:
    world, store = deployed(spec("alpha"))
    made = plan(world, store, [spec("alpha", model={"source": "./models/two"}, cache=MEMORY)])
    explained = explain(made.steps)
    assert [e.step for e in explained] == [s.id for s in made.steps]
    reachable: dict[Any, set[Any]] = {}
    for e, step in zip(explained, made.steps, strict=True):
        reachable[e.step] = {w.step for w in e.waits}.union(*(reachable[w.step] for w in e.waits))
        assert {w.step for w in e.waits} <= step.needs <= reachable[e.step]
        assert all(w.why for w in e.waits)


def test_a_third() -> None:
    names = ("alpha", "beta", "gamma")
    world, store = deployed(*(spec(n, cache=MEMORY) for n in names))  # 13 records
    one = plan(world, store, [spec(n, cache=MEMORY) for n in names[:2]])
    (problem,) = check_safe(one, protected_environment=None)  # 4 of 13
    assert problem.code == "ES222" and "4 of 13 resources (31%)" in problem.detail and "worker/gamma" in problem.detail
    allowed = plan(world, store, [spec(n, cache=MEMORY) for n in names[:2]], request=Request(allow_destroy=True))
    assert not check_safe(allowed, protected_environment=None)
    rebuilt = [spec(n, cache=MEMORY, model={"source": "./models/two"}) for n in names]
    assert not check_safe(plan(world, store, rebuilt), protected_environment=None)  # content is only exchanged
    assert not check_safe(plan(world, store, [], destroy=True), protected_environment=None)  # asked for by name
    assert check_safe(plan(world, store, [], destroy=True), protected_environment="live")[0].code == "ES221"


def test_planned_values() -> None:
    """A planned value is what the specs give, or what is there, or not known yet: nothing is made up."""
    world, store = deployed(spec("alpha"))
    made = plan(world, store, [spec("alpha", model={"source": "./models/two"})])
    for change in made.changes:
        resource = made.desired.resources[change.address]
        for name, value in (change.after or {}).items():
            configured = resource.inputs[name]
            prior = (change.before or {}).get(name)
            assert value in (configured, prior) or value is UNKNOWN or "Ref(" in repr(configured)


def test_a_new_name() -> None:
    world, store = deployed(spec("alpha", cache=MEMORY))
    made = plan(world, store, [spec("omega", cache=MEMORY, lifecycle={"renamed_from": "alpha"})])
    assert changes(made) == {
        "model/omega": "move", "weights/omega/default": "move", "worker/omega": "replace",
        "deployment/omega": "replace",
    }  # fmt: skip
    assert {c.address.name: str(c.moved_from) for c in made.changes if c.address.type == "worker"} == {
        "omega": "worker/alpha"
    }


def test_every_row_has_its_test() -> None:
    rows = re.findall(r"\| (\w+) +\|$", __doc__ or "", re.M)
    assert {f"test_{row}" for row in rows if row != "test"} == {
        name for name in globals() if name.startswith("test_") and name != "test_every_row_has_its_test"
    }
