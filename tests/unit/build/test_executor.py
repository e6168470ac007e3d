"""Many builds over an executor: which tasks there are, in what order, and what happens when one fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import pytest

from edgespec.artifact import Manifest
from edgespec.build import local_executor
from edgespec.build.cache import Cache
from edgespec.build.events import BuildEvent
from edgespec.build.executor import Executor, Finished, Happening, Request, Said, Task, build_all, perform
from edgespec.build.local_executor import LocalExecutor
from edgespec.build.pipeline import Pipeline
from edgespec.build.problems import problem
from edgespec.build.stages.stage import Needs
from edgespec.build.worker import decode_problems, encode_problems
from edgespec.diagnostics import EdgespecError, SourceRange
from edgespec.spec.models import EdgeModel
from tests.tiny import tiny_spec

Told = list[tuple[str, BuildEvent]]


def spec(name: str, **fields: object) -> EdgeModel:
    return EdgeModel.model_validate(tiny_spec(name, **{"worker": {"engine": "onnxruntime"}, **fields}))


class InThisProcess:
    """Runs each task when its end is asked for; `refuse` names stages that fail."""

    def __init__(self, slots: int | None, refuse: str = "") -> None:
        self.slots = slots
        self.refuse = refuse
        self.queue: deque[Task] = deque()
        self.happenings: deque[Happening] = deque()
        self.ran: list[str] = []
        self.most = 0
        self.closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def check(self, tasks: Sequence[Task]) -> None:
        assert len({t.id for t in tasks}) == len(tasks)

    def submit(self, task: Task) -> None:
        self.queue.append(task)
        self.most = max(self.most, len(self.queue))

    def next(self) -> Happening:
        if not self.happenings:
            task = self.queue.pop()  # the last one first: order must not matter
            self.ran.append(task.title)
            if task.request.step == self.refuse:
                return Finished(task.id, (problem("ES588", f"{task.title} died."),))
            request = Request.decode(task.request.encode())
            perform(request, lambda e: self.happenings.append(Said(task.id, e)))
            self.happenings.append(Finished(task.id))
        return self.happenings.popleft()


def build(
    project: Path, cache: Path, executor: Executor, specs: Sequence[EdgeModel], told: Told | None = None
) -> dict[str, Manifest]:
    shared = Cache(cache)

    def tell(name: str, event: BuildEvent) -> None:
        if told is not None:
            told.append((name, event))

    return build_all(specs, lambda s: Pipeline(project, shared, lambda e: tell(s.name, e)), executor, shared, tell)


def alone(project: Path, cache: Path, *specs: EdgeModel) -> dict[str, Manifest]:
    return {s.name: Pipeline(project, Cache(cache), lambda _: None).build(s) for s in specs}


@pytest.mark.parametrize("slots", [1, 2, None])
def test_the_same_artifacts_and_what_is_shared_runs_once(project: Path, tmp_path: Path, slots: int | None) -> None:
    specs = [spec("a"), spec("b", quantization={"method": "none"}), spec("c")]  # c is a under another name
    executor = InThisProcess(slots)
    told: Told = []
    assert build(project, tmp_path / "cache", executor, specs, told) == alone(project, tmp_path / "clean", *specs)
    assert sorted(t.partition(": ")[2] for t in executor.ran) == [
        "export", "head", "pack", "pack", "quantize", "quantize",
    ]  # fmt: skip
    assert executor.closed
    assert executor.most <= (slots or 100)
    assert {name for name, e in told if e.stage == "head" and e.message == "done"} == {"a", "b", "c"}
    again = InThisProcess(slots)
    assert build(project, tmp_path / "cache", again, specs) == alone(project, tmp_path / "clean", *specs)
    assert again.ran == []


def test_a_failure_takes_only_what_needs_it(project: Path, tmp_path: Path) -> None:
    embedding = spec("b", task={"type": "embedding", "max_tokens": 16}, model={"source": "./models/tiny"})
    executor = InThisProcess(2, refuse="head")
    with pytest.raises(EdgespecError, match="a: head died") as caught:
        build(project, tmp_path / "cache", executor, [spec("a"), embedding])
    assert len(caught.value.diagnostics) == 1
    assert [t for t in executor.ran if "pack" in t] == ["b: pack"]
    assert executor.closed


def test_what_can_be_refused_is_refused_before_anything_runs(project: Path, tmp_path: Path) -> None:
    executor = InThisProcess(2)
    missing = spec("b", model={"source": "./models/none"})
    worse = spec("c", model={"source": "./models/nothing"})
    with pytest.raises(EdgespecError) as caught:
        build(project, tmp_path / "cache", executor, [spec("a"), missing, worse])
    assert len(caught.value.diagnostics) == 2
    assert executor.ran == []


def test_a_result_that_does_not_arrive(project: Path, tmp_path: Path) -> None:
    class Elsewhere(InThisProcess):
        def next(self) -> Happening:
            return Finished(self.queue.pop().id)

    with pytest.raises(EdgespecError, match=r"ES587.*export was run, and its result is not in"):
        build(project, tmp_path / "cache", Elsewhere(1), [spec("a")])


def test_requests_travel_as_text(project: Path) -> None:
    for path in sorted((Path(__file__).parents[3] / "specs").glob("*.yaml")):
        import yaml

        made = EdgeModel.model_validate(yaml.safe_load(path.read_text()))
        request = Request("/p", "/c", made.model_dump(mode="json", by_alias=True, exclude_unset=True), "pack", "ab")
        back = Request.decode(request.encode())
        assert back == request
        assert EdgeModel.model_validate(dict(back.spec)) == made, path.name


def test_problems_travel_as_text() -> None:
    found = (problem("ES588", "it died", SourceRange("specs/a.yaml", 3, 4)), problem("ES530", "edited"))
    assert decode_problems(json.loads(json.dumps(encode_problems(found)))) == found


# --- processes on this machine


def test_two_specs_in_two_processes(project: Path, tmp_path: Path) -> None:
    specs = [spec("a"), spec("b", quantization={"method": "none"})]
    told: Told = []
    executor = LocalExecutor(2)
    assert build(project, tmp_path / "cache", executor, specs, told) == alone(project, tmp_path / "clean", *specs)
    assert {(n, e.stage) for n, e in told if e.message == "done"} >= {("a", "head"), ("b", "head"), ("b", "pack")}


def test_a_step_that_fails_says_why(project: Path, tmp_path: Path) -> None:
    made = Pipeline(project, Cache(tmp_path / "cache"), lambda _: None).prepare(spec("a"))
    (project / "models" / "tiny" / "config.json").write_text("{}")
    document = spec("a").model_dump(mode="json", exclude_unset=True)
    request = Request(str(project), str(tmp_path / "cache"), document, "export", made.keys["export"])
    with LocalExecutor(1) as executor:
        executor.submit(Task("export/1", "a: export", Needs(), request))
        happening = executor.next()
    assert isinstance(happening, Finished)
    assert [p.code for p in happening.problems] == ["ES587"]  # other files, another key


def start(executor: LocalExecutor, monkeypatch: pytest.MonkeyPatch, script: str) -> int:
    """A worker that runs a script instead; gives its pid, once the script has printed that it is ready."""
    code = f"import os, signal, subprocess, sys, time\nfrom pathlib import Path\nsys.stdin.readline()\n{script}"
    monkeypatch.setattr(local_executor.sys, "executable", sys.executable)
    real = subprocess.Popen

    def popen(command: list[str], **options: object) -> subprocess.Popen[str]:
        return real([command[0], "-c", code], **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(local_executor.subprocess, "Popen", popen)
    executor.submit(Task("s/1", "a: finetune", Needs(), Request("/", "/", {}, "finetune", "ab")))
    (running,) = executor._running.values()
    return running.process.pid


READY = 'print(\'{"said": {"stage": "x", "message": "ready", "fraction": null, "cached": false}}\', flush=True)\n'


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "a: finetune was killed, most likely because memory ran out"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "was ended by SIGSEGV"),
        (
            "print('no space left', file=sys.stderr); sys.exit(3)",
            "ended with exit code 3.*Its last words:\nno space left",
        ),
    ],
)
def test_a_step_that_dies(monkeypatch: pytest.MonkeyPatch, script: str, says: str) -> None:
    with LocalExecutor(1) as executor:
        start(executor, monkeypatch, script)
        happening = executor.next()
    assert isinstance(happening, Finished)
    (found,) = happening.problems
    assert found.code == "ES588"
    import re

    assert re.search(says, found.detail, re.DOTALL)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("it did not come to that")


def test_ctrl_c_stops_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a worker that does not listen, and what it has started."""
    monkeypatch.setattr(local_executor, "GRACE", 0.5)
    note = tmp_path / "child"
    script = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"child = subprocess.Popen(['sleep', '600'])\nPath({str(note)!r}).write_text(str(child.pid))\n"
        f"{READY}time.sleep(600)"
    )
    with pytest.raises(KeyboardInterrupt), LocalExecutor(1) as executor:
        pid = start(executor, monkeypatch, script)
        assert isinstance(executor.next(), Said)
        raise KeyboardInterrupt
    assert gone(pid)
    wait_until(lambda: gone(int(note.read_text())))


PARENT = """
import os, signal, sys, yaml
from pathlib import Path
from edgespec.build import local_executor
from edgespec.build.cache import Cache
from edgespec.build.executor import build_all
from edgespec.build.pipeline import Pipeline
from edgespec.spec.models import EdgeModel
from tests.tiny import tiny_spec
root, cache = map(Path, sys.argv[1:])
shared, executor = Cache(cache), local_executor.LocalExecutor(1)
def tell(name, event):
    (running,) = executor._running.values()
    print(running.process.pid, flush=True)
    sys.stdin.readline()
spec = EdgeModel.model_validate(tiny_spec())
build_all([spec], lambda s: Pipeline(root, shared, lambda e: None), executor, shared, tell)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_the_build(project: Path, tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", PARENT, str(project), str(tmp_path / "cache")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.send_signal(number)
        parent.communicate()
    wait_until(lambda: gone(worker))
    manifest = alone(project, tmp_path / "cache", EdgeModel.model_validate(tiny_spec()))
    assert manifest == alone(project, tmp_path / "clean", EdgeModel.model_validate(tiny_spec()))
