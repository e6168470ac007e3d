"""A model's artifact: the result of its build pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from edgespec.address import Address
from edgespec.artifact import Chunk, Manifest
from edgespec.resources.base import DesiredResource, ResourceType
from edgespec.resources.canonical import SIZE, Rule
from edgespec.resources.facts import BuildFacts
from edgespec.spec.models import EdgeModel, Task
from edgespec.values import Inputs, Outputs, Value, is_known

_TASK: TypeAdapter[Task] = TypeAdapter(Task)


def _task(value: Value) -> Value:
    """A task with its defaults said: one that an older edgespec recorded has fewer fields and means the same."""
    try:
        found: Value = _TASK.dump_python(_TASK.validate_python(value), mode="json")
    except ValidationError:
        return value
    return found


TYPE = ResourceType("model", shape={"chunk": SIZE, "task": Rule(normal=_task)}, guarded=False)


def address(spec: EdgeModel) -> Address:
    return Address(TYPE.name, spec.name)


def outputs(manifest: Manifest) -> Outputs:
    """What later resources use of an artifact: its digest, the manifest itself, and the blobs that make it up."""
    blobs = sorted({*manifest.chunks, Chunk(manifest.digest, len(manifest.encode()))})
    return {
        "engine": manifest.engine,
        "artifact": manifest.digest,
        "size": manifest.size,
        "manifest": manifest.to_json(),
        "blobs": [{"sha256": b.sha256, "size": b.size} for b in blobs],
    }


def pinned(manifest: Manifest, number: int) -> BuildFacts:
    """The facts of an artifact that is deployed as it is, whatever its pipeline would give now."""
    inputs: Mapping[str, Value] = {"artifact": manifest.digest, "release": number, "engine": manifest.engine}
    return BuildFacts(inputs, None, (), manifest)


def is_pinned(inputs: Inputs) -> bool:
    return "artifact" in inputs


def same_task(spec: EdgeModel, manifest: Manifest) -> bool:
    """Whether the artifact does what the spec asks for."""
    return _task(spec.task.model_dump(mode="json")) == _task(dict(manifest.task))


def desired(spec: EdgeModel, facts: BuildFacts) -> DesiredResource:
    inputs: Mapping[str, Any] = {**facts.inputs}
    engine = facts.inputs["engine"]
    expected: Outputs = {"engine": engine} if is_known(engine) else {}
    known = outputs(facts.manifest) if facts.manifest is not None else expected
    return DesiredResource(address(spec), TYPE, inputs, (spec.name,), known, protected=spec.lifecycle.prevent_destroy)
