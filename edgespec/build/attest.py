"""The statement of one build: what it was asked for, what it read, who built it with what. It is kept beside the
artifact in the caches, by the key that signed it, and never made anew for an artifact that has one by that key."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from edgespec import __version__
from edgespec.artifact import Manifest
from edgespec.attestation import LIMIT, LOCAL_BUILDER, Envelope, statement_of
from edgespec.build.cache import Cache, Entry, InputFile
from edgespec.build.compared import local_path
from edgespec.build.keys import whole_key
from edgespec.build.pipeline import Build
from edgespec.build.remote import RemoteCache
from edgespec.signing import Signer
from edgespec.spec.models import EdgeModel
from edgespec.values import digest, is_known

STAGE: Final = "provenance"
"""Under which statements are kept in the caches, as results of stages are."""
_FILE: Final = "statement.json"
BUILDER_ID: Final = "EDGESPEC_BUILDER_ID"


@dataclass(frozen=True, slots=True)
class Revision:
    """The project in git; `commit` is empty where there is none."""

    uri: str = ""
    commit: str = ""
    dirty: bool = False


def kept(cache: Cache, remote: RemoteCache | None, artifact: str, signer: str) -> bytes | None:
    """The envelope that is said to be signed with the key of this id (empty: with none), of this machine before others'
    machines."""
    key = digest([artifact, signer])
    entry = cache.entry(STAGE, key)
    if entry is None and remote is not None:
        entry = remote.get(cache, STAGE, key, lambda _: None)
    return _read(cache, entry) if entry is not None else None


def keep(cache: Cache, remote: RemoteCache | None, artifact: str, signer: str, raw: bytes) -> None:
    key, entry = digest([artifact, signer]), Entry({_FILE: cache.put(raw)}, {})
    cache.commit(STAGE, key, entry)
    if remote is not None:
        remote.put(cache, STAGE, key, entry, lambda _: None)


def _read(cache: Cache, entry: Entry) -> bytes | None:
    blob = entry.outputs.get(_FILE)
    return cache.read(blob) if blob is not None and blob.size <= LIMIT else None


def made(
    build: Build, manifest: Manifest, revision: Revision, environ: Mapping[str, str], signer: Signer | None
) -> Envelope:
    """The statement of a build that has run, signed where there is a key."""
    spec, artifact = build.job.spec, manifest.digest
    tools: Any = build.inputs["tools"]
    payload = statement_of(
        spec.name,
        artifact,
        external=_external(spec),
        internal={
            "engine": manifest.engine,
            "build": whole_key(build.steps, build.inputs),
            "stages": [{"name": s.name, "version": s.stage.version, "key": build.keys[s.name]} for s in build.steps],
        },
        dependencies=[*_git(revision), *_files(build)],
        builder=builder_id(environ),
        versions={"edgespec": __version__, "python": platform.python_version(), **_known(tools)},
    )
    return signer.sign(payload) if signer is not None else Envelope(payload)


def _external(spec: EdgeModel) -> dict[str, Any]:
    """What the artifact depends on of what the spec says."""
    said = spec.model_dump(mode="json", exclude_none=True, include={"model", "task", "quantization"})
    return {
        "name": spec.name,
        **said,
        "worker": {"engine": spec.worker.engine},
        "cache": {"weights": {"kv": {"chunk": spec.cache.weights.kv.chunk}}},
    }


def _known(tools: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(version) for name, version in tools.items() if is_known(version)}


def _git(revision: Revision) -> list[dict[str, Any]]:
    if not revision.commit:
        return []
    found: dict[str, Any] = {"name": "project", "uri": revision.uri, "digest": {"gitCommit": revision.commit}}
    return [{**found, "annotations": {"dirty": True}} if revision.dirty else found]


def _files(build: Build) -> Iterator[dict[str, Any]]:
    """The model's files and every file that a stage reads. Text is hashed with LF at its line ends."""
    yield from _of_model("model.source", build.job.spec.model.source, build.job.source.all)
    for step in build.steps:
        for field, file in sorted(step.data.items()):
            yield _dependency(f"{step.name}.{field}", f"file:{file.name}", file.sha256)
        for field, model in sorted(step.models.items()):
            source = str(getattr(step.options, field))
            yield from _of_model(f"{step.name}.{field}", source, model.all)


def _of_model(name: str, source: str, files: Sequence[InputFile]) -> Iterator[dict[str, Any]]:
    here = local_path(source)
    for file in sorted(files, key=lambda f: f.name):
        if here is None:
            uri = f"{source}#{file.name}"
        else:
            uri = f"file:{here}" if here.endswith(".onnx") and file.name == "model.onnx" else f"file:{here}/{file.name}"
        yield _dependency(f"{name}/{file.name}", uri, file.sha256)


def _dependency(name: str, uri: str, sha256: str) -> dict[str, Any]:
    return {"name": name, "uri": uri, "digest": {"sha256": sha256}}


def builder_id(environ: Mapping[str, str]) -> str:
    """EDGESPEC_BUILDER_ID, or what GitHub Actions or GitLab CI say of the run's definition; else nobody's machine. A
    signature is what makes it more than a claim."""
    if own := environ.get(BUILDER_ID):
        return own
    if environ.get("GITHUB_ACTIONS") == "true" and (ref := environ.get("GITHUB_WORKFLOW_REF")):
        return f"{environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{ref}"
    if environ.get("GITLAB_CI") == "true" and (project := environ.get("CI_PROJECT_URL")):
        return f"{project}//{environ.get('CI_CONFIG_PATH', '.gitlab-ci.yml')}"
    return LOCAL_BUILDER
