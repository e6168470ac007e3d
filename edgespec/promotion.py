"""`promote`: what one environment serves becomes what another deploys, written into a file that people review.

Nothing remote is changed. What is promoted has served in the source environment, passed its gate there, and is what the
specs still ask for; whatever else is refused, every reason at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from edgespec import operations, statements
from edgespec.address import Address
from edgespec.artifact import Manifest
from edgespec.diagnostics import Diagnostic, Diagnostics, EdgespecError, error, some, warning
from edgespec.evaluation import floor_of
from edgespec.operations import Planned
from edgespec.plan.model import Action, Request
from edgespec.providers.cloudflare.account import api_errors
from edgespec.providers.cloudflare.provenance import fetched
from edgespec.releases import rounded, write_releases
from edgespec.render.text import show
from edgespec.resources import deployment, model, worker
from edgespec.session import Session, open_session
from edgespec.spec.models import EdgeModel
from edgespec.spec.releases import (
    ModelReleases,
    Release,
    empty,
    load_releases,
)
from edgespec.spec.validate import place
from edgespec.state.model import ResourceRecord, Status
from edgespec.target import Say
from edgespec.values import sha256_hex
from edgespec.wiring import stored_weights

_REFUSED: Final = "Not promoted"
_FIELDS: Final = 4
"""Changes, and fields of one, that a message names."""


@dataclass(frozen=True, slots=True)
class Promoted:
    """`before` is what the environment deploys until the file is applied; None for what it does not have yet."""

    name: str
    before: Release | None
    after: Release


@dataclass(frozen=True, slots=True)
class Promotion:
    source: str
    target: str
    path: str
    """The file that was written, relative to edgespec.yaml."""
    promoted: tuple[Promoted, ...]
    unchanged: tuple[str, ...]
    """What the environment has already."""
    warnings: Diagnostics


def promote(
    root: Path,
    names: tuple[str, ...],
    environ: Mapping[str, str],
    say: Say,
    *,
    source: str,
    target: str,
    unpin: bool = False,
) -> Promotion:
    """Write what `source` serves of the named specs, or of all that are deployed there, into the releases of
    `target`. Raises, with nothing written, when any of them is refused; without names, what was rolled back in
    `target` is left out."""
    into = open_session(root, target, environ, say)
    _check_direction(into, source)
    session = open_session(root, source, environ, say)
    into.workspace.check_names(names)
    with contextlib.closing(operations.plan(session, request=Request(names))) as planned:
        wanted = names or _deployed(planned)
        loaded = into.workspace.releases or load_releases(empty(target), target).unwrap()
        found: list[Diagnostic] = []
        promoted: list[Promoted] = []
        unchanged: list[str] = []
        revision, dirty = revision_of(root)
        for name in wanted:
            there = loaded.releases.models.get(name)
            if there is not None and there.pinned is not None and not unpin:
                found.append(_pinned(name, there, target, refused=bool(names)))
                continue
            refused = list(_refused(planned, name, into))
            found += refused
            if refused:
                continue
            release = _release(planned, name, there, revision, dirty=dirty)
            if there is not None and there.deployed.artifact == release.artifact and there.pinned is None:
                unchanged.append(name)
            else:
                promoted.append(Promoted(name, there.deployed if there is not None else None, release))
    diagnostics = Diagnostics(tuple(found))
    if diagnostics.has_errors:
        raise EdgespecError(diagnostics)
    if promoted:
        models = {p.name: added(loaded.releases.models.get(p.name), p.after, loaded.releases.keep) for p in promoted}
        write_releases(root, loaded, models)
    return Promotion(source, target, loaded.source.path, tuple(promoted), tuple(unchanged), diagnostics)


def added(before: ModelReleases | None, release: Release, keep: int) -> ModelReleases:
    """With a release in front that is current, and no more than `keep`."""
    older = before.releases if before is not None else ()
    return ModelReleases(current=release.number, releases=(release, *older)[:keep])


def revision_of(root: Path) -> tuple[str | None, bool]:
    """The commit of the project and whether the work tree differs from it, the releases apart; None without git or
    before the first commit."""
    found = statements.revision_of(root)
    return found.commit or None, found.dirty


# --- what is refused -------------------------------------------------------------------------------------------------


def _check_direction(into: Session, source: str) -> None:
    workspace = into.workspace
    allowed, target = workspace.target.promote_from, workspace.environment
    if allowed == source:
        return
    where: tuple[str, ...] = ("environments", target)
    if allowed is None:
        detail = (
            f"{target} builds what it deploys. Say `promote_from: {source}` in it, and it deploys what is promoted."
        )
    else:
        detail = f"{target} is promoted to from {allowed}, not from {source}."
        where = (*where, "promote_from")
    raise EdgespecError(error("ES711", _REFUSED, detail, source=place(workspace.project_node, where)))


def _pinned(name: str, there: ModelReleases, target: str, *, refused: bool) -> Diagnostic:
    detail = (
        f"{name}: {target} was rolled back to release {there.current} ({there.pinned}) and stays there. Say `--unpin` "
        f"to promote all the same, or `edgespec rollback {name} --env {target} --unpin` first."
    )
    return (error if refused else warning)("ES712", "Rolled back, and pinned", detail)


def _deployed(planned: Planned) -> tuple[str, ...]:
    """Every spec that the source environment has something of."""
    specs = {s.name for s in planned.session.workspace.specs}
    records = planned.plan.refreshed.records
    return tuple(sorted(specs & {k.address.name for k in records if k.address.type == deployment.TYPE.name}))


def _refused(planned: Planned, name: str, into: Session) -> Iterator[Diagnostic]:
    """Every reason why what the source environment has of a spec is not promoted."""
    environment = planned.session.workspace.environment
    apply = f"`edgespec apply {name} --env {environment}`"
    version, live = _record(planned, worker.TYPE.name, name), _record(planned, deployment.TYPE.name, name)
    if version is None or live is None or live.status is Status.CREATING:
        yield error("ES710", _REFUSED, f"{name} never ran in {environment}. Deploy it there first: {apply}.")
        return
    if drift := [d for d in planned.plan.drift if name in _owners(planned, d.key.address)]:
        found = [f"{d.key} ({', '.join(f.path for f in d.fields[:_FIELDS]) or d.kind.value})" for d in drift]
        what = some(found, _FIELDS)
        detail = f"{name} was changed by hand in {environment}: {what}. Look at it, and put it right with {apply}."
        yield error("ES710", _REFUSED, detail)
        return
    if live.inputs.get("version") != version.outputs.get("version_id") or live.status is not Status.READY:
        detail = (
            f"{name}: the newest version in {environment} got no traffic: its gate failed, or its apply was "
            f"interrupted. {apply} says why."
        )
        yield error("ES710", _REFUSED, detail)
        return
    if changes := [c for c in planned.plan.changes if c.action is not Action.NOOP and name in c.owners]:
        what = some([f"{c.address} ({_why(c)})" for c in changes], _FIELDS)
        detail = f"{name} changed since it was deployed in {environment}, and what is promoted must be what the spec "
        yield error("ES710", _REFUSED, f"{detail}says: {what}. Deploy it first: {apply}.")
        return
    yield from _judged(planned, name, live, into)


def _judged(planned: Planned, name: str, live: ResourceRecord, into: Session) -> Iterator[Diagnostic]:
    """By its gate, and by what the target's spec asks for."""
    gate: Any = live.inputs.get("quality")
    metrics: Any = live.outputs.get("metrics") or {}
    teacher: Any = live.outputs.get("teacher") or {}
    for metric, threshold in sorted((gate or {}).get("metrics", {}).items()):
        value = metrics.get(metric)
        if value is None or value < floor_of(threshold, teacher.get(metric, 1.0)):
            is_now = "not known" if value is None else f"{value:.4f}"
            detail = f"{name}: its {metric} is {is_now}, and its gate asks for more."
            yield error("ES710", _REFUSED, detail)
    spec = into.specs.get(name)
    manifest = _manifest(planned, name)
    if spec is not None and not _fits(spec, manifest):
        where = place(into.workspace.nodes[name], ("task",))
        detail = f"{name}: the spec asks for another task or engine in {into.workspace.environment} than was deployed."
        yield error("ES710", _REFUSED, detail, source=where)


def _fits(spec: EdgeModel, manifest: Manifest) -> bool:
    return model.same_task(spec, manifest) and spec.worker.engine in ("auto", manifest.engine)


def _why(change: Any) -> str:
    shown = [
        f"{f.path} {show(f.path, f.before)} -> {show(f.path, f.after)}"
        for f in change.fields
        if f.path not in ("blobs", "manifest")
    ]
    return some(shown, _FIELDS) or change.action.value


def _owners(planned: Planned, address: Address) -> tuple[str, ...]:
    record = planned.stored.get(address)
    return record.owners if record is not None else ()


# --- what is promoted ------------------------------------------------------------------------------------------------


def _record(planned: Planned, type_: str, name: str) -> ResourceRecord | None:
    return planned.plan.refreshed.get(Address(type_, name))


def _manifest(planned: Planned, name: str) -> Manifest:
    """Of the version that answers."""
    version = _record(planned, worker.TYPE.name, name)
    raw: Any = version.inputs["manifest"] if version is not None else None
    return Manifest.from_json(raw)


def _release(planned: Planned, name: str, there: ModelReleases | None, revision: str | None, *, dirty: bool) -> Release:
    """What serves now, as a line of the releases."""
    version, live = _record(planned, worker.TYPE.name, name), _record(planned, deployment.TYPE.name, name)
    assert version is not None and live is not None  # noqa: S101  # else it was refused
    manifest = _manifest(planned, name)
    said = {
        "number": 1 + max((r.number for r in there.releases), default=0) if there is not None else 1,
        "artifact": manifest.digest,
        "size": manifest.size,
        "engine": manifest.engine,
        "metrics": rounded(live.outputs.get("metrics")),
        "teacher": rounded(live.outputs.get("teacher")),
        "revision": revision,
        "dirty": dirty,
        "provenance": _provenance(planned, name, manifest.digest),
        "from": {
            "environment": planned.session.workspace.environment,
            "worker": version.outputs["script"],
            "version": version.outputs["version_id"],
        },
    }
    return Release.model_validate(said)


def _provenance(planned: Planned, name: str, artifact: str) -> str | None:
    """The digest of the statement that stands beside the artifact: it goes where the artifact goes."""
    place = stored_weights(planned.plan.refreshed, name, artifact)
    if place is None:
        return None
    with api_errors(place.address, "Reading provenance"):
        raw = fetched(planned.account, str(place.inputs["bucket"]), str(place.inputs["jurisdiction"]), artifact)
    return sha256_hex(raw) if raw is not None else None
