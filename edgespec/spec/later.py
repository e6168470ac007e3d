"""Fields of the spec language whose behaviour does not exist yet: refused by name, never silently ignored."""

from __future__ import annotations

from typing import Final

_LATER: Final[dict[str, dict[str, str]]] = {
    "EdgeModel": {
        "regions.shards.*.model": "a variant of the model for one shard",
        "regions.shards.*.match.languages": "choosing a shard by language",
        "cache.weights.edge": "the Cache API tier",
        "cache.results": "caching of results",
        "worker.routes": "routes",
        "worker.auth": "authentication",
        "worker.cors": "CORS",
        "worker.rate_limit": "rate limits",
        "worker.placement": "placement",
        "rollout": "gradual rollout",
    },
    "Project": {
        "environments.*.target.zone": "zones, which routes need",
    },
}

_LATER_VALUES: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "EdgeModel": {
        "cache.weights.tiers.*": ("edge",),
        "task.type": ("token-classification",),
    },
}


def _pattern_matches(pattern: str, path: tuple[str | int, ...]) -> bool:
    parts = pattern.split(".")
    return len(parts) == len(path) and all(p in ("*", str(q)) for p, q in zip(parts, path, strict=True))


def later_field(kind: str, path: tuple[str | int, ...]) -> str | None:
    """What a known but not yet supported key is about."""
    return next((what for p, what in _LATER.get(kind, {}).items() if _pattern_matches(p, path)), None)


def is_later_value(kind: str, path: tuple[str | int, ...], value: object) -> bool:
    """Whether a refused value is part of the language but not supported yet."""
    found = _LATER_VALUES.get(kind, {})
    return any(value in values for p, values in found.items() if _pattern_matches(p, path))
