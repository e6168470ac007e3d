"""From a spec to an artifact: which steps there are to run, and running them.

`facts` and `build` walk the same list of steps under the same keys, so a plan cannot promise what a build does not do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from edgespec.artifact import Manifest
from edgespec.build import sources
from edgespec.build.cache import Cache, Entry, InputFile
from edgespec.build.engines import ONNXRUNTIME, choose
from edgespec.build.events import BuildEvent, Progress
from edgespec.build.keys import inputs_of, keys_of, tools_of, whole_key
from edgespec.build.problems import fail
from edgespec.build.reasons import why
from edgespec.build.remote import RemoteCache
from edgespec.build.stages.stage import Job, Step
from edgespec.build.steps import Named, models_named, numbered, steps_of
from edgespec.diagnostics import EdgespecError
from edgespec.records import replace
from edgespec.resources.facts import BuildFacts, StageFacts
from edgespec.spec.models import EdgeModel
from edgespec.spec.validate import dotted
from edgespec.values import UNKNOWN, Value, is_known

__all__ = ["BuildEvent", "Pipeline"]


class Build(Struct):
    """One build, before anything of it has run. Results are in `job.entries`."""

    job: Job
    steps: tuple[Step, ...]
    inputs: Mapping[str, Value]
    keys: Mapping[str, str]
    reason: str
    """Why the engine was chosen."""
    todo: frozenset[str] = frozenset()
    """The names of the steps that must run."""

    def job_of(self, step: Step) -> Job:
        """The job at one of its steps. Results are shared: what one step makes the next one sees."""
        before = self.steps[: self.steps.index(step)]
        made = [s.name for s in before if s.stage.makes_checkpoint]
        j = self.job
        return Job(j.spec, j.source, j.cache, j.progress, step, j.root, j.entries, made[-1] if made else None, j.fresh)


class Pipeline:
    """Builds the models of one project. Reads the project and the caches; writes the caches only.

    `remote` is shared with other machines. With `fresh` every stage runs, and says so when its result is another than
    the one in the cache, which it replaces.
    """

    def __init__(
        self, root: Path, cache: Cache, progress: Progress, remote: RemoteCache | None = None, *, fresh: bool = False
    ) -> None:
        self.root = root
        self._cache = cache
        self._progress = progress
        self._remote = remote
        self._fresh = fresh
        self._found: dict[str, sources.ModelFiles] = {}
        """Models that one `facts` after another has found: many specs have the same."""

    def facts(self, spec: EdgeModel, previous: Mapping[str, Value] | None = None) -> BuildFacts:
        """What a build would do, without doing it; `previous` are the inputs of the deployed artifact, for reasons.

        A stage counts as cached when it would not run. Raises EdgespecError for inputs that are missing or, where
        something would have to be built, cannot be right. Digests of files are remembered once the cache is saved.
        """
        files = self._find(spec.model.source)
        steps = self._steps(spec, spec.worker.engine)
        known = all(s.inputs is None or is_known(dict(s.inputs)) for s in steps)
        if files is None or not known or UNKNOWN in tools_of(steps).values():
            return self._unknown(spec, files, steps)
        build = self._prepare(spec, files, steps)
        todo = self._plan(build)
        shared = self._shared(build, todo)
        build.todo = _missing(build, frozenset(build.job.entries) | shared)
        self._check(build)
        stages = tuple(_stage_facts(build, s, shared, previous) for s in build.steps)
        manifest = self._manifest(build.job.entries.get("pack"))
        return BuildFacts(build.inputs, whole_key(build.steps, build.inputs), stages, manifest, build.reason)

    def build(self, spec: EdgeModel) -> Manifest:
        """Runs what is not in a cache. Killed at any moment, it leaves whole results or none."""
        with self.using():
            build = self.prepare(spec)
            for step in build.steps:
                if step.name in build.todo:
                    self.run(build, step)
            return self.finish(build)

    def using(self) -> contextlib.AbstractContextManager[None]:
        """Held around everything that reads results: nobody sweeps the cache meanwhile."""
        return self._cache.in_use(lambda who: self._progress(BuildEvent("fetch", f"waiting for {who}: cache gc")))

    def prepare(self, spec: EdgeModel) -> Build:
        """Fetches the model and finds out what there is to do; raises EdgespecError for what cannot work."""
        files = sources.fetch(spec.model.source, self.root, self._cache, self._progress)
        for named in models_named(spec):
            sources.fetch(named.value, self.root, self._cache, self._progress)
        missing = [n for n, v in tools_of(self._steps(spec, spec.worker.engine)).items() if not is_known(v)]
        if missing:
            raise fail("ES531", f"{', '.join(missing)} not installed. Run `pip install 'edgespec[build]'`.")
        build = self._prepare(spec, files)
        build.todo = self._plan(build, receive=True)
        self._check(build)
        for step in build.steps:
            if step.name not in build.todo and (step.name != "fetch" or not build.todo):
                self._progress(BuildEvent(step.name, "cached", None, cached=True))
        return build

    def run_one(self, spec: EdgeModel, name: str, key: str) -> None:
        """Runs one step of a build whose earlier steps are in the cache: what an executor does elsewhere. `key` is what
        the result goes by there; another one here means other inputs or other versions of tools."""
        with self.using():
            build = self._prepare(spec, sources.fetch(spec.model.source, self.root, self._cache, self._progress))
            step = next(s for s in build.steps if s.name == name)
            if build.keys[name] != key:
                tools = ", ".join(f"{t} {v}" for t, v in tools_of((step,)).items()) or "none"
                raise fail(
                    "ES587",
                    f"{spec.name}: {name} would not be the same here: the project's files or the tools differ from "
                    f"those of the machine that asked. Tools of the stage here: {tools}. edgespec must be the same.",
                )
            for earlier in build.steps:
                if earlier.name in step.parents:
                    self.collect(build, earlier)
            self.run(build, step)
            self._cache.save()

    def finish(self, build: Build) -> Manifest:
        """The artifact of a build whose steps have run."""
        self._cache.save()
        manifest = self._manifest(build.job.entries.get("pack"))
        if manifest is None:
            raise fail("ES532", f"{self._cache.root}: the artifact was removed while it was being built. Run it again.")
        return manifest

    def blob(self, sha256: str) -> Path | None:
        """The verified bytes of a chunk or a manifest, as a file in the cache; None when they are not there."""
        return self._cache.path(sha256)

    def tokenizer(self, spec: EdgeModel) -> bytes:
        """The tokenizer.json of a model that has been built, as its last stage left it."""
        build = self._prepare(spec, sources.fetch(spec.model.source, self.root, self._cache, self._progress))
        self._take(build, build.steps[-1])
        entry = build.job.entries.get("pack")
        raw = self._cache.read(entry.outputs["tokenizer.json"]) if entry else None
        if raw is None:
            raise fail("ES532", f"{self._cache.root}: the artifact of {spec.name} was removed. Run it again.")
        return raw

    def built(self, spec: EdgeModel) -> tuple[Build, Manifest] | None:
        """What an artifact that is in this machine's cache was built from; None where it is not there, or cannot be
        told to be this spec's."""
        files = sources.find(spec.model.source, self.root, self._cache)
        steps = self._steps(spec, spec.worker.engine)
        known = all(is_known(dict(s.inputs or {})) for s in steps)
        if files is None or not known or UNKNOWN in tools_of(steps).values():
            return None
        build = self._prepare(spec, files)
        self._take(build, build.steps[-1])
        manifest = self._manifest(build.job.entries.get("pack"))
        return None if manifest is None else (build, manifest)

    # --- what there is to do

    def _unknown(self, spec: EdgeModel, files: sources.ModelFiles | None, steps: tuple[Step, ...]) -> BuildFacts:
        """What is known of a model whose package, or whose tools, are not on this machine."""
        inputs = self._inputs(spec, files, steps, UNKNOWN)
        return BuildFacts(inputs, None, tuple(StageFacts(s.name, None, cached=False) for s in steps), None)

    def _prepare(self, spec: EdgeModel, files: sources.ModelFiles, steps: tuple[Step, ...] | None = None) -> Build:
        """`steps` are those of the engine that the spec asks for, where they are known already."""
        steps = steps or self._steps(spec, spec.worker.engine)
        job = Job(spec, files, self._cache, self._progress, steps[0], self.root, fresh=self._fresh)
        before = self._inputs(spec, files, steps, UNKNOWN)
        choice = choose(job, before)
        if (choice.name == ONNXRUNTIME) is (spec.worker.engine == ONNXRUNTIME):  # `auto` was taken for the other
            inputs: Mapping[str, Value] = {**before, "engine": choice.name}
        else:
            steps = self._steps(spec, choice.name)
            inputs = self._inputs(spec, files, steps, choice.name)
        return Build(job, steps, inputs, keys_of(steps, inputs), choice.reason)

    def _steps(self, spec: EdgeModel, engine: str) -> tuple[Step, ...]:
        return steps_of(spec, engine, self._file, self._model)

    def _file(self, named: Named) -> InputFile:
        path = self.root / named.value
        try:
            return self._cache.data_file(self.root, named.value)
        except OSError as cause:
            detail = f"`{dotted(named.where)}: {named.value}`: {path}: {cause.strerror or cause}. "
            raise fail("ES500", f"{detail}Paths are relative to edgespec.yaml.", at=named.where) from None

    def _find(self, source: str) -> sources.ModelFiles | None:
        if source not in self._found:
            files = sources.find(source, self.root, self._cache)
            if files is None:
                return None
            self._found[source] = files
        return self._found[source]

    def _model(self, named: Named) -> sources.ModelFiles | None:
        return sources.find(named.value, self.root, self._cache)

    def _inputs(
        self, spec: EdgeModel, files: sources.ModelFiles | None, steps: tuple[Step, ...], engine: Value
    ) -> Mapping[str, Value]:
        return inputs_of(spec, steps, files.digest if files else UNKNOWN, engine, tools_of(steps))

    def _plan(self, build: Build, *, receive: bool = False) -> frozenset[str]:
        """The names of the steps that must run; looks up, and with `receive` brings in from other machines, the results
        that are there, and no more than are needed."""
        if self._fresh:
            return frozenset(s.name for s in build.steps if s.name != "fetch")
        needed = {"pack"}
        for step in reversed(build.steps):
            if step.name in needed and not (self._take(build, step) or (receive and self._receive(build, step))):
                needed.update(step.parents)
        return _missing(build, frozenset(build.job.entries))

    def _take(self, build: Build, step: Step) -> bool:
        """Whether this machine has the step's result, which is then among the entries."""
        entry = None if step.name == "fetch" else self._cache.entry(step.stage.name, build.keys[step.name])
        if entry is not None:
            build.job.entries[step.name] = entry
        return entry is not None

    def _receive(self, build: Build, step: Step) -> bool:
        """The same for the cache that machines share."""
        if self._remote is None or step.name == "fetch":
            return False
        say = build.job_of(step).say
        entry = self._remote.get(self._cache, step.stage.name, build.keys[step.name], say)
        if entry is not None:
            build.job.entries[step.name] = entry
        return entry is not None

    def _shared(self, build: Build, todo: frozenset[str]) -> frozenset[str]:
        """Those of the steps to do whose results another machine has."""
        if self._remote is None or not todo:
            return frozenset()
        places = {(s.stage.name, build.keys[s.name]): s.name for s in build.steps if s.name in todo}
        return frozenset(places[place] for place in self._remote.has(list(places)))

    def _check(self, build: Build) -> None:
        """Every check that can be made before anything runs."""
        for step in build.steps:
            if step.name not in build.todo:
                continue
            job = build.job_of(step)
            with _about(step):
                step.stage.check_data(job)
                if job.checkpoint is None or job.checkpoint in build.job.entries:
                    step.stage.check(job)

    # --- doing it

    def run(self, build: Build, step: Step) -> None:
        """Runs a step whose parents have run, unless another build runs it at this moment: then that one's result is
        waited for."""
        job, name, key = build.job_of(step), step.stage.name, build.keys[step.name]

        def waiting(who: str) -> None:
            job.say(f"waiting for {who}")

        with self._cache.claim(name, key, f"{job.spec.name}: {step.name}", waiting):
            if not self._fresh and self._take(build, step):
                self._progress(BuildEvent(step.name, "built by another", None, cached=True))
                return
            before = self._cache.entry(name, key) if self._fresh else None
            entry = self._make(job, step)
            self._cache.commit(name, key, entry)
        build.job.entries[step.name] = entry
        if before is not None and before.digest != entry.digest:
            job.say(f"gives another result than the one in the cache ({entry.digest[:12]}, was {before.digest[:12]})")
        self.share(build, step)
        job.say("done", 1.0)

    def share(self, build: Build, step: Step) -> None:
        """Gives a step's result to other machines."""
        if self._remote is not None:
            say = build.job_of(step).say
            self._remote.put(self._cache, step.stage.name, build.keys[step.name], build.job.entries[step.name], say)

    def collect(self, build: Build, step: Step) -> bool:
        """Whether the result of a step that ran elsewhere is here now."""
        return self._take(build, step) or self._receive(build, step)

    def _make(self, job: Job, step: Step) -> Entry:
        with _about(step):
            if job.checkpoint is not None:
                step.stage.check(job)
            result = step.stage.run(job)
        for file in (*job.source.all, *step.data.values()):
            file.check()
        return Entry({name: self._cache.put(data) for name, data in result.outputs.items()}, result.notes)

    def _manifest(self, entry: Entry | None) -> Manifest | None:
        raw = self._cache.read(entry.outputs["manifest.json"]) if entry else None
        return Manifest.decode(raw) if raw else None


def _missing(build: Build, there: frozenset[str]) -> frozenset[str]:
    """The steps without which there is no artifact, from the last one back, when the results of `there` are at hand."""
    needed, missing = {"pack"}, set()
    for step in reversed(build.steps):
        if step.name in needed and step.name != "fetch" and step.name not in there:
            missing.add(step.name)
            needed.update(step.parents)
    return frozenset(missing)


def _stage_facts(build: Build, step: Step, shared: frozenset[str], previous: Mapping[str, Value] | None) -> StageFacts:
    if step.name not in build.todo:
        return StageFacts(step.name, build.keys[step.name], cached=step.name not in shared, remote=step.name in shared)
    position = next((n for n, s in numbered(build.steps) if s is step), None)
    reason = why(step, position, build.inputs, previous)
    return StageFacts(step.name, build.keys[step.name], cached=False, why=reason)


@contextlib.contextmanager
def _about(step: Step) -> Iterator[None]:
    """What is raised inside is about the step's place in the spec, unless it says so itself."""
    try:
        yield
    except EdgespecError as e:
        raise EdgespecError(*(d if d.at else replace(d, at=step.where) for d in e.diagnostics)) from e.__cause__
