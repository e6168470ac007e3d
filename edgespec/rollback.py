"""`rollback` and `history`: what an environment served before, and how it comes back.

A rollback is an edit of the releases of the environment, as a promotion is; the environment then deploys that artifact
until it is unpinned, whatever is promoted or built. What served before is in the releases where artifacts are promoted;
elsewhere state knows it, and the objects are in the environment's own buckets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgespec.address import Address
from edgespec.artifact import Manifest
from edgespec.diagnostics import EdgespecError, error
from edgespec.releases import Artifacts, rounded, write_releases
from edgespec.resources import archive, deployment, weights, worker
from edgespec.session import Session, stored
from edgespec.spec.releases import LoadedReleases, ModelReleases, Release, empty, load_releases
from edgespec.state.model import State

_SUMMARY = "Nothing to roll back to"


@dataclass(frozen=True, slots=True)
class Rolled:
    """What was written. `after` is what is deployed from now on, None where the spec is built again; `kept` says that
    its objects are in the environment's buckets, by what state remembers."""

    name: str
    path: str
    before: Release | None
    after: Release | None
    kept: bool


def rollback(session: Session, name: str, to: str | None = None, reason: str | None = None) -> Rolled:
    """Pin the release before the current one, or the one that `to` names: a number, or a digest's beginning."""
    session.workspace.check_names((name,))
    state, _ = stored(session)
    loaded = _loaded(session)
    model = loaded.releases.models.get(name)
    if model is None or (model.pinned is None and not _promoted(session)):
        if _promoted(session):
            environment = session.workspace.environment
            raise EdgespecError(error("ES713", _SUMMARY, f"{name} was never promoted to {environment}."))
        model = _served(session, state, name)
    target = _chosen(name, model, to)
    before = model.deployed
    after = ModelReleases(
        current=target.number,
        pinned=reason or f"rolled back from release {before.number}",
        releases=model.releases,
    )
    write_releases(session.workspace.root, loaded, {name: after})
    kept = target.artifact in _kept(state, name)
    return Rolled(name, loaded.source.path, before, target, kept)


def unpin(session: Session, name: str) -> Rolled:
    """Let promotions, or builds, say again what is deployed. Where artifacts are promoted, what is deployed stays until
    the next promotion."""
    session.workspace.check_names((name,))
    loaded = _loaded(session)
    model = loaded.releases.models.get(name)
    if model is None or model.pinned is None:
        detail = f"{name} is not rolled back in {session.workspace.environment}."
        raise EdgespecError(error("ES714", "Not pinned", detail))
    after = model.model_copy(update={"pinned": None}) if _promoted(session) else None
    write_releases(session.workspace.root, loaded, {name: after})
    deployed = after.deployed if after is not None else None
    return Rolled(name, loaded.source.path, model.deployed, deployed, kept=True)


def _loaded(session: Session) -> LoadedReleases:
    environment = session.workspace.environment
    return session.workspace.releases or load_releases(empty(environment), environment).unwrap()


def _promoted(session: Session) -> bool:
    return session.workspace.target.promote_from is not None


def _chosen(name: str, model: ModelReleases, to: str | None) -> Release:
    known = ", ".join(f"{r.number} ({r.artifact[:12]})" for r in model.releases)
    if to is None:
        older = [r for r in model.releases if r.number < model.current]
        if not older:
            detail = f"Release {model.current} of {name} is the oldest that is known. There are: {known}."
            raise EdgespecError(error("ES713", _SUMMARY, detail))
        return older[0]
    found = model.find(to)
    if len({r.artifact for r in found}) != 1:
        what = "several releases" if found else "no release"
        detail = f"{to} names {what} of {name}. There are: {known}."
        raise EdgespecError(error("ES713", _SUMMARY, detail))
    if found[0].number == model.current and model.pinned is not None:
        detail = f"{name} is at release {model.current} already, and pinned."
        raise EdgespecError(error("ES713", _SUMMARY, detail))
    return found[0]


# --- what served, by state -------------------------------------------------------------------------------------------


def _served(session: Session, state: State, name: str) -> ModelReleases:
    """What state knows of an environment that builds what it deploys, as releases: the newest, which serves now, has
    the highest number."""
    now = _now(state, name)
    older = {a: told for a, told in _archived(state, name).items() if now is None or a != now[0]}
    if now is None or not older:
        environment = session.workspace.environment
        why = "is not deployed" if now is None else "served no other artifact that is kept (`keep`)"
        raise EdgespecError(error("ES713", _SUMMARY, f"{name} {why} in {environment}."))
    artifacts = Artifacts(session, state)
    found = [now, *older.items()]
    releases = []
    for number, (artifact, told) in zip(range(len(found), 0, -1), found, strict=True):
        manifest = artifacts.manifest(artifact, name)
        releases.append(
            Release(
                number=number,
                artifact=artifact,
                size=manifest.size,
                engine="edge" if manifest.engine == "edge" else "onnxruntime",
                metrics=rounded(told.get("metrics")),
                teacher=rounded(told.get("teacher")),
            )
        )
    return ModelReleases(current=releases[0].number, releases=tuple(releases))


def _now(state: State, name: str) -> tuple[str, dict[str, Any]] | None:
    """The artifact that answers, with what its gate measured."""
    version, live = state.get(Address(worker.TYPE.name, name)), state.get(Address(deployment.TYPE.name, name))
    if version is None or live is None or "artifact" not in version.inputs:
        return None
    told: dict[str, Any] = {"metrics": live.outputs.get("metrics"), "teacher": live.outputs.get("teacher")}
    return str(version.inputs["artifact"]), {**told, "version": live.inputs.get("version")}


def _archived(state: State, name: str) -> dict[str, dict[str, Any]]:
    """What served before and is kept, newest first; of several shards the union."""
    found: dict[str, dict[str, Any]] = {}
    for key, record in sorted(state.records.items()):
        if key.address.type == archive.TYPE.name and key.address.spec == name and not key.deposed:
            inputs: Any = record.inputs
            for artifact in inputs["artifacts"]:
                found.setdefault(artifact, inputs["served"][artifact])
    return found


def _kept(state: State, name: str) -> frozenset[str]:
    """The artifacts whose objects are in every bucket of the model, by what state remembers."""
    shards: dict[str, set[str]] = {}
    for key, record in state.records.items():
        inputs: Any = record.inputs
        if key.address.spec != name or key.address.type not in (archive.TYPE.name, weights.TYPE.name):
            continue
        there = inputs["artifacts"] if key.address.type == archive.TYPE.name else [inputs["artifact"]]
        shards.setdefault(key.address.name, set()).update(there)
    return frozenset(set.intersection(*shards.values())) if shards else frozenset()


# --- history ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Past:
    """One artifact that the environment deploys or deployed."""

    artifact: str
    size: int
    """Bytes."""
    metrics: Mapping[str, float]
    """What its gate measured, as far as that is remembered."""
    current: bool
    """What the environment is to deploy."""
    live: bool
    """What answers now, by state."""
    kept: bool
    """Its objects are in the environment's buckets."""
    release: Release | None = None
    """None where only state knows it."""


@dataclass(frozen=True, slots=True)
class History:
    name: str
    environment: str
    pinned: str | None
    """Why it was rolled back."""
    past: tuple[Past, ...]
    """Newest first."""


def history(session: Session, name: str) -> History:
    """What the releases say, and what only state knows."""
    state, known = stored(session)
    session.workspace.check_names((name,), also=known)
    model = _loaded(session).releases.models.get(name)
    now, kept = _now(state, name), _kept(state, name)
    live = now[0] if now is not None else None
    pinned = model.pinned if model is not None else None
    deployed = model.deployed if model is not None and (pinned is not None or _promoted(session)) else None
    listed = model.releases if model is not None else ()
    told = {
        **(dict([now]) if now is not None else {}),
        **{a: t for a, t in _archived(state, name).items() if a != live},
    }
    past = [
        Past(
            a, _size(state, name, a, t), rounded(t.get("metrics")), deployed is None and a == live, a == live, a in kept
        )
        for a, t in told.items()
        if a not in {r.artifact for r in listed}
    ]
    past += [
        Past(r.artifact, r.size, r.metrics, r == deployed, r.artifact == live, r.artifact in kept, r) for r in listed
    ]
    return History(name, session.workspace.environment, pinned, tuple(past))


def _size(state: State, name: str, artifact: str, told: Mapping[str, Any]) -> int:
    """Of the files, as a release has it: the manifest is a blob too."""
    blobs: Any = told.get("blobs")
    if blobs is None:
        version = state.get(Address(worker.TYPE.name, name))
        raw: Any = version.inputs["manifest"] if version is not None else None
        return Manifest.from_json(raw).size
    return sum(b["size"] for b in blobs if b["sha256"] != artifact)
