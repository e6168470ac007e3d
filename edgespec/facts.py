"""What the disk says of each spec: digests, cached stages, the artifact; errors of data and model folders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from edgespec.artifact import Manifest
from edgespec.build.pipeline import Pipeline
from edgespec.diagnostics import Diagnostic, Diagnostics, EdgespecError, SourceRange, error, warning
from edgespec.records import replace
from edgespec.resources import deployment, model
from edgespec.resources.facts import BuildFacts, SpecFacts
from edgespec.session import Session
from edgespec.spec.document import Node
from edgespec.spec.models import EdgeModel
from edgespec.spec.validate import Path, key_place, listed, place
from edgespec.state.model import ResourceRecord, State
from edgespec.values import UNKNOWN, Value, is_known

if TYPE_CHECKING:
    from edgespec.providers.build.model import Artifacts


def facts_of(
    session: Session,
    state: State | None,
    specs: list[EdgeModel] | None = None,
    artifacts: Artifacts | None = None,
) -> tuple[dict[str, SpecFacts], list[Diagnostic]]:
    """What the disk says of each spec. Every spec's errors are gathered before any is raised. With `artifacts`, a spec
    whose artifact is pinned is taken with just that; without, it is what its pipeline would give."""
    pins = session.workspace.pins if artifacts is not None else {}
    pipeline = Pipeline(session.workspace.root, session.cache, lambda _: None, session.remote)
    facts: dict[str, SpecFacts] = {}
    found: list[Diagnostic] = []
    for spec in session.workspace.specs if specs is None else specs:
        try:
            if artifacts is not None and spec.name in pins:
                manifest = artifacts.manifest(pins[spec.name].artifact, spec.name)
                facts[spec.name] = _pinned(session, state, spec, manifest, found)
                continue
            quality = _quality_digest(session, spec, state, found)
            record = state.get(model.address(spec)) if state else None
            found_facts = pipeline.facts(spec, record.inputs if record else None)
            facts[spec.name] = SpecFacts(_remembered(found_facts, spec, record), quality)
        except EdgespecError as e:
            found += (_placed(d, *_about(session, spec, pinned=spec.name in pins)) for d in e.diagnostics)
    session.cache.save()
    if Diagnostics(tuple(found)).has_errors:
        raise EdgespecError(*found)
    return facts, found


def _pinned(
    session: Session, state: State | None, spec: EdgeModel, manifest: Manifest, found: list[Diagnostic]
) -> SpecFacts:
    """An artifact that was promoted, or rolled back to. It must do what the spec asks for; after a rollback it may do
    what the spec asked for then, since nothing else brings back what worked."""
    workspace = session.workspace
    loaded = workspace.releases
    assert loaded is not None  # noqa: S101  # it says what is pinned
    model_releases = loaded.releases.models[spec.name]
    number = model_releases.current
    unlike = list(_unlike(spec, manifest, workspace.nodes[spec.name]))
    if not unlike:
        return SpecFacts(model.pinned(manifest, number), _quality_digest(session, spec, state, found))
    if model_releases.pinned is None:
        into = workspace.environment
        then = (
            f"and {into} deploys release {number} of {spec.name} ({manifest.digest[:12]}), which does not do that. "
            f"Promote one that does first: `edgespec promote {spec.name} --from {workspace.target.promote_from} --to "
            f"{into}`."
        )
        summary = "The release does not fit the spec"
        raise EdgespecError(*(error("ES704", summary, f"{what}, {then}", source=where) for what, where in unlike))
    what, where = unlike[0]
    detail = (
        f"{what}; {spec.name} was rolled back to release {number}, which does what it did then, and its gate is not "
        "measured. Unpin it once a release that fits is promoted."
    )
    found.append(warning("ES704", "The release does not fit the spec", detail, source=where))
    return SpecFacts(model.pinned(manifest, number), None, gated=False)


def _unlike(spec: EdgeModel, manifest: Manifest, node: Node) -> Iterator[tuple[str, SourceRange]]:
    """What the spec asks for and the artifact does not do, with its place."""
    if not model.same_task(spec, manifest):
        now, then = spec.task.model_dump(mode="json"), dict(manifest.task)
        fields = sorted(k for k in {*now, *then} if now.get(k) != then.get(k)) or ["task"]
        yield f"The spec's task has another {listed(fields)}", key_place(node, ("task",))
    engine = spec.worker.engine
    if engine not in ("auto", manifest.engine):
        yield f"The spec asks for the engine {engine}", place(node, ("worker", "engine"))


def _about(session: Session, spec: EdgeModel, *, pinned: bool) -> tuple[Node, Path]:
    """What errors of a spec's artifact are about, where they do not say so: its release, or its source."""
    releases = session.workspace.releases
    if pinned and releases is not None:
        return releases.node, ("models", spec.name)
    return session.workspace.nodes[spec.name], ("model", "source")


def _placed(found: Diagnostic, node: Node, about: Path) -> Diagnostic:
    """A build's diagnostic at the field that it is about: the build knows the spec's values, not where they stand."""
    if found.source is not None:
        return found
    return replace(found, source=place(node, found.at or about))


def _quality_digest(session: Session, spec: EdgeModel, state: State | None, found: list[Diagnostic]) -> str | None:
    """The digest of the quality data, which is read and checked unless it was deployed with just this content."""
    if spec.quality is None:
        return None
    path = session.workspace.root / spec.quality.data
    try:
        file = session.cache.data_file(session.workspace.root, spec.quality.data)
    except OSError as e:
        where = place(session.workspace.nodes[spec.name], ("quality", "data"))
        detail = f"{spec.quality.data}: {e.strerror}. Paths are relative to edgespec.yaml."
        raise EdgespecError(error("ES161", "File cannot be read", detail, source=where)) from e
    record = state.get(deployment.address(spec)) if state else None
    gate: Any = record.inputs.get("quality") if record else None
    if gate is None or gate["data_digest"] != file.sha256:
        from edgespec.build.data import read_examples
        from edgespec.build.datafiles import leakage

        checked = read_examples(path.read_bytes(), spec.quality.data, spec.task)
        found += checked.diagnostics
        found += leakage(spec, session.workspace.root, checked.value or (), spec.quality.data)
    return file.sha256


def _remembered(facts: BuildFacts, spec: EdgeModel, record: ResourceRecord | None) -> BuildFacts:
    """What this machine cannot know is taken to be what state knows, when the source has the same name: a plan on a
    machine that builds nothing must not call a model changed only because it cannot look."""
    if record is None or is_known(dict(facts.inputs)) or record.inputs.get("source") != spec.model.source:
        return facts
    inputs: dict[str, Value] = {**facts.inputs}
    for name in ("source_digest", "engine", "tools"):
        if not is_known(inputs[name]):
            inputs[name] = record.inputs.get(name, UNKNOWN)
    return replace(facts, inputs=inputs)
