"""A plan as a document: what `--json` prints and `--out` keeps, and whether a kept one still holds."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from edgespec.diagnostics import EdgespecError, error
from edgespec.plan.model import Action, Change, Plan
from edgespec.values import UNKNOWN, digest, is_known

FORMAT: Final = "edgespec.plan/v1"


class FieldDocument(BaseModel):
    model_config = ConfigDict(extra="forbid")
    path: str
    before: Any
    after: Any
    known_after_apply: bool
    replaces: bool


class ChangeDocument(BaseModel):
    model_config = ConfigDict(extra="forbid")
    address: str
    deposed: str
    action: Literal["create", "adopt", "update", "replace", "delete"]
    reason: str
    owners: list[str]
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    """With null for what is known only after the apply."""
    fields: list[FieldDocument]


class StateReference(BaseModel):
    model_config = ConfigDict(extra="forbid")
    lineage: str
    serial: int


class PlanDocument(BaseModel):
    """What one apply would do. `digest` covers all the rest."""

    model_config = ConfigDict(extra="forbid")
    format: Literal["edgespec.plan/v1"]
    project: str
    environment: str
    names: list[str] | None
    destroy: bool
    spec_digest: str = Field(pattern=r"^[0-9a-f]{64}$")
    state: StateReference
    summary: dict[str, int]
    changes: list[ChangeDocument]
    steps: list[str]
    digest: str = Field(pattern=r"^[0-9a-f]{64}$")


def to_document(
    plan: Plan, *, project: str, environment: str, names: tuple[str, ...] | None, destroy: bool
) -> dict[str, Any]:
    """`plan` as JSON values, in a fixed order, with its digest."""
    state = plan.refreshed
    document: dict[str, Any] = {
        "format": FORMAT,
        "project": project,
        "environment": environment,
        "names": sorted(names) if names else None,
        "destroy": destroy,
        "spec_digest": plan.spec_digest,
        "state": {"lineage": state.lineage, "serial": state.serial},
        "summary": {a.value: plan.count(a) for a in Action if a is not Action.NOOP},
        "changes": [_change(c) for c in plan.changes if c.action is not Action.NOOP],
        "steps": [str(s.id) for s in plan.steps],
    }
    return {**document, "digest": digest(document)}


def check_same(saved: dict[str, Any], current: dict[str, Any]) -> None:
    """Raise unless `current`, made just now, is what the saved plan says; before any side effect."""
    body = {k: v for k, v in saved.items() if k != "digest"}
    if digest(body) != saved["digest"]:
        detail = "Its content does not have the digest that it states: the file was changed. Run plan again."
        raise EdgespecError(error("ES203", "The plan file is damaged", detail))
    if saved["digest"] == current["digest"]:
        return
    if (saved["project"], saved["environment"]) != (current["project"], current["environment"]):
        why = f"it was made for {saved['project']} in {saved['environment']}"
    elif saved["spec_digest"] != current["spec_digest"]:
        why = "the specs or their data changed"
    elif saved["state"] != current["state"]:
        why = f"the state moved from serial {saved['state']['serial']} to {current['state']['serial']}"
    else:
        why = "what is live, or what is in the build cache, changed"
    detail = f"Since it was made, {why}. Nothing was done; run plan again and review it."
    raise EdgespecError(error("ES202", "The plan is stale", detail))


def _change(change: Change) -> dict[str, Any]:
    return {
        "address": str(change.address),
        "deposed": change.key.deposed,
        "action": change.action.value,
        "reason": change.reason.value,
        "owners": list(change.owners),
        "before": None if change.before is None else _blank(dict(change.before)),
        "after": None if change.after is None else _blank(dict(change.after)),
        "fields": [
            {
                "path": f.path,
                "before": _blank(f.before),
                "after": _blank(f.after),
                "known_after_apply": not is_known(f.after),
                "replaces": f.replaces,
            }
            for f in change.fields
        ],
    }


def _blank(value: Any) -> Any:
    """`value` with null where it is not known yet."""
    if value is UNKNOWN:
        return None
    if isinstance(value, dict):
        return {k: _blank(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_blank(v) for v in value]
    return value
