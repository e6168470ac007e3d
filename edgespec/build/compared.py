"""What would be built anew between two versions of a spec: the stages and keys of a build, with git's digests in the
place of files. Nothing is read and nothing has to be installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from edgespec.build.cache import InputFile, Stamp
from edgespec.build.hub import parse_hub
from edgespec.build.keys import inputs_of, keys_of
from edgespec.build.reasons import why
from edgespec.build.sources import ModelFiles, parse_package
from edgespec.build.stages.stage import Step
from edgespec.build.steps import Named, files_named, models_named, numbered, steps_of
from edgespec.plan.comparison import BuildDiff, FileDiff, StageDiff
from edgespec.spec.models import EdgeModel
from edgespec.values import Value, digest

Ids = Callable[[str], str | None]
"""The digest of a file or, for a folder or an ONNX file, of a model; None where it is not known."""
_NO_STAMP = Stamp(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class BuildView:
    """A build as its keys tell it. Keys of two views compare; they are not those of a cache."""

    steps: tuple[Step, ...]
    inputs: Mapping[str, Value]
    keys: Mapping[str, str]
    files: Mapping[str, tuple[str, str | None]]
    """Field -> path and digest, of everything that the spec names in the project's folder."""


def view(spec: EdgeModel, ids: Ids) -> BuildView:
    named = {**dict(_data(spec)), **dict(_models(spec))}
    found = {field: (path, ids(path)) for field, path in named.items()}

    def file(name: Named) -> InputFile:
        return InputFile(Path(name.value), name.value, _id(name.value, ids), text=False, stamp=_NO_STAMP)

    def model(name: Named) -> ModelFiles:
        weights = InputFile(Path(name.value), "model", _id(name.value, ids), text=False, stamp=_NO_STAMP)
        return ModelFiles((weights,), weights)

    steps = steps_of(spec, spec.worker.engine, file, model)
    tools: dict[str, Value] = {t: "" for s in steps for t in s.tools}
    inputs = inputs_of(spec, steps, _id(spec.model.source, ids), spec.worker.engine, tools)
    return BuildView(steps, inputs, keys_of(steps, inputs), found)


def local_path(source: str) -> str | None:
    """Where in the project a model is; None for a package or a model of a hub."""
    if parse_package(source) or parse_hub(source):
        return None
    return source.removeprefix("./").rstrip("/")


def _id(path: str, ids: Ids) -> str:
    """A model that is named and not kept here is what its name says."""
    here = local_path(path)
    known = ids(here) if here is not None else None
    return known or digest(path)


def _data(spec: EdgeModel) -> Iterator[tuple[str, str]]:
    for name in files_named(spec):
        stage = [str(p) for p in name.where if isinstance(p, str)]
        prefix = stage[2] if stage[:2] == ["model", "pipeline"] else stage[0]
        position = f"{name.where[2]}." if stage[:2] == ["model", "pipeline"] else ""
        yield f"{position}{prefix}.{name.field}", name.value
    if spec.quality is not None:
        yield "quality.data", spec.quality.data


def _models(spec: EdgeModel) -> Iterator[tuple[str, str]]:
    named = [
        ("source", spec.model.source),
        *((f"{n.where[2]}.{n.where[3]}.source", n.value) for n in models_named(spec)),
    ]
    for field, source in named:
        if (path := local_path(source)) is not None:
            yield field, path


def compare(before: BuildView, after: BuildView) -> BuildDiff:
    """Which stages run again and why, and which files differ, whatever their part."""
    changed = [s for s in after.steps if before.keys.get(s.name) != after.keys[s.name] and s.name != "fetch"]
    positions = {s.name: n for n, s in numbered(after.steps)}
    stages = tuple(StageDiff(s.name, why(s, positions.get(s.name), after.inputs, before.inputs)) for s in changed)
    return BuildDiff(stages, tuple(_files(before, after)))


def _files(before: BuildView, after: BuildView) -> Iterator[FileDiff]:
    """Files of the same place in the spec and the same name; another name is another value of the spec's."""
    for field, (path, new) in after.files.items():
        if field in before.files and before.files[field][0] == path:
            old = before.files[field][1]
            if old != new or new is None:
                yield FileDiff(_shown(field), path, old, new)


def _shown(field: str) -> str:
    """Without the stage's position."""
    position, _, rest = field.partition(".")
    return rest if position.isdigit() else field
