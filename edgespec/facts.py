"""What the disk says of each spec: digests, cached stages, the artifact; errors of data and model folders."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edgespec.build.pipeline import Pipeline
from edgespec.diagnostics import Diagnostic, Diagnostics, EdgespecError, error
from edgespec.resources import deployment, model
from edgespec.resources.facts import BuildFacts, SpecFacts
from edgespec.session import Session
from edgespec.spec.document import Node
from edgespec.spec.models import EdgeModel
from edgespec.spec.validate import place
from edgespec.state.model import ResourceRecord, State
from edgespec.values import UNKNOWN, Value, is_known


def facts_of(
    session: Session, state: State | None, specs: list[EdgeModel] | None = None
) -> tuple[dict[str, SpecFacts], list[Diagnostic]]:
    """What the disk says of each spec. Every spec's errors are gathered before any is raised."""
    pipeline = Pipeline(session.workspace.root, session.cache, lambda _: None, session.remote)
    facts: dict[str, SpecFacts] = {}
    found: list[Diagnostic] = []
    for spec in session.workspace.specs if specs is None else specs:
        try:
            quality = _quality_digest(session, spec, state, found)
            record = state.get(model.address(spec)) if state else None
            found_facts = pipeline.facts(spec, record.inputs if record else None)
            facts[spec.name] = SpecFacts(_remembered(found_facts, spec, record), quality)
        except EdgespecError as e:
            found += (_placed(d, session.workspace.nodes[spec.name]) for d in e.diagnostics)
    if Diagnostics(tuple(found)).has_errors:
        raise EdgespecError(*found)
    return facts, found


def _placed(found: Diagnostic, node: Node) -> Diagnostic:
    """A build's diagnostic at the field that it is about: the build knows the spec's values, not where they stand."""
    if found.source is not None:
        return found
    return replace(found, source=place(node, found.at or ("model", "source")))


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
    if record is None or is_known(dict(facts.inputs)) or record.inputs["source"] != spec.model.source:
        return facts
    inputs: dict[str, Value] = {**facts.inputs}
    for name in ("source_digest", "engine", "tools"):
        if not is_known(inputs[name]):
            inputs[name] = record.inputs.get(name, UNKNOWN)
    return replace(facts, inputs=inputs)
