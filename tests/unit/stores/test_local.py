from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgespec.address import Address
from edgespec.diagnostics import EdgespecError
from edgespec.state.codec import encode
from edgespec.state.journal import Drop, Put
from edgespec.state.model import Key, ResourceRecord, State
from edgespec.stores import journaled
from edgespec.stores.base import StoreError
from edgespec.stores.local import LocalStore

A = Address("worker", "a")


def store_at(path: Path) -> LocalStore:
    return LocalStore(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "state" / "local.json"


def put(number: int, name: str = "a") -> Put:
    return Put(ResourceRecord(Address("worker", name), {"n": number}))


def state(number: int, serial: int = 0) -> State:
    return State("lineage", "shop", "local", serial).put(put(number).record)


def number(found: State | None) -> Any:
    record = found.get(A) if found else None
    return record.inputs["n"] if record else None


def code(action: Callable[[], object]) -> str:
    with pytest.raises(EdgespecError) as caught:
        action()
    (problem,) = caught.value.diagnostics
    return f"{problem.code} {problem.detail}"


def names(path: Path) -> list[str]:
    return sorted(p.name.removeprefix("local.json") for p in path.parent.iterdir())


def test_what_is_saved_is_loaded_under_the_next_serial(path: Path) -> None:
    store = store_at(path)
    assert store.load() is None
    with store.lock("apply"):
        saved = store.save(state(1))
        assert saved.serial == 1
        assert store.save(saved).serial == 2
    assert store_at(path).load() == state(1, 2)


def test_what_is_recorded_is_loaded_at_once_and_folded_at_the_end(path: Path) -> None:
    store = store_at(path)
    with store.lock("apply"):
        store.save(state(1))
        assert store.record(put(2), put(5, "b")) == 2
        assert store.record(Drop(Key(A))) == 3
        (found,) = [store_at(path).load()]
        assert found is not None and found.serial == 3 and {str(k) for k in found.records} == {"worker/b"}
        assert names(path) == ["", ".journal", ".lock"]
        assert store.record(put(7)) == 4
    assert names(path) == ["", ".lock"]
    folded = store_at(path).load()
    assert number(folded) == 7 and folded is not None and folded.serial == 4
    assert path.read_text() == encode(folded)


def test_a_run_goes_on_from_anothers_journal(path: Path) -> None:
    with interrupted(store_at(path)) as store:
        store.save(state(1))
        store.record(put(2))
    assert ".journal" in names(path)
    with store_at(path).lock("apply"):
        pass
    assert number(store_at(path).load()) == 2
    with interrupted(store_at(path)) as store:
        assert store.record(put(3)) == 3
    assert len(path.with_name("local.json.journal").read_bytes().splitlines()) == 2
    store = store_at(path)
    with store.lock("apply"):
        assert store.record(put(4)) == 4
    assert number(store_at(path).load()) == 4 and ".journal" not in names(path)


@contextmanager
def interrupted(store: LocalStore) -> Iterator[LocalStore]:
    with pytest.raises(KeyboardInterrupt), store.lock("apply"):
        yield store
        raise KeyboardInterrupt


def test_the_journal_is_folded_when_it_has_grown(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journaled, "_SMALL", 4)
    written: list[int] = []
    replace = Path.replace
    monkeypatch.setattr(Path, "replace", lambda self, to: written.append(1) or replace(self, to))
    store = store_at(path)
    with store.lock("apply"):
        store.save(State("lineage", "shop", "local"))
        for n in range(400):
            store.record(put(n, f"w{n}"))
            assert len(path.with_name("local.json.journal").read_bytes().splitlines() if path.with_name(
                "local.json.journal").exists() else []) <= max(4, n // 2 + 1)  # fmt: skip
    found = store_at(path).load()
    assert found is not None and len(found.records) == 400 and found.serial == 401
    assert len(written) < 16  # it grows by half each time: the work of all foldings is linear


def test_nothing_is_written_without_the_lock(path: Path) -> None:
    store = store_at(path)
    for action in (lambda: store.save(state(1)), lambda: store.record(put(1))):
        assert code(action).startswith("ES311")
    with store.lock("apply"):
        store.save(state(1))
    assert code(lambda: store.record(put(1))).startswith("ES311")


def test_nobody_else_may_read_it(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.with_name("local.json.tmp").write_text("left by a killed run")
    path.with_name("local.json.tmp").chmod(0o666)
    with interrupted(store_at(path)) as store:
        store.save(state(1))
    with interrupted(store_at(path)) as store:
        store.save(state(2, 1))
        store.record(put(3))
    assert names(path) == ["", ".000000000001.backup", ".journal", ".lock"]
    for file in ("", ".000000000001.backup", ".journal"):
        assert stat.S_IMODE(path.with_name("local.json" + file).stat().st_mode) == 0o600, file


def test_the_versions_before_the_last_five_applies_are_kept(path: Path) -> None:
    store = store_at(path)
    for n in range(1, 9):
        with store.lock("apply"):
            for m in range(3):
                store.save(state(n, 10 * n + m))
            store.record(put(100 + n))
    kept = sorted(path.parent.glob("*.backup"))
    assert [p.name for p in kept] == [f"local.json.{10 * n + 4:012}.backup" for n in range(3, 8)]
    assert [number(store_at(p).load()) for p in kept] == [103, 104, 105, 106, 107]
    with store.lock("plan"):  # who writes nothing keeps nothing
        store.load()
    assert sorted(path.parent.glob("*.backup")) == kept


def test_a_backup_holds_what_a_killed_run_had_recorded(path: Path) -> None:
    with interrupted(store_at(path)) as store:
        store.save(state(1))
        store.record(put(2))
    store = store_at(path)
    with store.lock("apply"):
        store.record(put(3))
    (kept,) = path.parent.glob("*.backup")
    assert kept.name == "local.json.000000000002.backup" and number(store_at(kept).load()) == 2


def test_a_backup_of_an_older_format_is_as_it_was(path: Path) -> None:
    old = Path(__file__).parent.parent / "state" / "state-v1.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(old.read_bytes())
    store = store_at(path)
    with store.lock("apply"):
        loaded = store.load()
        assert loaded is not None
        store.save(loaded)
    assert path.with_name("local.json.000000000013.backup").read_bytes() == old.read_bytes()
    assert json.loads(path.read_text())["format"] == "edgespec.state/v3"


class Crash(BaseException):
    pass


CALLS: list[tuple[Any, str]] = [
    (os, "open"), (os, "write"), (os, "fsync"), (os, "fdatasync"), (os, "ftruncate"), (os, "lseek"), (os, "close"),
    (Path, "replace"), (Path, "unlink"),
]  # fmt: skip


def break_at(monkeypatch: pytest.MonkeyPatch, moment: int, problem: BaseException, how: str) -> list[str]:
    """Raise at the `moment`-th call of the operating system, before it, after it or (writes) half-way; returns the
    calls so far."""
    made: list[str] = []

    def wrap(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            made.append(name)
            doomed = len(made) == moment + 1
            if doomed and how == "before":
                if name == "close":
                    real(*args)  # a killed process would not leak it
                raise problem
            if doomed and how == "within" and name == "write":
                real(args[0], bytes(args[1])[: len(args[1]) // 2])
                raise problem
            result = real(*args, **kwargs)
            if doomed:
                if name == "open":
                    os.close(result)
                raise problem
            return result

        monkeypatch.setattr(owner, name, call)

    for owner, name in CALLS:
        wrap(owner, name)
    return made


@pytest.mark.parametrize("how", ["before", "within", "after"])
@pytest.mark.parametrize("writing", ["save", "record", "folding"])
def test_killed_at_any_call_the_old_or_the_new_state_is_there(
    path: Path, monkeypatch: pytest.MonkeyPatch, writing: str, how: str
) -> None:
    with store_at(path).lock("apply"):
        pass
    with interrupted(store_at(path)) as store:
        store.save(state(0))
        store.record(put(0))
    if writing == "folding":
        monkeypatch.setattr(journaled, "_SMALL", 1)
    last, serial = 0, 2
    for moment in range(100):
        store = store_at(path)
        with pytest.raises(Crash), store.lock("apply"):
            before = store.load()
            assert before is not None
            with monkeypatch.context() as patch:
                made = break_at(patch, moment, Crash(), how)
                if writing == "save":
                    store.save(state(moment + 1, before.serial))
                else:
                    store.record(put(moment + 1))
            raise Crash
        found = store_at(path).load()
        assert found is not None and number(found) in (last, moment + 1), made
        assert found.serial == serial + (number(found) != last), made
        last, serial = number(found), found.serial
        if len(made) <= moment:
            break
    assert last == moment + 1 and moment >= 7


def test_a_torn_line_is_cut_off_by_the_next(path: Path) -> None:
    with interrupted(store_at(path)) as store:
        store.save(state(1))
        store.record(put(2))
        store.record(put(3))
    journal = path.with_name("local.json.journal")
    whole = journal.read_bytes()
    for cut in range(len(whole)):
        journal.write_bytes(whole[:cut])
        before = number(store_at(path).load())
        assert before == (1 if cut < whole.index(b"\n") + 1 else 2)
        with interrupted(store_at(path)) as store:
            assert store.record(put(9)) == (2 if before == 1 else 3)
        found = store_at(path).load()
        assert number(found) == 9


def test_a_full_disk_leaves_the_old_state_and_nothing_else(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_at(path)
    with store.lock("apply"):
        store.save(state(0))
        store.record(put(1))
        now = store.load()
        assert now is not None
        next_ = state(2, now.serial)
        for name, action in (
            ("fsync", lambda: store.save(next_)),
            ("open", lambda: store.save(next_)),
            ("write", lambda: store.record(put(2))),
            ("fdatasync", lambda: store.record(put(2))),
        ):
            with monkeypatch.context() as patch:
                patch.setattr(os, name, refuse)
                found = code(action)
            assert found.startswith("ES308") and "No space left on device" in found
            assert number(store_at(path).load()) in ((1,) if name != "fdatasync" else (1, 2))
            assert not path.with_name("local.json.tmp").exists()
        assert code(lambda: store.save(state(2))).startswith("ES302")  # made from an older one
        store.record(put(3))
    assert number(store_at(path).load()) == 3


def test_a_folding_that_fails_half_way_through_fails_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journaled, "_SMALL", 2)
    store = store_at(path)
    with store.lock("apply"):
        store.save(state(0))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", refuse)
            for n in (1, 2, 3):
                if n > 1:
                    store.record(put(n))
                else:
                    with pytest.raises(StoreError):  # the folder of the new journal cannot be synced
                        store.record(put(n))
    assert number(store_at(path).load()) == 3


def refuse(*args: object, **kwargs: object) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = store_at(tmp_path / "file" / "state.json")
    assert code(lambda: store.lock("apply").__enter__()).startswith("ES308")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "1:1"),
        (b'{"format": "edgespec.state/v1",\n "lin', "2:2"),
        (b"\xff\xfe", "invalid start byte"),
        (b'{"format": "edgespec.state/v9"}', "a newer edgespec wrote"),
        (b"[]", "is not a state file"),
        (b'{"format": "edgespec.state/v1"}', "at $.lineage: field required"),
    ],
)
def test_a_damaged_file_is_refused_and_left_alone(path: Path, content: bytes, said: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    found = code(store_at(path).load)
    assert found.startswith("ES301") and said in found and str(path) in found
    assert path.read_bytes() == content


RECORD = {
    "address": "a/b",
    "status": "ready",
    "protected": False,
    "nonce": "",
    "owners": [],
    "depends_on": [],
    "inputs": {},
    "outputs": {},
}


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
    with store.lock("apply"):
        store.save(state(1))
    path.write_text(json.dumps({**json.loads(path.read_text()), **edit}))
    assert code(store.load).startswith("ES301")


HOLD = """
import sys
from pathlib import Path
from edgespec.stores.local import LocalStore
with LocalStore(Path(sys.argv[1])).lock("apply"):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_another_process_holds_the_lock(path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None and other.stdout.readline() == "locked\n"
            for _ in range(2):  # the one who fails takes nothing away from the one who holds it
                found = code(lambda: store_at(path).lock("apply").__enter__())
                assert found.startswith("ES304") and f"(process {other.pid}, apply since " in found
            holder = store_at(path).holder()
            assert holder is not None and holder.owner is not None and holder.owner.pid == other.pid
            assert code(lambda: store_at(path).unlock(holder)).startswith("ES314")
        finally:
            other.kill()
    assert store_at(path).holder() is None  # a killed holder holds nothing
    with store_at(path).lock("apply"):
        pass


def test_the_lock_is_released_by_an_exception(path: Path) -> None:
    store = store_at(path)
    with pytest.raises(KeyboardInterrupt), store.lock("apply"):
        raise KeyboardInterrupt
    with store.lock("apply"):
        pass


def test_a_lost_snapshot_is_not_an_empty_state(path: Path) -> None:
    with interrupted(store_at(path)) as store:
        store.save(state(1))
        store.record(put(2))
    path.unlink()
    assert "the snapshot is missing" in code(store_at(path).load)


def test_a_damaged_state_is_kept_when_another_is_put_in_its_place(path: Path) -> None:
    with interrupted(store_at(path)) as store:
        store.save(state(1))
        store.record(put(2))
    path.write_text("{")
    store = store_at(path)
    with store.lock("state push"):
        store.save(state(3, 9))
    assert number(store_at(path).load()) == 3
    assert path.with_name("local.json.damaged").read_text() == "{"
    assert path.with_name("local.json.journal.damaged").exists() and ".journal" not in names(path)


def test_a_reader_without_the_lock_sees_a_whole_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has read the old snapshot; before it reads the journal, the writer folds it and goes on."""
    writer, reader = store_at(path), store_at(path)
    files: Any = reader._backend
    read = type(files).journal
    with writer.lock("apply"):
        writer.save(state(0))
        writer.record(put(1))
        overtaken: list[int] = []

        def slow(self: Any, after: int) -> Any:
            if self is files and not overtaken:
                overtaken.append(1)
                writer.save(state(2, 2))
                writer.record(put(3))
            return read(self, after)

        monkeypatch.setattr(type(files), "journal", slow)
        found = reader.load()
        assert number(found) == 3 and found is not None and found.serial == 4
