"""Several processes and one state: real `edgespec` processes on the real local edge, for both places of state."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgespec import operations, states
from edgespec.diagnostics import EdgespecError
from edgespec.state.codec import encode
from edgespec.stores.base import Holder
from tests.e2e.conftest import TinyProject
from tests.e2e.test_crash import WORKER, inventory

PATIENCE_S = 120
"""For what a process says or does next, on a machine that does other things."""
LIGHT = """
import hashlib, signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that runs tests in the background has it ignored
from edgespec import assets
from edgespec.assets import Bundles, Module
path = Path(sys.argv.pop(1))
text = path.read_bytes()
module = Module(path.name, "application/javascript+module", path, hashlib.sha256(text).hexdigest(), len(text))
assets.bundles = lambda: Bundles({"edge": (module,), "onnxruntime": (module,)})
from edgespec.cli.main import main
main()
"""
"""The command line, with a Worker that needs no engine."""


class Shell:
    """A project and its command line in processes of their own."""

    def __init__(self, project: TinyProject, worker: Path) -> None:
        self.project = project
        self.worker = worker

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-c", LIGHT, str(self.worker), "-C", str(self.project.root), *arguments]

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments), env=self.project.environ, input=stdin, capture_output=True, text=True, timeout=120
        )

    @contextmanager
    def asking(self, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
        """The command on a terminal, once it has put its question."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            self.command(*arguments), env=self.project.environ, stdin=theirs, stdout=theirs, stderr=theirs,
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        try:
            said = b""
            while b"[y/N]" not in said:
                said += read(ours)
            yield process, ours
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            os.close(ours)

    def holder(self) -> Holder | None:
        return self.project.session().store.holder()


def interrupt(process: subprocess.Popen[bytes]) -> int:
    """Presses ctrl-C and answers how the process ended. The signal that comes just before readline starts to wait is
    only seen with the next key (CPython looks for signals when `select` is interrupted): then it is pressed again, as
    a person would."""
    for _ in range(10):
        process.send_signal(signal.SIGINT)
        try:
            return process.wait(10)
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError("ctrl-C was not heard")


def read(source: int) -> bytes:
    """What a terminal or a pipe has next; raises where nothing comes, or where it has ended."""
    ready, _, _ = select.select([source], [], [], PATIENCE_S)
    assert ready, "nothing is said any more"
    data = os.read(source, 4096)
    assert data, "it has ended"
    return data


def drain(terminal: int) -> bytes:
    """What is said until the other end is closed, which is an OSError of a terminal."""
    said = b""
    with contextlib.suppress(OSError):
        while True:
            said += read(terminal)
    return said


@pytest.fixture(params=["local", "r2"])
def shell(request: pytest.FixtureRequest, project: TinyProject, tmp_path: Path) -> Shell:
    (tmp_path / "worker.js").write_text(WORKER)
    if request.param == "r2":
        path = project.root / "edgespec.yaml"
        document = yaml.safe_load(path.read_text())
        document["environments"]["local"]["state"] = {"type": "r2", "bucket": f"{project.name}-the-state"}
        path.write_text(yaml.safe_dump(document))
        assert states.make_state_bucket(project.session()) == (f"{project.name}-the-state", True)
        assert states.make_state_bucket(project.session()) == (f"{project.name}-the-state", False)
    return Shell(project, tmp_path / "worker.js")


def deployed(project: TinyProject) -> dict[str, Any]:
    found = inventory(project)
    found["buckets"] = [b for b in found["buckets"] if not b[0].endswith("-the-state")]
    found["objects"] = {k: v for k, v in found["objects"].items() if not k.endswith("-the-state")}
    return found


def test_the_second_of_two_applies_does_nothing(shell: Shell) -> None:
    shell.project.plan()  # starts the edge
    with shell.asking("apply") as (first, terminal):
        holder = shell.holder()
        assert holder is not None and holder.owner is not None
        assert (holder.owner.pid, holder.owner.operation) == (first.pid, "apply")
        for command in (("apply", "--auto-approve"), ("destroy", "--auto-approve"), ("state", "rm", "worker/tiny")):
            second = shell.run(*command)
            assert (second.returncode, second.stdout) == (1, "")
            assert "State is locked [ES304]" in second.stderr and f"(process {first.pid}, apply since" in second.stderr
        assert not any(deployed(shell.project).values())
        assert shell.run("plan").returncode == 0  # looking is free
        os.write(terminal, b"y\n")
        said = drain(terminal)
        assert first.wait(60) == 0, said
    assert shell.holder() is None
    assert deployed(shell.project)["scripts"] == [f"{shell.project.name}-local-tiny"]
    again = shell.run("apply", "--auto-approve")
    assert again.returncode == 0 and "no changes" in again.stdout


def test_ctrl_c_at_the_prompt_lets_the_lock_go(shell: Shell) -> None:
    shell.project.plan()
    with shell.asking("apply") as (first, terminal):
        assert shell.holder() is not None
        assert interrupt(first) == 130, drain(terminal)
    assert shell.holder() is None
    assert not any(deployed(shell.project).values())


def test_ctrl_c_in_the_middle_lets_the_lock_go_and_keeps_what_was_done(shell: Shell) -> None:
    shell.project.plan()
    process = subprocess.Popen(
        shell.command("apply", "--auto-approve"), env=shell.project.environ, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        said = b""
        while b"model/tiny: created" not in said:
            said += read(process.stdout.fileno())
        os.kill(process.pid, signal.SIGINT)
        rest, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode in (1, 130), said + rest
    assert shell.holder() is None
    assert "model" in {k.address.type for k in shell.project.state().records}
    assert shell.run("apply", "--auto-approve").returncode == 0
    assert "no changes" in shell.run("plan").stdout


@pytest.mark.parametrize("shell", ["r2"], indirect=True)  # in a file: tests/unit/stores/test_local.py
def test_a_killed_holder(shell: Shell) -> None:
    shell.project.plan()
    with shell.asking("apply") as (first, _):
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    holder = shell.holder()
    assert holder is not None and holder.owner is not None
    refused = shell.run("apply", "--auto-approve")
    assert refused.returncode == 1 and f"edgespec state unlock {holder.owner.lease}" in refused.stderr
    unasked = shell.run("state", "unlock", holder.owner.lease)
    assert unasked.returncode == 1 and "pass --yes" in unasked.stderr and str(first.pid) in unasked.stderr
    other = shell.run("state", "unlock", "another-lease", "--yes")
    assert other.returncode == 1 and "ES314" in other.stderr
    with shell.asking("state", "unlock") as (process, terminal):
        os.write(terminal, b"n\n")
        drain(terminal)
        assert process.wait(PATIENCE_S) != 0
    assert shell.holder() is not None
    done = shell.run("state", "unlock", holder.owner.lease, "--yes")
    assert done.returncode == 0 and f"(process {first.pid}, apply since" in done.stdout
    assert shell.run("apply", "--auto-approve").returncode == 0
    assert "no changes" in shell.run("plan").stdout


@pytest.mark.parametrize("shell", ["r2"], indirect=True)
def test_a_state_is_edited_under_the_lock_with_a_backup(shell: Shell) -> None:
    """What the commands say is in tests/unit/cli/test_state.py."""
    project = shell.project
    project.apply_well()
    session = project.session()
    serial = states.current(session).serial
    states.move_record(session, "model/tiny", "model/other")
    assert [k.address.name for k in project.state().records if k.address.type == "model"] == ["other"]
    states.move_record(session, "model/other", "model/tiny")
    assert project.plan().plan.is_empty
    kept = encode(project.state()).encode()
    assert [str(k) for k in states.remove_records(session, ("worker/tiny", "deployment/tiny"))] == [
        "worker/tiny", "deployment/tiny",
    ]  # fmt: skip
    assert "adopt" in {c.action.value for c in project.plan().plan.changes}  # it is there still
    with pytest.raises(EdgespecError, match="older: serial"):
        states.push(session, kept, "kept.json", force=False)
    pushed = states.push(session, kept, "kept.json", force=True)
    assert (pushed.before, pushed.after, pushed.changed) == (serial + 3, serial + 4, True)
    assert project.plan().plan.is_empty
    assert serials_of_backups(project) == [serial, serial + 1, serial + 2, serial + 3]
    assert shell.holder() is None


def serials_of_backups(project: TinyProject) -> list[int]:
    account = operations.connect(project.session())
    listed = account.s3("default").list_objects_v2(Bucket=f"{project.name}-the-state", Prefix="edgespec/")
    account.close()
    return [int(o["Key"].rsplit("/", 1)[1]) for o in listed["Contents"] if ".backup/" in o["Key"]]
