"""A plan as a document: what `--json` prints and `--out` keeps, and whether a kept one still holds.

`digest` covers everything else. What a plan depends on is named part by part, so that a stale one can say why: the
specs, the state's lineage and serial, each live object, each artifact. Applying moves the serial, so a plan is carried
out once. A plan of an older format cannot be upgraded, since it does not name all that it depends on: it is stale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from edgespec.address import Address
from edgespec.diagnostics import EdgespecError, error, some
from edgespec.plan.budget import Fit
from edgespec.plan.cost import NOTHING, Costs
from edgespec.plan.explain import explain
from edgespec.plan.judged import costs_document, policies_document
from edgespec.plan.model import Action, Change, Drift, Plan, Request
from edgespec.plan.policy import Verdict
from edgespec.plan.refined import other_builds, says_the_same
from edgespec.plan.work import Work, total, work_of
from edgespec.resources.base import FieldChange
from edgespec.resources.compile import TYPES
from edgespec.secret import Secret
from edgespec.state.model import Key, State
from edgespec.values import UNKNOWN, canonical_json, digest, is_known, sha256_hex

FORMAT: Final = "edgespec.plan/v2"
OLDER: Final = frozenset({"edgespec.plan/v1"})
BUILT: Final = frozenset({"artifact", "blobs", "engine", "manifest", "size", "source_digest"})
"""What a build tells; other unknown values are told by the apply."""
_NAMED: Final = 5


def to_document(
    plan: Plan,
    *,
    project: str,
    environment: str,
    fits: Sequence[Fit] = (),
    costs: Costs = NOTHING,
    verdicts: Sequence[Verdict] = (),
) -> dict[str, Any]:
    """`plan` as JSON values, in a fixed order, with its digest."""
    work = work_of(plan)
    document: dict[str, Any] = {
        "format": FORMAT,
        "project": project,
        "environment": environment,
        "request": _request(plan.request),
        "spec_digest": plan.spec_digest,
        "state": {"lineage": plan.refreshed.lineage, "serial": plan.refreshed.serial},
        "live": _live(plan),
        "artifacts": _artifacts(plan),
        "summary": {a.value: plan.count(a) for a in Action if a is not Action.NOOP},
        "work": _work(total(plan)),
        "changes": [_change(c, plan, work) for c in plan.changes if c.action is not Action.NOOP],
        "drift": [_drift(d) for d in plan.drift],
        "protections": {str(a): p for a, p in sorted(plan.protections.items())},
        "withheld": [str(a) for a in plan.withheld],
        "steps": [
            {"step": str(e.step), "waits_for": [{"step": str(w.step), "why": w.why} for w in e.waits]}
            for e in explain(plan.steps)
        ],
        "fits": [_fit(f) for f in fits],
        "costs": costs_document(costs),
        "policies": policies_document(verdicts),
        **({"unreleased": list(plan.unreleased)} if plan.unreleased else {}),
    }
    return {**document, "digest": digest(document)}


def request_of(document: Mapping[str, Any]) -> Request:
    """What a saved plan was asked for."""
    said = document["request"]
    return Request(
        tuple(said["names"]),
        said["destroy"],
        tuple(Address.parse(a) for a in said["targets"]),
        tuple(Address.parse(a) for a in said["excludes"]),
        said["refresh_only"],
        said["allow_destroy"],
    )


# --- is it still what was reviewed? ----------------------------------------------------------------------------------


def check_base(saved: Mapping[str, Any], *, project: str, environment: str, spec_digest: str, state: State) -> None:
    """Raise when a saved plan cannot hold any more, by what is known before anything is read live."""
    body = {k: v for k, v in saved.items() if k != "digest"}
    if digest(body) != saved["digest"]:
        detail = "Its content does not have the digest that it states: the file was changed. Run plan again."
        raise EdgespecError(error("ES203", "The plan file is damaged", detail))
    if (saved["project"], saved["environment"]) != (project, environment):
        raise stale(f"it was made for {saved['project']} in {saved['environment']}")
    base = saved["state"]
    if base["lineage"] != state.lineage:
        other = "the state was replaced by one of another history"
        raise stale(other if base["lineage"] else "the environment was applied to for the first time")
    if base["serial"] != state.serial:
        raise stale(f"the state moved from serial {base['serial']} to {state.serial}: this plan or another was applied")
    if saved["spec_digest"] != spec_digest:
        raise stale("the specs or their data changed")


def check_same(saved: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """Raise unless `current`, made just now, is what the saved plan says; before any side effect. More may be known
    now: see `refined`."""
    if saved["digest"] == current["digest"]:
        return
    if changed := sorted(
        n for n in {*saved["live"], *current["live"]} if saved["live"].get(n) != current["live"].get(n)
    ):
        raise stale(f"what is live changed: {some(changed, _NAMED)}")
    if others := other_builds(saved, current):
        raise stale(f"what is in the build cache changed: {some(others, _NAMED)}")
    if says_the_same(saved, current):
        return
    if saved["fits"] != current["fits"]:
        raise stale("the measurements of a model changed")
    if saved["policies"] != current["policies"]:
        raise stale("what the policies say changed")
    if saved["costs"] != current["costs"]:
        raise stale("what it costs a month changed")
    raise stale("what there is to do changed")


def stale(why: str) -> EdgespecError:
    detail = f"Since it was made, {why}. Nothing was done; run plan again and review it."
    return EdgespecError(error("ES202", "The plan is stale", detail))


# --- parts -----------------------------------------------------------------------------------------------------------


def _request(request: Request) -> dict[str, Any]:
    return {
        "names": sorted(request.names),
        "destroy": request.destroy,
        "targets": sorted(str(a) for a in request.targets),
        "excludes": sorted(str(a) for a in request.excludes),
        "refresh_only": request.refresh_only,
        "allow_destroy": request.allow_destroy,
    }


def _live(plan: Plan) -> dict[str, str]:
    records = plan.refreshed.records
    found = {str(k): _seen([r.inputs, r.outputs, r.status.value]) for k, r in sorted(records.items())}
    adopted = {str(c.key): _seen([c.before]) for c in plan.changes if c.action is Action.ADOPT}
    return dict(sorted({**found, **adopted}.items()))


def _seen(value: object) -> str:
    return sha256_hex(canonical_json(_blank(value)).encode())[:16]


def _artifacts(plan: Plan) -> dict[str, Any]:
    return {
        str(a): {"key": b.key, "artifact": b.manifest.digest if b.manifest is not None else None}
        for a, b in sorted(plan.builds.items())
    }


def _change(change: Change, plan: Plan, work: Mapping[Key, Work]) -> dict[str, Any]:
    held = plan.contents.get(change.key)
    return {
        "address": str(change.address),
        "type": change.address.type,
        "name": change.address.name,
        "deposed": change.key.deposed,
        "action": change.action.value,
        "reason": change.reason.value,
        "moved_from": str(change.moved_from) if change.moved_from is not None else None,
        "owners": list(change.owners),
        "protected": change.protected,
        "before": None if change.before is None else _blank(dict(change.before)),
        "after": None if change.after is None else _blank(dict(change.after)),
        "fields": [_field(f, change.address) for f in change.fields],
        "work": _work(work.get(change.key, Work())),
        "contents": None if held is None else {"objects": held.objects, "bytes": held.size, "foreign": held.foreign},
    }


def _field(found: FieldChange, address: Address) -> dict[str, Any]:
    fixed = TYPES[address.type].replace_on.get(found.path.partition(".")[0])
    return {
        "path": found.path,
        "before": _blank(found.before),
        "after": _blank(found.after),
        "known_after": None if is_known(found.after) else known_after(found.path),
        "replaces": found.replaces,
        "why": fixed.why if fixed else "",
        "avoid": fixed.avoid if fixed else "",
        "source": found.source,
    }


def known_after(path: str) -> Literal["build", "apply"]:
    """What tells a value that is not known yet."""
    return "build" if path.split(".")[-1] in BUILT else "apply"


def _drift(found: Drift) -> dict[str, Any]:
    return {
        "address": str(found.key.address),
        "deposed": found.key.deposed,
        "kind": found.kind.value,
        "fields": [_field(f, found.key.address) for f in found.fields],
    }


def drift_report(state: State, found: Sequence[Drift]) -> dict[str, Any]:
    """As `drift --json` prints it; `state` is the one that is kept."""
    return {
        "format": "edgespec.drift/v1",
        "project": state.project,
        "environment": state.environment,
        "state": {"lineage": state.lineage, "serial": state.serial},
        "drift": [_drift(d) for d in found],
    }


def _work(work: Work) -> dict[str, Any]:
    return {
        "upload_bytes": work.upload,
        "r2_writes": work.r2_writes,
        "r2_deletes": work.r2_deletes,
        "kv_writes": work.kv_writes,
        "kv_deletes": work.kv_deletes,
        "stages": list(work.stages),
    }


def _fit(fit: Fit) -> dict[str, Any]:
    budget, cpu, found = fit.spec.budget, fit.spec.budget.cpu_ms, fit.measured
    return {
        "name": fit.spec.name,
        "labels": dict(sorted(fit.spec.metadata.labels.items())),
        "script": fit.script,
        "script_budget": budget.script,
        "memory_budget": budget.memory,
        "cpu_limit_ms": fit.cpu_limit_ms,
        "cpu_p50_budget_ms": cpu.p50 if cpu else None,
        "cpu_p99_budget_ms": cpu.p99 if cpu else None,
        "measured": None
        if found is None
        else {
            "engine": found.engine,
            "texts": found.texts,
            "measured_at": found.measured_at,
            "memory": found.memory,
            "cpu_p50_ms": found.cpu_p50_ms,
            "cpu_p99_ms": found.cpu_p99_ms,
        },
    }


def _blank(value: Any) -> Any:
    """`value` with null where it is not known yet, and of a secret its name and digest."""
    if value is UNKNOWN:
        return None
    if isinstance(value, Secret):
        return value.document()
    if isinstance(value, Mapping):
        return {k: _blank(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_blank(v) for v in value]
    return value
