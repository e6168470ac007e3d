"""Specs to the desired graph of one environment. Pure: what the disk says arrives as facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgespec.address import Address
from edgespec.resources import archive, deployment, kv_namespace, kv_pins, model, r2_bucket, weights, worker
from edgespec.resources.base import DesiredResource, DesiredState, ResourceType
from edgespec.resources.facts import BundleFacts, SpecFacts
from edgespec.spec.models import EdgeModel, Shard

TYPES: Mapping[str, ResourceType] = {
    module.TYPE.name: module.TYPE
    for module in (model, r2_bucket, weights, archive, kv_namespace, kv_pins, worker, deployment)
}


def compile_specs(
    project: str, environment: str, specs: Sequence[EdgeModel], facts: Mapping[str, SpecFacts], bundle: BundleFacts
) -> DesiredState:
    """Every resource that the specs need, shared ones once. `facts` has an entry for each spec's name."""
    found: list[DesiredResource] = [*_shared(project, environment, specs)]
    for spec in specs:
        found += _of_spec(project, environment, spec, facts[spec.name], bundle)
    return DesiredState({r.address: r for r in sorted(found, key=lambda r: r.address)})


def _shared(project: str, environment: str, specs: Sequence[EdgeModel]) -> list[DesiredResource]:
    owners: dict[Address, tuple[Shard, dict[str, None]]] = {}
    kept = frozenset(s.name for s in specs if s.lifecycle.prevent_destroy)
    for spec in specs:
        for shard in spec.regions.shards.values():
            _, names = owners.setdefault(r2_bucket.address(project, environment, shard), (shard, {}))
            names[spec.name] = None
    found = [
        r2_bucket.desired(project, environment, shard, tuple(names), protected=not kept.isdisjoint(names))
        for shard, names in owners.values()
    ]
    cached = tuple(spec.name for spec in specs if "kv" in spec.cache.weights.tiers)
    if cached:
        protected = not kept.isdisjoint(cached)
        found.append(kv_namespace.desired(project, environment, cached, protected=protected))
    return found


def _of_spec(
    project: str, environment: str, spec: EdgeModel, facts: SpecFacts, bundle: BundleFacts
) -> list[DesiredResource]:
    built = model.desired(spec, facts.build)
    buckets = {name: r2_bucket.address(project, environment, s) for name, s in sorted(spec.regions.shards.items())}
    stored = [weights.desired(spec, name, model=built.address, bucket=b) for name, b in buckets.items()]
    namespace = kv_namespace.address(project, environment) if "kv" in spec.cache.weights.tiers else None
    if namespace is not None and spec.cache.weights.kv.pin:
        stored.append(kv_pins.desired(spec, model=built.address, namespace=namespace))
    version = worker.desired(
        spec,
        bundle,
        script=worker.script_name(project, environment, spec),
        model=built.address,
        buckets=buckets,
        namespace=namespace,
        weights=frozenset(r.address for r in stored),
        engine=facts.build.inputs["engine"],
    )
    judged = spec if facts.gated else spec.model_copy(update={"quality": None})
    live = deployment.desired(
        judged, worker=version.address, runs_on=version.needs, quality_digest=facts.quality_digest
    )
    return [built, *stored, version, live]
