"""Building many models at once, over whatever runs the steps.

An executor runs tasks: one step of one build each. It knows nothing of builds; `build_all` decides what is ready, hands
it over, and takes the results from the cache. A step that two specs share, by its key, is one task. docs/executors.md
says what a new executor needs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from edgespec.artifact import Manifest
from edgespec.build.cache import Cache
from edgespec.build.events import BuildEvent
from edgespec.build.pipeline import Build, Pipeline
from edgespec.build.problems import fail
from edgespec.build.remote import RemoteCache
from edgespec.build.stages.stage import Needs, Step
from edgespec.diagnostics import Diagnostic, EdgespecError, Severity
from edgespec.records import replace
from edgespec.spec.models import EdgeModel

OnEvent: TypeAlias = Callable[[str, BuildEvent], None]
"""The spec's name, and what its build says."""


@dataclass(frozen=True, slots=True)
class Request:
    """All that a worker must know to run a task: what `perform` takes, as JSON text on its way."""

    root: str
    """The project's folder, as an absolute path that the worker sees too."""
    cache: str
    """The build cache's folder."""
    spec: Mapping[str, Any]
    """The EdgeModel, as JSON."""
    step: str
    key: str
    """What the result goes by in the cache."""
    fresh: bool = False

    def encode(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def decode(cls, text: str) -> Request:
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Task:
    id: str
    """`<stage>/<key>`."""
    title: str
    """For people: `sentiment: finetune`."""
    needs: Needs
    request: Request


@dataclass(frozen=True, slots=True)
class Said:
    """What a running step says."""

    task: str
    event: BuildEvent


@dataclass(frozen=True, slots=True)
class Finished:
    """The step's result is in the cache, or `problems` say why not."""

    task: str
    problems: tuple[Diagnostic, ...] = ()


Happening: TypeAlias = Said | Finished


class Executor(Protocol):
    """Runs tasks somewhere. Used by one thread; a context manager, which connects when it is entered (never, when
    there is nothing to run) and stops everything at its end. Its calls are made inside of it."""

    @property
    def slots(self) -> int | None:
        """How many tasks to hand over at once; None for an executor that has a queue of its own."""

    def __enter__(self) -> Executor: ...

    def __exit__(self, *_: object) -> None:
        """Stops what still runs, with all that it started, and leaves nothing behind."""

    def check(self, tasks: Sequence[Task]) -> None:
        """Raises EdgespecError (ES587) for tasks that can never run, before any does."""

    def submit(self, task: Task) -> None:
        """Starts a task, or queues it. Does not wait."""

    def next(self) -> Happening:
        """Waits for the next thing that a task says or for its end. Every task that was submitted ends exactly once,
        whatever happens to the machine that ran it."""


def perform(request: Request, progress: Callable[[BuildEvent], None], remote: RemoteCache | None = None) -> None:
    """Runs the task in this process: what an executor calls on its workers. Raises EdgespecError."""
    spec = EdgeModel.model_validate(dict(request.spec))
    pipeline = Pipeline(Path(request.root), Cache(Path(request.cache)), progress, remote, fresh=request.fresh)
    pipeline.run_one(spec, request.step, request.key)


# --- many builds


@dataclass(slots=True)
class _Node:
    task: Task
    parents: frozenset[str]
    """Tasks that must be done before."""
    users: list[tuple[Build, Step]] = field(default_factory=list)


def build_all(
    specs: Sequence[EdgeModel],
    pipeline_of: Callable[[EdgeModel], Pipeline],
    executor: Executor,
    cache: Cache,
    on_event: OnEvent,
    *,
    fresh: bool = False,
) -> dict[str, Manifest]:
    """The artifacts of many specs, by name. All that can be refused is refused before anything runs. A step that fails
    takes those with it that need it; everything else is still built. Raises EdgespecError with every problem."""
    pipelines = {spec.name: pipeline_of(spec) for spec in specs}
    if not specs:
        return {}
    with pipelines[specs[0].name].using():
        builds = _prepare(specs, pipelines)
        nodes = _graph(builds, pipelines, cache, fresh=fresh)
        problems: list[Diagnostic] = []
        if nodes:
            with executor:
                executor.check([n.task for n in nodes.values()])
                _run(nodes, executor, pipelines, on_event, problems)
        if problems:
            raise EdgespecError(*problems)
        return {name: pipelines[name].finish(build) for name, build in builds.items()}


def _prepare(specs: Sequence[EdgeModel], pipelines: Mapping[str, Pipeline]) -> dict[str, Build]:
    builds: dict[str, Build] = {}
    problems: list[Diagnostic] = []
    for spec in specs:
        try:
            builds[spec.name] = pipelines[spec.name].prepare(spec)
        except EdgespecError as e:
            problems += e.diagnostics
    if any(d.severity is Severity.ERROR for d in problems):
        raise EdgespecError(*problems)
    return builds


def _graph(
    builds: Mapping[str, Build], pipelines: Mapping[str, Pipeline], cache: Cache, *, fresh: bool
) -> dict[str, _Node]:
    nodes: dict[str, _Node] = {}
    for name, build in builds.items():
        document = build.job.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
        root = str(pipelines[name].root.resolve())
        ids = {s.name: f"{s.stage.name}/{build.keys[s.name]}" for s in build.steps}
        for step in build.steps:
            if step.name not in build.todo:
                continue
            id_ = ids[step.name]
            if id_ not in nodes:
                request = Request(
                    root, str(cache.root.resolve()), document, step.name, build.keys[step.name], fresh=fresh
                )
                parents = frozenset(ids[p] for p in step.parents if p in build.todo)
                nodes[id_] = _Node(Task(id_, f"{name}: {step.name}", step.stage.needs, request), parents)
            nodes[id_].users.append((build, step))
    return nodes


def _run(
    nodes: Mapping[str, _Node],
    executor: Executor,
    pipelines: Mapping[str, Pipeline],
    on_event: OnEvent,
    problems: list[Diagnostic],
) -> None:
    waiting, running, done = dict(nodes), set[str](), set[str]()
    while waiting or running:
        for id_ in [i for i, n in waiting.items() if n.parents <= done]:
            if executor.slots is not None and len(running) >= executor.slots:
                break
            running.add(id_)
            executor.submit(waiting.pop(id_).task)
        if not running:
            return  # the rest needs what failed
        happening = executor.next()
        node = nodes[happening.task]
        if isinstance(happening, Said):
            for build, step in node.users:
                on_event(build.job.spec.name, replace(happening.event, stage=step.name))
            continue
        running.discard(happening.task)
        found = happening.problems or _collect(node, pipelines)
        if found:
            problems += found
        else:
            done.add(happening.task)


def _collect(node: _Node, pipelines: Mapping[str, Pipeline]) -> tuple[Diagnostic, ...]:
    """Takes a step's result to where the builds look for it; what is wrong if that cannot be."""
    try:
        for number, (build, step) in enumerate(node.users):
            pipeline = pipelines[build.job.spec.name]
            if not pipeline.collect(build, step):
                raise fail(
                    "ES587",
                    f"{node.task.title} was run, and its result is not in {node.task.request.cache}. Workers need that "
                    "folder, or the shared cache of `build: {cache: ...}` in edgespec.yaml.",
                )
            if number == 0:
                pipeline.share(build, step)
    except EdgespecError as e:
        return tuple(e.diagnostics)
    return ()
