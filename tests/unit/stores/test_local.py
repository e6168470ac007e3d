from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgespec import assets
from edgespec.address import Address
from edgespec.diagnostics import EdgespecError
from edgespec.state.model import ResourceRecord, State
from edgespec.stores.local import LocalStore


def store_at(path: Path) -> LocalStore:
    return LocalStore(path, lambda d: assets.schema_error("state", d))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "state" / "local.json"


def state(number: int) -> State:
    return State("lineage", "shop", "local").put(ResourceRecord(Address("worker", "a"), {"n": number}))


def number(found: State | None) -> Any:
    record = found.get(Address("worker", "a")) if found else None
    return record.inputs["n"] if record else None


def code(action: Callable[[], object]) -> str:
    with pytest.raises(EdgespecError) as caught:
        action()
    (problem,) = caught.value.diagnostics
    return f"{problem.code} {problem.detail}"


def test_what_is_saved_is_loaded_under_the_next_serial(path: Path) -> None:
    store = store_at(path)
    assert store.load() is None
    with store.lock():
        saved = store.save(state(1))
        assert saved.serial == 1
        assert store.save(saved).serial == 2
    assert store_at(path).load() == State("lineage", "shop", "local", 2, state(1).records)


def test_nobody_else_may_read_it(path: Path) -> None:
    store = store_at(path)
    path.parent.mkdir(parents=True)
    path.with_name("local.json.tmp").write_text("left by a killed run")
    path.with_name("local.json.tmp").chmod(0o666)
    for n in (1, 2):
        with store.lock():
            store.save(state(n))
    for file in (path, path.with_name("local.json.backup")):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_a_backup_of_what_was_before_the_last_apply(path: Path) -> None:
    store = store_at(path)
    with store.lock():
        store.save(store.save(state(1)))
    assert not path.with_name("local.json.backup").exists()
    with store.lock():
        for n in (2, 3, 4):
            store.save(state(n))
    assert number(store_at(path.with_name("local.json.backup")).load()) == 1
    assert sorted(p.name for p in path.parent.iterdir()) == ["local.json", "local.json.backup", "local.json.lock"]


class Crash(BaseException):
    pass


CALLS: list[tuple[Any, str]] = [
    (os, "open"), (os, "fdopen"), (os, "fsync"), (os, "close"), (Path, "replace"), (Path, "unlink"), (shutil, "copy2"),
]  # fmt: skip


def break_at(monkeypatch: pytest.MonkeyPatch, moment: int, problem: BaseException, *, after: bool) -> list[str]:
    """Raise at the `moment`-th call of the operating system, before or after it was done; returns the calls so far."""
    made: list[str] = []

    def wrap(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            made.append(name)
            doomed = len(made) == moment + 1
            if doomed and not after:
                raise problem
            result = real(*args, **kwargs)
            if doomed:
                if name == "fdopen":
                    result.close()  # a killed process would not leak it
                raise problem
            return result

        monkeypatch.setattr(owner, name, call)

    for owner, name in CALLS:
        wrap(owner, name)
    return made


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_call_the_old_or_the_new_state_is_there(
    path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    store = store_at(path)
    with store.lock():
        store.save(state(0))
    last = number(store.load())
    for moment in range(100):
        with store.lock(), monkeypatch.context() as patch:
            made = break_at(patch, moment, Crash(), after=after)
            try:
                store.save(state(moment + 1))
                break
            except Crash:
                pass
        assert number(store.load()) in (last, moment + 1), made
        last = number(store.load())
        with store.lock():
            assert number(store.save(state(last))) == last
    assert len(made) == moment >= 7


def test_a_full_disk_leaves_the_old_state_and_nothing_else(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_at(path)
    with store.lock():
        store.save(state(0))
        for name in ("fsync", "open"):
            with monkeypatch.context() as patch:
                patch.setattr(os, name, refuse)
                found = code(lambda: store.save(state(1)))
            assert found.startswith("ES308") and "No space left on device" in found
            assert number(store.load()) == 0
            assert not path.with_name("local.json.tmp").exists()


def refuse(*args: object, **kwargs: object) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = store_at(tmp_path / "file" / "state.json")
    assert code(lambda: store.lock().__enter__()).startswith("ES308")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "1:1"),
        (b'{"format": "edgespec.state/v1",\n "lin', "2:2"),
        (b"\xff\xfe", "invalid start byte"),
        (b'{"format": "edgespec.state/v9"}', "a newer edgespec wrote"),
        (b"[]", "is not a state file"),
        (b'{"format": "edgespec.state/v1"}', "is a required property"),
    ],
)
def test_a_damaged_file_is_refused_and_left_alone(path: Path, content: bytes, said: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    found = code(store_at(path).load)
    assert found.startswith("ES301") and said in found and str(path) in found
    assert path.read_bytes() == content


RECORD = {"address": "a/b", "status": "ready", "owners": [], "depends_on": [], "inputs": {}, "outputs": {}}


@pytest.mark.parametrize(
    "edit",
    [
        {"resources": [{**RECORD, "address": "no-slash"}]},
        {"resources": [{**RECORD, "depends_on": ["no-slash"]}]},
        {"resources": [{**RECORD, "status": "lost"}]},
        {"serial": -1},
        {"serial": "1"},
        {"lineage": ""},
        {"more": 1},
    ],
)
def test_a_file_that_breaks_its_schema(path: Path, edit: dict[str, Any]) -> None:
    store = store_at(path)
    with store.lock():
        store.save(state(1))
    path.write_text(json.dumps({**json.loads(path.read_text()), **edit}))
    assert code(store.load).startswith("ES301")


HOLD = """
import sys
from pathlib import Path
from edgespec.stores.local import LocalStore
with LocalStore(Path(sys.argv[1]), lambda d: None).lock():
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_another_process_holds_the_lock(path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None and other.stdout.readline() == "locked\n"
            for _ in range(2):  # the one who fails takes nothing away from the one who holds it
                found = code(lambda: store_at(path).lock().__enter__())
                assert found.startswith("ES304") and f"process {other.pid}" in found
        finally:
            other.kill()
    with store_at(path).lock():  # a killed holder holds nothing
        pass


def test_the_lock_is_released_by_an_exception(path: Path) -> None:
    store = store_at(path)
    with pytest.raises(KeyboardInterrupt), store.lock():
        raise KeyboardInterrupt
    with store.lock():
        pass
