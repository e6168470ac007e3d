"""From a spec to an artifact: which steps there are to run, and running them.

`facts` and `build` walk the same list of steps under the same keys, so a plan cannot promise what a build does not do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

from edgespec.artifact import Manifest
from edgespec.build import sources
from edgespec.build.cache import Cache, Entry, InputFile
from edgespec.build.engines import choose
from edgespec.build.events import BuildEvent, Progress
from edgespec.build.problems import fail
from edgespec.build.reasons import why
from edgespec.build.stages.stage import Job, Step
from edgespec.build.steps import Named, numbered, pipeline_inputs, steps_of
from edgespec.diagnostics import EdgespecError
from edgespec.resources.facts import BuildFacts, StageFacts
from edgespec.spec.models import EdgeModel, TextClassification
from edgespec.spec.validate import dotted
from edgespec.values import UNKNOWN, Value, digest, is_known

__all__ = ["BuildEvent", "Pipeline"]

_BINARY: Final = (".parquet",)
"""Data files that are not text."""


@dataclass(slots=True)
class _Build:
    """One build, before anything of it has run."""

    job: Job
    steps: tuple[Step, ...]
    inputs: Mapping[str, Value]
    keys: Mapping[str, str]
    reason: str
    """Why the engine was chosen."""

    def job_of(self, step: Step) -> Job:
        """The job at one of its steps. Results are shared: what one step makes the next one sees."""
        before = self.steps[: self.steps.index(step)]
        made = [s.name for s in before if s.stage.makes_checkpoint]
        j = self.job
        return Job(j.spec, j.source, j.cache, j.progress, step, j.root, j.entries, made[-1] if made else None)


class Pipeline:
    """Builds the models of one project. Reads the project and the cache; writes the cache only."""

    def __init__(self, root: Path, cache: Cache, progress: Progress) -> None:
        self.root = root
        self._cache = cache
        self._progress = progress

    def facts(self, spec: EdgeModel, previous: Mapping[str, Value] | None = None) -> BuildFacts:
        """What a build would do, without doing it; `previous` are the inputs of the deployed artifact, for reasons.

        A stage counts as cached when it would not run. Raises EdgespecError for inputs that are missing or, where
        something would have to be built, cannot be right.
        """
        _check_pairing(spec)
        files = sources.find(spec.model.source, self.root, self._cache)
        if files is None or UNKNOWN in self._tools(self._steps(spec, spec.worker.engine)).values():
            facts = self._unknown(spec, files)
            self._cache.save()
            return facts
        build = self._prepare(spec, files)
        todo = self._plan(build)
        self._check(build, todo)
        self._cache.save()
        stages = tuple(_stage_facts(build, s, todo, previous) for s in build.steps)
        manifest = self._manifest(build.job.entries.get("pack"))
        return BuildFacts(build.inputs, _whole_key(build), stages, manifest, build.reason)

    def build(self, spec: EdgeModel) -> Manifest:
        """Runs what is not in the cache. Killed at any moment, it leaves whole results or none."""
        _check_pairing(spec)
        missing = [n for n, v in self._tools(self._steps(spec, spec.worker.engine)).items() if not is_known(v)]
        if missing:
            raise fail("ES531", f"{', '.join(missing)} not installed. Run `pip install 'edgespec[build]'`.")
        build = self._prepare(spec, self._fetch(spec))
        todo = self._plan(build)
        self._check(build, todo)
        for step in build.steps:
            if step.name in todo:
                self._run(build, step)
            elif step.name != "fetch" or not todo:
                self._progress(BuildEvent(step.name, "cached", None, cached=True))
        self._cache.save()
        manifest = self._manifest(build.job.entries.get("pack"))
        if manifest is None:
            raise fail("ES532", f"{self._cache.root}: the artifact was removed while it was being built. Run it again.")
        return manifest

    def blob(self, sha256: str) -> Path | None:
        """The verified bytes of a chunk or a manifest, as a file in the cache; None when they are not there."""
        return self._cache.path(sha256)

    # --- what there is to do

    def _unknown(self, spec: EdgeModel, files: sources.ModelFiles | None) -> BuildFacts:
        """What is known of a model whose package, or whose tools, are not on this machine."""
        steps = self._steps(spec, spec.worker.engine)
        inputs = self._inputs(spec, files, steps, UNKNOWN)
        return BuildFacts(inputs, None, tuple(StageFacts(s.name, None, cached=False) for s in steps), None)

    def _prepare(self, spec: EdgeModel, files: sources.ModelFiles) -> _Build:
        steps = self._steps(spec, spec.worker.engine)
        job = Job(spec, files, self._cache, self._progress, steps[0], self.root)
        choice = choose(job, self._inputs(spec, files, steps, UNKNOWN))
        steps = self._steps(spec, choice.name)
        inputs = self._inputs(spec, files, steps, choice.name)
        return _Build(job, steps, inputs, keys_of(steps, inputs), choice.reason)

    def _steps(self, spec: EdgeModel, engine: str) -> tuple[Step, ...]:
        return steps_of(spec, engine, self._file, self._model)

    def _file(self, named: Named) -> InputFile:
        path = self.root / named.value
        try:
            return self._cache.input(path, named.value, text=path.suffix not in _BINARY)
        except OSError as cause:
            detail = f"`{dotted(named.where)}: {named.value}`: {path}: {cause.strerror or cause}. "
            raise fail("ES500", f"{detail}Paths are relative to edgespec.yaml.", at=named.where) from None

    def _model(self, named: Named) -> sources.ModelFiles | None:
        return sources.find(named.value, self.root, self._cache)

    def _fetch(self, spec: EdgeModel) -> sources.ModelFiles:
        files = sources.find(spec.model.source, self.root, self._cache)
        if files is not None:
            return files
        from edgespec.build.packages import install

        package = sources.parse_package(spec.model.source)
        if package is None:
            raise TypeError("only packages are fetched")
        return sources.in_package(install(package, self._cache, self._progress), package, self._cache)

    def _inputs(
        self, spec: EdgeModel, files: sources.ModelFiles | None, steps: tuple[Step, ...], engine: Value
    ) -> Mapping[str, Value]:
        """Everything that the artifact depends on, as a person reads it in a plan."""
        return {
            "source": spec.model.source,
            "source_digest": files.digest if files else UNKNOWN,
            "pipeline": pipeline_inputs(steps),
            "task": spec.task.model_dump(mode="json"),
            "quantization": _quantization(spec),
            "engine": engine,
            "chunk": spec.cache.weights.kv.chunk,
            "tools": self._tools(steps),
        }

    @staticmethod
    def _tools(steps: tuple[Step, ...]) -> dict[str, Value]:
        return {name: _version(name) for name in sorted({t for s in steps for t in s.stage.tools})}

    def _plan(self, build: _Build) -> set[str]:
        """The names of the steps that must run, from the last one back; fills in the results that are there."""
        needed, todo = {"pack"}, set()
        for step in reversed(build.steps):
            if step.name not in needed or step.name == "fetch":
                continue
            entry = self._cache.entry(step.stage.name, build.keys[step.name])
            if entry is not None:
                build.job.entries[step.name] = entry
            else:
                todo.add(step.name)
                needed.update(step.parents)
        return todo

    def _check(self, build: _Build, todo: set[str]) -> None:
        """Every check that can be made before anything runs."""
        for step in build.steps:
            if step.name not in todo:
                continue
            job = build.job_of(step)
            with _about(step):
                step.stage.check_data(job)
                if job.checkpoint is None or job.checkpoint in build.job.entries:
                    step.stage.check(job)

    # --- doing it

    def _run(self, build: _Build, step: Step) -> None:
        job = build.job_of(step)
        with _about(step):
            if job.checkpoint is not None:
                step.stage.check(job)
            result = step.stage.run(job)
        for file in (*job.source.all, *step.data.values()):
            file.check()
        entry = Entry({name: self._cache.put(data) for name, data in result.outputs.items()}, result.notes)
        self._cache.commit(step.stage.name, build.keys[step.name], entry)
        build.job.entries[step.name] = entry
        job.say("done", 1.0)

    def _manifest(self, entry: Entry | None) -> Manifest | None:
        raw = self._cache.read(entry.outputs["manifest.json"]) if entry else None
        return Manifest.decode(raw) if raw else None


def _stage_facts(build: _Build, step: Step, todo: set[str], previous: Mapping[str, Value] | None) -> StageFacts:
    if step.name not in todo:
        return StageFacts(step.name, build.keys[step.name], cached=True)
    position = next((n for n, s in numbered(build.steps) if s is step), None)
    return StageFacts(step.name, build.keys[step.name], False, why(step, position, build.inputs, previous))


@contextlib.contextmanager
def _about(step: Step) -> Iterator[None]:
    """What is raised inside is about the step's place in the spec, unless it says so itself."""
    try:
        yield
    except EdgespecError as e:
        raise EdgespecError(*(d if d.at else replace(d, at=step.where) for d in e.diagnostics)) from e.__cause__


def _check_pairing(spec: EdgeModel) -> None:
    heads = sum(stage.kind == "head" for stage in spec.model.pipeline)
    if heads and not isinstance(spec.task, TextClassification):
        raise fail(
            "ES513",
            f"{spec.name}: the pipeline fits a head, which is a classifier, but the task is {spec.task.type}. "
            "Remove the head, or make the task text-classification.",
        )
    if heads > 1:
        raise fail("ES513", f"{spec.name}: the pipeline has {heads} heads; a model has one classifier.")


def _quantization(spec: EdgeModel) -> str:
    """`int8`, or `int4/32` with its group, or `gptq/4/128`."""
    quantization = spec.quantization
    parts: list[str] = [quantization.method]
    if quantization.by_tool:
        parts.append(str(quantization.width))
    if quantization.grouped:
        parts.append(str(quantization.group_size))
    return "/".join(parts)


def keys_of(steps: tuple[Step, ...], inputs: Mapping[str, Value]) -> dict[str, str]:
    """What each step's result is kept under."""
    keys: dict[str, str] = {}
    for step in steps:
        keys[step.name] = step.key(inputs, keys)
    return keys


def _whole_key(build: _Build) -> str:
    versions: dict[str, Value] = {s.name: s.stage.version for s in build.steps}
    return digest({"inputs": dict(build.inputs), "stages": versions})


@cache
def _version(package: str) -> Value:
    """UNKNOWN for a package that only a build needs and that is not here; raises ES531 for one of the core."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        if package not in ("numpy", "onnx", "onnxruntime", "tokenizers"):
            return UNKNOWN
        raise fail("ES531", f"{package} is not installed. Run `pip install {package}`.") from None
