"""Locks between processes that the tests start and kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgespec.build import locks

HOLDER = """
import sys
from pathlib import Path
from edgespec.build import locks
kind, path = sys.argv[1:]
path = Path(path)
with locks.shared(path, print) if kind == "shared" else locks.exclusive(path, "model/tiny: finetune", print):
    print("held", flush=True)
    sys.stdin.readline()
"""
Hold = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def hold() -> Iterator[Hold]:
    """Starts a process that holds a lock until a line is written to it."""
    started: list[subprocess.Popen[str]] = []

    def start(path: Path, kind: str = "exclusive") -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLDER, kind, str(path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def quiet(_: str) -> None:
    pass


def test_the_one_who_waits_says_for_whom(tmp_path: Path, hold: Hold) -> None:
    path = tmp_path / "locks" / "a"
    holder = hold(path)
    said: list[str] = []

    def told(who: str) -> None:
        said.append(who)
        holder.communicate("go\n")

    with locks.exclusive(path, "me", told):
        assert path.read_text().startswith(f"process {os.getpid()} on ")
    assert len(said) == 1
    assert said[0].startswith(f"process {holder.pid} on ")
    assert said[0].endswith("(model/tiny: finetune)")
    assert list(path.parent.iterdir()) == []


def test_a_killed_holder_lets_go(tmp_path: Path, hold: Hold) -> None:
    path = tmp_path / "a"
    holder = hold(path)
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert path.exists()
    with locks.exclusive(path, "me", lambda who: pytest.fail(f"waited for {who}")):
        pass
    assert not path.exists()


def test_a_holder_that_dies_while_it_is_waited_for(tmp_path: Path, hold: Hold) -> None:
    holder = hold(tmp_path / "a")
    with locks.exclusive(tmp_path / "a", "me", lambda _: holder.kill()):
        assert (tmp_path / "a").exists()


def test_many_threads_one_at_a_time(tmp_path: Path) -> None:
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        for _ in range(30):
            with locks.exclusive(tmp_path / "a", "thread", quiet):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(most) == 180
    assert max(most) == 1


def test_sharers_are_together_and_keep_others_out(tmp_path: Path, hold: Hold) -> None:
    path = tmp_path / "in-use"
    hold(path, "shared")
    with locks.shared(path, lambda who: pytest.fail(f"waited for {who}")):
        assert locks.try_exclusive(path) is None
    other = hold(path, "shared")
    other.communicate("go\n")
    assert locks.try_exclusive(path) is None  # the first still holds it


def test_nobody_holds_it(tmp_path: Path) -> None:
    handle = locks.try_exclusive(tmp_path / "in-use")
    assert handle is not None
    os.close(handle)


def test_an_error_inside_lets_go(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), locks.exclusive(tmp_path / "a", "me", quiet):
        raise RuntimeError
    with locks.exclusive(tmp_path / "a", "me", lambda who: pytest.fail(f"waited for {who}")):
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with locks.shared(tmp_path / "locks" / "in-use", quiet):
        pass


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int, kind: int) -> None:
        raise OSError(95, "not supported")

    monkeypatch.setattr("edgespec.build.locks.fcntl.flock", refuse)
    with locks.exclusive(tmp_path / "a", "me", quiet):
        pass
