"""From a spec to an artifact: which stages there are to run, and running them.

`facts` and `build` walk the same list of stages under the same keys, so a plan cannot promise what a build does not do.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from edgespec.artifact import Manifest
from edgespec.build import sources
from edgespec.build.cache import Cache, Entry, InputFile
from edgespec.build.engines import ONNXRUNTIME, Choice, choose
from edgespec.build.events import BuildEvent, Progress
from edgespec.build.problems import fail
from edgespec.build.stages import compile as compile_stage
from edgespec.build.stages import export, fetch, head, pack, quantize
from edgespec.build.stages.stage import Run, Stage
from edgespec.resources.facts import BuildFacts, StageFacts
from edgespec.spec.models import EdgeModel, TextClassification
from edgespec.values import UNKNOWN, Value, digest

__all__ = ["BuildEvent", "Pipeline"]

STAGES: Final[tuple[Stage, ...]] = (
    fetch.STAGE,
    export.STAGE,
    head.STAGE,
    compile_stage.STAGE,
    quantize.STAGE,
    pack.STAGE,
)
TOOLS: Final = ("numpy", "onnx", "onnxruntime", "tokenizers")


class Pipeline:
    """Builds the models of one project. Reads the project and the cache; writes the cache only."""

    def __init__(self, root: Path, cache: Cache, progress: Progress) -> None:
        self.root = root
        self._cache = cache
        self._progress = progress

    def facts(self, spec: EdgeModel) -> BuildFacts:
        """What a build would do, without doing it.

        A stage counts as cached when it would not run. Raises EdgespecError for inputs that are missing or, where
        something would have to be built, cannot be right.
        """
        self._check_pairing(spec)
        train = self._train(spec)
        files = sources.find(spec.model.source, self.root, self._cache)
        if files is None:
            self._cache.save()
            return self._unfetched(spec, train)
        run, inputs, choice = self._prepare(spec, files, train)
        stages = stages_of(spec, choice.name)
        keys = keys_of(stages, inputs)
        todo = self._plan(run, stages, keys)
        for stage in stages:
            if stage.name in todo:
                stage.check(run)
        self._cache.save()
        facts = tuple(StageFacts(s.name, keys[s.name], cached=s.name not in todo) for s in stages)
        manifest = self._manifest(run.entries.get("pack"))
        return BuildFacts(inputs, _whole_key(stages, inputs), facts, manifest, choice.reason)

    def _unfetched(self, spec: EdgeModel, train: InputFile | None) -> BuildFacts:
        """What is known of a model whose package is not on this machine."""
        inputs = self._inputs(spec, None, train, UNKNOWN)
        stages = stages_of(spec, spec.worker.engine)
        return BuildFacts(inputs, None, tuple(StageFacts(s.name, None, cached=False) for s in stages), None)

    def _prepare(
        self, spec: EdgeModel, files: sources.ModelFiles, train: InputFile | None
    ) -> tuple[Run, Mapping[str, Value], Choice]:
        """The run, its inputs with the engine among them, and why that engine."""
        run = Run(spec, files, train, self._cache, self._progress)
        choice = choose(run, self._inputs(spec, files, train, UNKNOWN))
        return run, self._inputs(spec, files, train, choice.name), choice

    def build(self, spec: EdgeModel) -> Manifest:
        """Runs what is not in the cache. Killed at any moment, it leaves whole results or none."""
        self._check_pairing(spec)
        train = self._train(spec)
        files = self._fetch(spec)
        run, inputs, choice = self._prepare(spec, files, train)
        stages = stages_of(spec, choice.name)
        keys = keys_of(stages, inputs)
        todo = self._plan(run, stages, keys)
        for stage in stages:
            if stage.name in todo:
                stage.check(run)
        for stage in stages:
            if stage.name in todo:
                self._run(stage, run, keys[stage.name])
            elif stage.name != "fetch" or not todo:
                self._progress(BuildEvent(stage.name, "cached", None, cached=True))
        self._cache.save()
        manifest = self._manifest(run.entries.get("pack"))
        if manifest is None:
            raise fail("ES532", f"{self._cache.root}: the artifact was removed while it was being built. Run it again.")
        return manifest

    def blob(self, sha256: str) -> Path | None:
        """The verified bytes of a chunk or a manifest, as a file in the cache; None when they are not there."""
        return self._cache.path(sha256)

    # --- inputs

    def _check_pairing(self, spec: EdgeModel) -> None:
        heads = len(spec.model.pipeline)
        if heads and not isinstance(spec.task, TextClassification):
            raise fail(
                "ES513",
                f"{spec.name}: the pipeline fits a head, which is a classifier, but the task is {spec.task.type}. "
                "Remove the head, or make the task text-classification.",
            )
        if heads > 1:
            raise fail("ES513", f"{spec.name}: the pipeline has {heads} heads; a model has one classifier.")

    def _train(self, spec: EdgeModel) -> InputFile | None:
        if spec.head is None:
            return None
        path = self.root / spec.head.train
        try:
            return self._cache.input(path, spec.head.train, text=True)
        except OSError as why:
            raise fail(
                "ES500",
                f"{spec.name}: `head: {{train: {spec.head.train}}}`: {path}: {why.strerror or why}. "
                "Paths are relative to edgespec.yaml.",
            ) from None

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
        self, spec: EdgeModel, files: sources.ModelFiles | None, train: InputFile | None, engine: Value
    ) -> Mapping[str, Value]:
        """Everything that the artifact depends on, as a person reads it in a plan."""
        fitted: Value = None
        if spec.head and train:
            head = spec.head
            fitted = {"train": head.train, "train_digest": train.sha256, "seed": head.seed, "l2": head.l2}
        return {
            "source": spec.model.source,
            "source_digest": files.digest if files else UNKNOWN,
            "head": fitted,
            "task": spec.task.model_dump(mode="json"),
            "quantization": _quantization(spec),
            "engine": engine,
            "chunk": spec.cache.weights.kv.chunk,
            "tools": {name: _version(name) for name in TOOLS},
        }

    # --- stages

    def _plan(self, run: Run, stages: tuple[Stage, ...], keys: Mapping[str, str]) -> set[str]:
        """The names of the stages that must run, from the last one back; fills in the results that are there."""
        needed, todo = {"pack"}, set()
        for stage in reversed(stages):
            if stage.name not in needed or stage.name == "fetch":
                continue
            entry = self._cache.entry(stage.name, keys[stage.name])
            if entry is not None:
                run.entries[stage.name] = entry
            else:
                todo.add(stage.name)
                needed.update(stage.parents)
        return todo

    def _run(self, stage: Stage, run: Run, key: str) -> None:
        result = stage.run(run)
        for file in (*run.files.all, run.train):
            if file is not None:
                file.check()
        entry = Entry({name: self._cache.put(data) for name, data in result.outputs.items()}, result.notes)
        self._cache.commit(stage.name, key, entry)
        run.entries[stage.name] = entry
        run.say(stage.name, "done", 1.0)

    def _manifest(self, entry: Entry | None) -> Manifest | None:
        raw = self._cache.read(entry.outputs["manifest.json"]) if entry else None
        return Manifest.decode(raw) if raw else None


def stages_of(spec: EdgeModel, engine: str) -> tuple[Stage, ...]:
    """The stages of a build for one engine; `auto`, before it is resolved, is taken for the engine edge."""
    other = "compile" if engine == ONNXRUNTIME else "quantize"
    left_out = {other} if spec.head is not None else {other, "head"}
    return tuple(s for s in STAGES if s.name not in left_out)


def _quantization(spec: EdgeModel) -> str:
    """`int8`, or `int4/32` with its group."""
    method = spec.quantization.method
    return f"{method}/{spec.quantization.group_size}" if method == "int4" else method


def keys_of(stages: tuple[Stage, ...], inputs: Mapping[str, Value]) -> dict[str, str]:
    keys: dict[str, str] = {}
    for stage in stages:
        keys[stage.name] = stage.key(inputs, keys)
    return keys


def _whole_key(stages: tuple[Stage, ...], inputs: Mapping[str, Value]) -> str:
    versions: dict[str, Value] = {s.name: s.version for s in stages}
    return digest({"inputs": dict(inputs), "stages": versions})


@cache
def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        raise fail("ES531", f"{package} is not installed. Run `pip install {package}`.") from None
