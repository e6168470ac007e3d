"""Builds that share a cache: with others on this machine, with other machines, with what they built before."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from edgespec.artifact import Manifest
from edgespec.build.cache import Cache
from edgespec.build.events import BuildEvent
from edgespec.build.pipeline import Pipeline
from edgespec.build.remote import RemoteCache
from edgespec.build.stages import head
from edgespec.build.stages.stage import Job, Result, Stage
from edgespec.diagnostics import Diagnostic, EdgespecError
from edgespec.records import replace
from edgespec.render.plan import _build as render_build
from edgespec.spec.models import EdgeModel
from edgespec.values import digest
from tests.unit.build.memory_store import MemoryStore

Spec = Callable[..., EdgeModel]


# --- at the same time


def test_two_builds_at_once_run_each_stage_once(project: Path, tmp_path: Path, spec: Spec) -> None:
    made: dict[str, Manifest] = {}
    seen: dict[str, list[BuildEvent]] = {"first": [], "second": []}
    waits = threading.Event()

    def build(who: str, progress: Callable[[BuildEvent], None]) -> None:
        made[who] = Pipeline(project, Cache(tmp_path / "cache"), progress).build(spec())

    def second(event: BuildEvent) -> None:
        seen["second"].append(event)
        if event.message.startswith("waiting for"):
            waits.set()

    other = threading.Thread(target=build, args=("second", second))

    def first(event: BuildEvent) -> None:
        seen["first"].append(event)
        if event.stage == "head" and not other.ident:  # it is running
            other.start()
            assert waits.wait(60)

    build("first", first)
    other.join()
    assert made["first"] == made["second"]
    waiting = next(e for e in seen["second"] if e.message.startswith("waiting for"))
    assert waiting.stage == "head"
    assert waiting.message.endswith(f"({spec().name}: head)")
    assert ("head", "built by another", True) in [(e.stage, e.message, e.cached) for e in seen["second"]]
    done = [e.stage for events in seen.values() for e in events if e.message == "done"]
    assert sorted(done) == sorted(set(done))


KILLED = """
import sys, yaml
from pathlib import Path
from edgespec.build.cache import Cache
from edgespec.build.pipeline import Pipeline
from edgespec.spec.models import EdgeModel
from tests.tiny import tiny_spec
def progress(event):
    if event.stage == "head":
        print("head", flush=True)
        sys.stdin.readline()
root, cache = map(Path, sys.argv[1:])
Pipeline(root, Cache(cache), progress).build(EdgeModel.model_validate(tiny_spec(worker={"engine": "onnxruntime"})))
"""


def test_a_build_that_is_killed_is_not_waited_for(project: Path, tmp_path: Path, spec: Spec) -> None:
    command = [sys.executable, "-c", KILLED, str(project), str(tmp_path / "cache")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "head\n"
    process.kill()
    process.communicate()
    events: list[BuildEvent] = []
    manifest = Pipeline(project, Cache(tmp_path / "cache"), events.append).build(spec())
    assert [e for e in events if "waiting" in e.message] == []
    assert "export" not in {e.stage for e in events if e.message == "done"}  # that was whole
    assert manifest == Pipeline(project, Cache(tmp_path / "clean"), lambda _: None).build(spec())


# --- everything again


def test_everything_again(project: Path, tmp_path: Path, spec: Spec) -> None:
    events: list[BuildEvent] = []
    cache = Cache(tmp_path / "cache")
    manifest = Pipeline(project, cache, events.append).build(spec())
    stages = [e.stage for e in events if e.message == "done"]
    events.clear()
    assert Pipeline(project, cache, events.append, fresh=True).build(spec()) == manifest
    assert [e.stage for e in events if e.message == "done"] == stages
    assert [e for e in events if "another result" in e.message] == []


def test_a_stage_that_gives_something_else_each_time_is_told(
    project: Path, tmp_path: Path, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []
    calm = head.STAGE.run

    def restless(job: Job) -> Result:
        runs.append(1)
        result = calm(job)
        return replace(result, outputs={**result.outputs, "extra": bytes(runs)})

    stage: Stage = replace(head.STAGE, run=restless)
    monkeypatch.setattr("edgespec.build.stages.head.STAGE", stage)
    events: list[BuildEvent] = []
    cache = Cache(tmp_path / "cache")
    Pipeline(project, cache, events.append).build(spec())
    Pipeline(project, cache, events.append, fresh=True).build(spec())
    (told,) = [e for e in events if "another result" in e.message]
    assert told.stage == "head"
    events.clear()
    Pipeline(project, cache, events.append).build(spec())  # what was kept is the later one, and it is used
    assert {e.message for e in events} == {"cached"}


# --- with other machines


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def machine(
    project: Path, cache: Path, store: MemoryStore, events: list[BuildEvent], warnings: list[Diagnostic] | None = None
) -> Pipeline:
    warn = pytest.fail if warnings is None else warnings.append
    return Pipeline(project, Cache(cache), events.append, RemoteCache(store, warn))


def test_ci_does_not_build_what_a_colleague_built(
    project: Path, tmp_path: Path, spec: Spec, store: MemoryStore
) -> None:
    mine: list[BuildEvent] = []
    theirs: list[BuildEvent] = []
    manifest = machine(project, tmp_path / "theirs", store, theirs).build(spec())
    ci = machine(project, tmp_path / "ci", store, mine)
    facts = ci.facts(spec())
    assert not [s for s in facts.stages if not s.cached and not s.remote]
    assert [s.name for s in facts.stages if s.remote]
    assert facts.manifest is None
    text = "".join(span.text for row in render_build(facts) for span in row)
    assert "cached (remote) export, head, quantize, pack" in text
    assert "run" not in text.partition("stages")[2]
    assert not (tmp_path / "ci" / "v1" / "blobs").exists()  # a plan brings nothing in
    store.calls.clear()
    assert ci.build(spec()) == manifest
    assert "done" not in {e.message for e in mine}
    for chunk in manifest.chunks:
        assert ci.blob(chunk.sha256) is not None
    assert not [c for c in store.calls if "stages/export" in c and c.startswith("read")]  # nobody needed it


def test_what_is_missing_there_is_built_on_what_is_there(
    project: Path, tmp_path: Path, spec: Spec, store: MemoryStore
) -> None:
    machine(project, tmp_path / "theirs", store, []).build(spec())
    train = project / "data" / "train.jsonl"
    train.write_text(train.read_text() + '{"text": "one more", "label": "other"}\n')
    events: list[BuildEvent] = []
    here = machine(project, tmp_path / "here", store, events)
    assert [s.name for s in here.facts(spec()).stages if not s.cached and not s.remote] == ["head", "pack"]
    here.build(spec())
    assert [e.stage for e in events if e.message == "done"] == ["head", "pack"]
    again: list[BuildEvent] = []
    machine(project, tmp_path / "third", store, again).build(spec())
    assert "done" not in {e.message for e in again}


def test_damage_there_is_a_warning(project: Path, tmp_path: Path, spec: Spec, store: MemoryStore) -> None:
    manifest = machine(project, tmp_path / "theirs", store, []).build(spec())
    good = dict(store.objects)
    for key in good:
        store.objects[key] = b"damaged"
    warnings: list[Diagnostic] = []
    assert machine(project, tmp_path / "here", store, [], warnings).build(spec()) == manifest
    assert {w.code for w in warnings} == {"ES586"}
    assert {k: v for k, v in store.objects.items() if "/blobs/" not in k} == {
        k: v for k, v in good.items() if "/blobs/" not in k
    }


def test_a_remote_that_is_down_is_a_warning(project: Path, tmp_path: Path, spec: Spec, store: MemoryStore) -> None:
    store.down = "it cannot be reached (EndpointConnectionError)."
    warnings: list[Diagnostic] = []
    pipeline = machine(project, tmp_path / "here", store, [], warnings)
    pipeline.facts(spec())
    manifest = pipeline.build(spec())
    assert [w.code for w in warnings] == ["ES585"]
    assert manifest == Pipeline(project, Cache(tmp_path / "clean"), lambda _: None).build(spec())


# --- elsewhere


def test_one_step_alone(project: Path, tmp_path: Path, spec: Spec) -> None:
    cache = Cache(tmp_path / "cache")
    pipeline = Pipeline(project, cache, lambda _: None)
    build = pipeline.prepare(spec())
    for step in build.steps[1:]:
        elsewhere = Pipeline(project, Cache(tmp_path / "cache"), lambda _: None)
        elsewhere.run_one(spec(), step.name, build.keys[step.name])
        assert pipeline.collect(build, step)
    assert pipeline.finish(build) == Pipeline(project, Cache(tmp_path / "clean"), lambda _: None).build(spec())


def test_a_step_that_would_not_be_the_same_elsewhere(project: Path, tmp_path: Path, spec: Spec) -> None:
    pipeline = Pipeline(project, Cache(tmp_path / "cache"), lambda _: None)
    with pytest.raises(EdgespecError, match=r"ES587.*export would not be the same here.*onnx"):
        pipeline.run_one(spec(), "export", digest("other"))
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
