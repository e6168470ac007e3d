"""A Worker's configuration back to the spec that it was made from, as far as it tells.

Where the weights came from and how they were trained is in the artifact's provenance statement alone: without one,
`model.source` stays for a person to fill in. Quality gates, budgets and lifecycle rules are not live at all."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from edgespec.artifact import Manifest
from edgespec.resources.kv_pins import FILES
from edgespec.resources.worker import CONFIG_FORMAT
from edgespec.spec.models import API_VERSION, KvTier, Model, WorkerOptions
from edgespec.spec.pipeline import Quantization

UNKNOWN_SOURCE: Final = "fill-in"
"""Not a source: validation names the place until a person has filled it in."""
_JURISDICTIONS: Final = frozenset({"eu", "us", "fedramp"})


def spec_of(
    config: Mapping[str, Any],
    bindings: Mapping[str, Mapping[str, Any]],
    prefix: str,
    pinned: Collection[str],
    built: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """An EdgeModel document from a Worker's `config.json` and its bindings by name.

    `prefix` starts every bucket's name (`PROJECT-ENVIRONMENT-`); `pinned` are the chunks that KV keeps without expiry;
    `built` is what `built_from` makes of the artifact's statement. Raises ValueError for a configuration that this
    edgespec does not know."""
    if config.get("format") != CONFIG_FORMAT:
        raise ValueError(f"its configuration is in format {config.get('format')!r}, not {CONFIG_FORMAT!r}")
    default = str(config["default_shard"])
    manifest = Manifest.from_json(config["artifacts"][config["shards"][default]["artifact"]])
    document: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": "EdgeModel",
        "metadata": {"name": str(config["name"])},
        "model": {"source": UNKNOWN_SOURCE},
        "task": {**manifest.task, **({"display": config["display"]} if config.get("display") else {})},
        "quantization": {"method": manifest.model.quantization},
    }
    if regions := _regions(config, bindings, prefix):
        document["regions"] = regions
    document["cache"] = {"weights": _cache(config["cache"]["weights"], manifest, pinned)}
    document["worker"] = {"engine": manifest.engine}
    if built is not None:
        document["model"] = built["model"]
        document["quantization"] = built["quantization"]
        document["worker"] = built["worker"]
    return document


def built_from(parameters: Mapping[str, Any]) -> dict[str, Any] | None:
    """The parts of a spec among the parameters of a build, which name every default, without those: what a person would
    write. None for parameters that are no spec's, or a newer edgespec's."""
    try:
        model = Model.model_validate(parameters["model"])
        quantization = Quantization.model_validate(parameters["quantization"])
        engine = WorkerOptions.model_validate(parameters["worker"]).engine
    except (KeyError, ValueError):
        return None
    return {
        "model": model.model_dump(mode="json", exclude_defaults=True),
        "quantization": {
            "method": quantization.method,
            **quantization.model_dump(mode="json", exclude_defaults=True),
        },
        "worker": {"engine": engine},
    }


def served(config: Mapping[str, Any]) -> tuple[str, str]:
    """The artifact of the default shard, and the name of the binding of its bucket."""
    shard = config["shards"][str(config["default_shard"])]
    return str(shard["artifact"]), str(shard["bucket"])


def _regions(config: Mapping[str, Any], bindings: Mapping[str, Mapping[str, Any]], prefix: str) -> dict[str, Any]:
    shards = {
        name: _shard(shard, bindings.get(str(shard["bucket"]), {}), prefix) for name, shard in config["shards"].items()
    }
    if shards == {"default": {}}:
        return {}
    return {"default": config["default_shard"], "shards": shards}


def _shard(shard: Mapping[str, Any], binding: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    placement = str(binding.get("bucket_name", "")).removeprefix(prefix)
    jurisdiction = str(binding.get("jurisdiction") or placement)
    if jurisdiction in _JURISDICTIONS:
        found["jurisdiction"] = jurisdiction
    elif placement not in ("", "auto"):
        found["location"] = placement
    match = {k: sorted(shard[k]) for k in ("continents", "countries") if shard.get(k)}
    return {**found, "match": match} if match else found


def _cache(weights: Mapping[str, Any], manifest: Manifest, pinned: Collection[str]) -> dict[str, Any]:
    memory, kv = int(weights.get("memory") or 0), weights.get("kv")
    found: dict[str, Any] = {"tiers": [*(["memory"] if memory else []), *(["kv"] if kv else [])]}
    if memory:
        found["memory"] = memory
    chunks = [f.chunks[0].size for f in manifest.files.values() if len(f.chunks) > 1]
    tier: dict[str, Any] = {}
    if chunks and chunks[0] != KvTier().chunk:
        tier["chunk"] = chunks[0]
    if kv:
        tier |= {k: kv[k] for k in ("ttl", "cache_ttl") if k in kv}
        pins = [pin for pin, names in FILES.items() if _is_pinned(manifest, names, pinned)]
        tier |= {"pin": pins} if pins else {}
    return {**found, "kv": tier} if tier else found


def _is_pinned(manifest: Manifest, names: Collection[str], pinned: Collection[str]) -> bool:
    wanted = {c.sha256 for n in names if n in manifest.files for c in manifest.files[n].chunks}
    return bool(wanted) and wanted <= set(pinned)
