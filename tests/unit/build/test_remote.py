"""The shared cache over a store in memory; over R2's API it is tests/e2e/test_remote_cache.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgespec.build.cache import Cache, Entry
from edgespec.build.remote import PREFIX, RemoteCache, RemoteError
from edgespec.diagnostics import Diagnostic
from edgespec.values import sha256_hex
from tests.unit.build.memory_store import MemoryStore

KEY = "ab" * 32
WHERE = f"{PREFIX}stages/export/{KEY}.json"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def warnings() -> list[Diagnostic]:
    return []


@pytest.fixture
def remote(store: MemoryStore, warnings: list[Diagnostic]) -> RemoteCache:
    return RemoteCache(store, warnings.append)


@pytest.fixture
def mine(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "mine")


@pytest.fixture
def theirs(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "theirs")


def made(cache: Cache, **outputs: bytes) -> Entry:
    entry = Entry({name: cache.put(data) for name, data in outputs.items()}, {"columns": 3})
    cache.commit("export", KEY, entry)
    return entry


def quiet(_: str) -> None:
    pass


def blob_at(data: bytes) -> str:
    return f"{PREFIX}blobs/{sha256_hex(data)}"


def test_what_one_machine_built_another_has(
    remote: RemoteCache, store: MemoryStore, mine: Cache, theirs: Cache, warnings: list[Diagnostic]
) -> None:
    entry = made(theirs, graph=b"a graph", shared=b"shared")
    assert remote.get(mine, "export", KEY, quiet) is None
    remote.put(theirs, "export", KEY, entry, quiet)
    assert sorted(store.objects) == sorted([blob_at(b"a graph"), blob_at(b"shared"), WHERE])
    said: list[str] = []
    assert remote.get(mine, "export", KEY, said.append) == entry
    assert said == ["downloading 13 B from the bucket memory"]
    assert mine.entry("export", KEY) == entry
    assert mine.read(entry.outputs["graph"]) == b"a graph"
    assert remote.get(mine, "head", KEY, quiet) is None
    assert warnings == []


def test_blobs_go_before_their_entry_and_once(remote: RemoteCache, store: MemoryStore, theirs: Cache) -> None:
    entry = made(theirs, a=b"one", b=b"one", c=b"two")
    remote.put(theirs, "export", KEY, entry, quiet)
    uploads = [c for c in store.calls if not c.startswith("size")]
    assert sorted(uploads[:2]) == sorted([f"upload {blob_at(b'one')}", f"upload {blob_at(b'two')}"])
    assert uploads[2:] == [f"create {WHERE}"]
    store.calls.clear()
    remote.put(theirs, "head", KEY, entry, quiet)
    assert [c for c in store.calls if c.startswith("upload")] == []


def test_only_blobs_that_are_missing_come_in(
    remote: RemoteCache, store: MemoryStore, mine: Cache, theirs: Cache
) -> None:
    remote.put(theirs, "export", KEY, made(theirs, a=b"one", b=b"two"), quiet)
    mine.put(b"one")
    store.calls.clear()
    remote.get(mine, "export", KEY, quiet)
    assert [c for c in store.calls if c.startswith("download")] == [f"download {blob_at(b'two')}"]


def test_what_is_there_is_asked_once_a_stage(remote: RemoteCache, store: MemoryStore, theirs: Cache) -> None:
    remote.put(theirs, "export", KEY, made(theirs, a=b"one"), quiet)
    store.calls.clear()
    steps = [("export", KEY), ("head", KEY), ("pack", KEY)]
    assert remote.has(steps) == {("export", KEY)}
    assert sorted(store.calls) == sorted(f"size {PREFIX}stages/{s}/{k}.json" for s, k in steps)


@pytest.mark.parametrize("damage", [b"", b"{}", b"[]", b"\xff", b"[" * 100_000, "number", "outside", "negative"])
def test_a_damaged_entry_is_a_warning_and_is_replaced(
    damage: bytes | str,
    remote: RemoteCache,
    store: MemoryStore,
    mine: Cache,
    theirs: Cache,
    warnings: list[Diagnostic],
) -> None:
    entry = made(theirs, graph=b"a graph")
    remote.put(theirs, "export", KEY, entry, quiet)
    changes = {
        "number": (b'"columns":3', b'"columns":4'),
        "outside": (b'"graph"', b'"../../x"'),
        "negative": (b":7", b":-7"),
    }
    store.objects[WHERE] = damage if isinstance(damage, bytes) else store.objects[WHERE].replace(*changes[damage])
    for _ in range(2):
        assert remote.get(mine, "export", KEY, quiet) is None
    assert [w.code for w in warnings] == ["ES586"]
    assert WHERE in warnings[0].detail
    assert not list(mine.root.rglob("*.json"))
    remote.put(theirs, "export", KEY, entry, quiet)
    assert remote.get(mine, "export", KEY, quiet) == entry


@pytest.mark.parametrize("damage", [b"", b"a grapH", b"a graph and more", None])
def test_a_damaged_blob_is_a_warning_and_is_replaced(
    damage: bytes | None,
    remote: RemoteCache,
    store: MemoryStore,
    mine: Cache,
    theirs: Cache,
    warnings: list[Diagnostic],
) -> None:
    entry = made(theirs, graph=b"a graph")
    remote.put(theirs, "export", KEY, entry, quiet)
    if damage is None:
        del store.objects[blob_at(b"a graph")]
    else:
        store.objects[blob_at(b"a graph")] = damage
    if damage == b"a graph and more":  # no more than its size is read, and that much is right
        assert remote.get(mine, "export", KEY, quiet) == entry
        return
    assert remote.get(mine, "export", KEY, quiet) is None
    assert mine.entry("export", KEY) is None
    assert [w.code for w in warnings] == ["ES586"]
    assert not list(mine.root.rglob(".writing-*"))
    remote.put(theirs, "export", KEY, entry, quiet)
    assert remote.get(mine, "export", KEY, quiet) == entry


def test_a_store_that_cannot_be_used_is_one_warning(
    remote: RemoteCache, store: MemoryStore, mine: Cache, theirs: Cache, warnings: list[Diagnostic]
) -> None:
    entry = made(theirs, a=b"one", b=b"two")
    store.down = "it does not exist. Make it with `edgespec cache init`."
    assert remote.get(mine, "export", KEY, quiet) is None
    remote.put(theirs, "export", KEY, entry, quiet)
    assert remote.has([("export", KEY), ("pack", KEY)]) == frozenset()
    assert len(store.calls) == 1
    assert [w.code for w in warnings] == ["ES585"]
    assert warnings[0].detail == (
        "the bucket memory: it does not exist. Make it with `edgespec cache init`. The build goes on without it."
    )


def test_it_fails_while_blobs_go_up(
    remote: RemoteCache, store: MemoryStore, theirs: Cache, warnings: list[Diagnostic], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RemoteError("it cannot be reached (Timeout).")

    monkeypatch.setattr(store, "upload", fail)
    remote.put(theirs, "export", KEY, made(theirs, a=b"one", b=b"two", c=b"three"), quiet)
    assert WHERE not in store.objects
    assert len(warnings) == 1


def test_the_first_result_stays_and_another_is_told(
    remote: RemoteCache, store: MemoryStore, mine: Cache, theirs: Cache
) -> None:
    remote.put(theirs, "export", KEY, made(theirs, graph=b"theirs"), quiet)
    first = store.objects[WHERE]
    said: list[str] = []
    remote.put(mine, "export", KEY, made(mine, graph=b"mine"), said.append)
    assert store.objects[WHERE] == first
    assert "another result under this key" in said[-1]
    said.clear()
    remote.put(theirs, "export", KEY, made(theirs, graph=b"theirs"), said.append)
    assert said == []


def test_the_local_cache_has_lost_it(remote: RemoteCache, store: MemoryStore, theirs: Cache) -> None:
    entry = made(theirs, graph=b"a graph")
    for path in theirs.root.glob("v1/blobs/*/*"):
        path.unlink()
    remote.put(theirs, "export", KEY, entry, quiet)
    assert store.objects == {}
