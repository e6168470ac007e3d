"""SIGINT to a real process: in the middle of an apply, twice, and at the prompt (opentofu#3661, #3669)."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgespec.plan.model import Action
from edgespec.session import current_state
from tests.e2e.conftest import TinyProject
from tests.faults.ground import Ground, inventory, quick

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60
"""A child that does not end by itself in this time hangs: nothing here measures time."""


@pytest.fixture
def project(tmp_path: Path, build_cache: Path, shared_edge: Path) -> Iterator[TinyProject]:
    ground = Ground(tmp_path, build_cache, shared_edge)
    ground.write({"alpha": (0, 1, 0, 0)})
    with quick(tmp_path):
        ground.project.plan().close()  # starts the edge
        yield ground.project
        ground.project.apply(destroy=True, allow_destroy=True)


@contextlib.contextmanager
def start(project: TinyProject, hold: str, *arguments: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A child that is gone at the end, whatever became of the test."""
    command = [sys.executable, "-m", "tests.faults.child", hold, str(project.root), "-C", str(project.root), *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, env=project.environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def until_held(child: subprocess.Popen[str]) -> None:
    assert child.stdout is not None
    said = ""
    while (line := child.stdout.readline()) != "held\n":
        said += line
        assert line, f"it never came to the call: {said}{child.stderr.read() if child.stderr else ''}"


def until_said(child: subprocess.Popen[str], words: str) -> str:
    assert child.stderr is not None
    said = ""
    while words not in said:
        line = child.stderr.readline()
        assert line, said
        said += line
    return said


def statuses(project: TinyProject) -> dict[str, str]:
    state = current_state(project.session())
    return {} if state is None else {str(k): r.status.value for k, r in state.records.items()}


def check_free_and_convergent(project: TinyProject) -> None:
    """Nobody holds the lock, and the next apply makes the rest, once."""
    with project.session().store.lock("test"):
        pass
    project.apply_well()
    assert not [c for c in project.plan().plan.changes if c.action is not Action.NOOP]
    found = inventory(project)
    assert all(len(set(t)) == len(t) == 1 for t in found["tags"].values()) and found["open"] == {"alpha": True}


def test_the_first_ends_what_was_begun_and_says_what_is_left(project: TinyProject) -> None:
    with start(project, "PUT", "apply", "--auto-approve") as child:  # the first PUT: pins, or the Worker
        until_held(child)
        child.send_signal(signal.SIGINT)
        said = until_said(child, "stopping")
        (project.root / "go").touch()
        out, err = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 130
    said += err
    assert "Left to do" in said and "create deployment/alpha" in said and "ES309" in said and "ES401" not in said
    assert "Apply stopped" in out and "left to do" in out
    found = statuses(project)
    assert "deployment/alpha" not in found
    assert found["kv_pins/alpha"] == "ready"  # the call in flight is in state
    check_free_and_convergent(project)


def test_a_second_ends_it_at_once_and_leaves_a_usable_state(project: TinyProject) -> None:
    with start(project, "PUT", "apply", "--auto-approve", "--parallelism", "1") as child:
        until_held(child)
        child.send_signal(signal.SIGINT)
        until_said(child, "stopping")
        child.send_signal(signal.SIGINT)  # the call never ends
        _, err = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 130 and "Interrupted. What was done is in state" in err
    found = statuses(project)
    assert (
        sorted(found.values()).count("creating") == 1 and found["r2_bucket/" + project.name + "-local-auto"] == "ready"
    )
    check_free_and_convergent(project)


def test_sigterm_is_the_same(project: TinyProject) -> None:
    """A CI that cancels a job sends it."""
    with start(project, "POST", "apply", "--auto-approve") as child:
        until_held(child)
        child.send_signal(signal.SIGTERM)
        until_said(child, "stopping")
        (project.root / "go").touch()
        child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 130 and "worker/alpha" not in statuses(project)
    check_free_and_convergent(project)


def test_at_the_prompt_nothing_was_done_and_the_lock_is_free(project: TinyProject) -> None:
    leader, follower = pty.openpty()
    with start(project, "never", "apply", stdin=follower, start_new_session=True) as child:
        until_said_raw(child, "Apply this to local?")
        # Python cannot hear a signal that arrives between its last look and the read that blocks: people press twice.
        for _ in range(PATIENCE_S):
            child.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.communicate(timeout=1)
                break
    for end in (leader, follower):
        with contextlib.suppress(OSError):
            os.close(end)
    assert child.returncode == 130
    assert not statuses(project) and not any(inventory(project).values())
    check_free_and_convergent(project)


def until_said_raw(child: subprocess.Popen[str], words: str) -> None:
    """A prompt does not end its line."""
    assert child.stderr is not None
    said = b""
    while words.encode() not in said:
        data = os.read(child.stderr.fileno(), 4096)
        assert data, said
        said += data


def test_while_the_plan_is_made(project: TinyProject) -> None:
    with start(project, "GET", "apply", "--auto-approve") as child:
        until_held(child)
        child.send_signal(signal.SIGINT)  # the read that it waits for never ends
        child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 130 and not statuses(project)
    check_free_and_convergent(project)


def test_json_says_what_is_left(project: TinyProject) -> None:
    with start(project, "PUT", "apply", "--auto-approve", "--json") as child:
        until_held(child)
        child.send_signal(signal.SIGINT)
        until_said(child, "stopping")
        (project.root / "go").touch()
        out, _ = child.communicate(timeout=PATIENCE_S)
    document = json.loads(out.splitlines()[-1])
    assert child.returncode == 130 and "left" in document["steps"].values()
    assert [d["code"] for d in document["diagnostics"]] == ["ES309"]
    check_free_and_convergent(project)
