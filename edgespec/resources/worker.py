"""One version of a Worker: the runtime's code, its configuration and its bindings. Versions never change; an update
uploads another one. Which version serves whom is the deployment's business."""

from __future__ import annotations

from typing import Any

from edgespec.address import Address
from edgespec.resources.base import DesiredResource, Fixed, Ref, ReplaceOrder, ResourceType
from edgespec.resources.canonical import CODES, DURATION, JURISDICTION, SET, SIZE, Rule, by_name
from edgespec.resources.facts import BundleFacts
from edgespec.spec.models import EdgeModel, TextClassification
from edgespec.values import Inputs, Outputs, Value

CONFIG_FORMAT = "edgespec.worker-config/v1"
KV_BINDING = "WEIGHTS_KV"
REQUEST_LIMITS = {"texts": 32, "text_bytes": 32 * 1024, "body_bytes": 1024 * 1024}


def _known(inputs: Inputs) -> Outputs:
    return {"script": inputs["script"]}


_SHARD = Rule({"continents": CODES, "countries": CODES})
_CONFIG = Rule(
    {
        "shards": Rule(each=_SHARD),
        "cache": Rule(
            {"weights": Rule({"memory": SIZE, "kv": Rule({"ttl": DURATION, "cache_ttl": DURATION})})},
        ),
        "limits": Rule({"text_bytes": SIZE, "body_bytes": SIZE}),
    }
)


def _bindings(value: Value) -> Value:
    """Bindings by name; the API answers with a list in an order of its own, and without the default jurisdiction."""
    value = by_name(value)
    if not isinstance(value, dict):
        return value
    return {name: _binding(b) if isinstance(b, dict) else b for name, b in value.items()}


def _binding(binding: dict[str, Value]) -> dict[str, Value]:
    if binding.get("type") != "r2_bucket":
        return binding
    said = binding.get("jurisdiction")
    return {**binding, "jurisdiction": JURISDICTION.default if said is None else JURISDICTION.normal(said)}


TYPE = ResourceType(
    "worker",
    replace_on={
        "script": Fixed(
            "a Worker cannot be renamed: its name is its address",
            "keep the names of the spec, the project and the environment",
        )
    },
    replace_order=ReplaceOrder.CREATE_FIRST,
    stable_outputs=frozenset({"script"}),
    known_outputs=_known,
    opaque=frozenset({"manifest"}),
    shape={"compatibility_flags": SET, "config": _CONFIG, "bindings": Rule(normal=_bindings)},
)


def script_name(project: str, environment: str, spec: EdgeModel) -> str:
    return f"{project}-{environment}-{spec.name}"


def address(spec: EdgeModel) -> Address:
    return Address(TYPE.name, spec.name)


def bucket_binding(shard: str) -> str:
    return f"WEIGHTS_{shard.upper().replace('-', '_')}"


def desired(
    spec: EdgeModel,
    bundle: BundleFacts,
    *,
    script: str,
    model: Address,
    buckets: dict[str, Address],
    namespace: Address | None,
    weights: frozenset[Address],
    engine: Value,
) -> DesiredResource:
    """`buckets` maps each shard to its bucket; `weights` must be in place before a version may run; `engine` is the
    model's as far as it is known."""
    bindings: dict[str, Any] = {
        bucket_binding(shard): {
            "type": "r2_bucket",
            "bucket_name": Ref(bucket, "name"),
            "jurisdiction": Ref(bucket, "jurisdiction"),
        }
        for shard, bucket in buckets.items()
    }
    if namespace is not None:
        bindings[KV_BINDING] = {"type": "kv_namespace", "namespace_id": Ref(namespace, "id")}
    inputs = {
        "script": script,
        "bundle": bundle.digest,
        "compatibility_date": bundle.compatibility_date,
        "compatibility_flags": sorted(bundle.compatibility_flags),
        "engine": Ref(model, "engine"),
        "config": _config(spec),
        "artifact": Ref(model, "artifact"),
        "manifest": Ref(model, "manifest"),
        "bindings": bindings,
    }
    return DesiredResource(
        address(spec),
        TYPE,
        inputs,
        (spec.name,),
        depends_on=weights,
        protected=spec.lifecycle.prevent_destroy,
        payload=bundle.sizes.get(str(engine)),
    )


def _config(spec: EdgeModel) -> dict[str, Any]:
    """The part of the Worker's configuration that does not depend on the build."""
    weights = spec.cache.weights
    kv = {"binding": KV_BINDING, "ttl": weights.kv.ttl, "cache_ttl": weights.kv.cache_ttl}
    return {
        "name": spec.name,
        "default_shard": spec.regions.default_shard,
        "shards": {
            name: {
                "bucket": bucket_binding(name),
                "continents": sorted(shard.match.continents) if shard.match else [],
                "countries": sorted(shard.match.countries) if shard.match else [],
            }
            for name, shard in sorted(spec.regions.shards.items())
        },
        "cache": {
            "weights": {
                "memory": weights.memory if "memory" in weights.tiers else 0,
                "kv": kv if "kv" in weights.tiers else None,
            }
        },
        "limits": dict(REQUEST_LIMITS),
        **_display(spec),
    }


def _display(spec: EdgeModel) -> dict[str, Any]:
    """What people are shown for labels: the Worker's business alone, so that a word changed rebuilds nothing."""
    task = spec.task
    shown = task.display if isinstance(task, TextClassification) else {}
    return {"display": dict(sorted(shown.items()))} if shown else {}


def module(inputs: Inputs) -> dict[str, Any]:
    """The Worker's `config.json` from resolved inputs: every shard serves the one artifact (docs/worker-runtime.md)."""
    config: Any = inputs["config"]
    shards = {name: {**shard, "artifact": inputs["artifact"]} for name, shard in config["shards"].items()}
    return {
        "format": CONFIG_FORMAT,
        **config,
        "shards": shards,
        "artifacts": {str(inputs["artifact"]): inputs["manifest"]},
    }
