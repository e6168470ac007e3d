"""Every Worker of an account with what a refresh asks of each: when it was last deployed, and whether its address is
open. One list (Cloudflare's Workers API, "List Workers", beta) instead of two calls a Worker."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Struct

from edgespec.providers.cloudflare.account import Account
from edgespec.state.model import State, Status

_PAGE: Final = 100


class Listed(Struct, frozen=True):
    deployed_on: str | None
    """When its newest deployment was made: another deployment has another time. None where there is none."""
    open: bool
    """Whether it answers at its workers.dev address."""


class Known(Struct, frozen=True):
    """What state says of a deployment: which version it gave all traffic, and when."""

    deployed_on: str
    version: str


class Deployment(Struct, frozen=True):
    """The newest of a Worker."""

    versions: dict[str, float]
    """Version id -> percentage; empty when nothing was deployed."""
    when: str | None


def list_workers(account: Account) -> dict[str, Listed]:
    """By name. Empty where the API, or this token, has no such list: each Worker is then asked by itself."""
    found: dict[str, Listed] = {}
    page = 1
    while True:
        try:
            body = account.get("/workers/workers", {"page": page, "per_page": _PAGE})
        except Exception as e:
            if not _refused(e):
                raise
            return {}
        found.update({w["name"]: _listed(w) for w in body["result"]})
        total = (body.get("result_info") or {}).get("total_count")
        if not body["result"] or (len(body["result"]) < _PAGE if total is None else len(found) >= total):
            return found
        page += 1


def known_deployments(state: State) -> dict[str, Known]:
    """By script. Only of records that are whole: an interrupted one says nothing of what it left."""
    found: dict[str, Known] = {}
    for key, record in state.records.items():
        if key.address.type != "deployment" or key.deposed or record.status is not Status.READY:
            continue
        when, version = record.outputs.get("deployed_on"), record.inputs.get("version")
        if isinstance(when, str) and isinstance(version, str) and ":" not in version:  # else: shared by several
            found[str(record.inputs["script"])] = Known(when, version)
    return found


def moment(value: Any) -> str | None:
    """A time as the API writes it, in one spelling; None where there is none."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else None


def _listed(worker: Mapping[str, Any]) -> Listed:
    return Listed(moment(worker.get("deployed_on")), bool(worker["subdomain"]["enabled"]))


def _refused(e: Exception) -> bool:
    import cloudflare

    return isinstance(e, cloudflare.APIStatusError) and 400 <= e.status_code < 500 and e.status_code != 429
