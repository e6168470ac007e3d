from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from edgespec.build.cache import RACY_NS, Blob, Cache, Entry, default_cache_dir
from edgespec.diagnostics import EdgespecError
from edgespec.values import sha256_hex

KEY = "ab" * 32


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def aged(path: Path, data: bytes, seconds: int = 100) -> Path:
    """A file that was written a while ago (the change time stays the system's)."""
    path.write_bytes(data)
    then = path.stat().st_mtime_ns - seconds * 10**9
    os.utime(path, ns=(then, then))
    return path


def test_where_it_is() -> None:
    assert default_cache_dir({"EDGESPEC_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/h"}) == Path("/a")
    assert default_cache_dir({"XDG_CACHE_HOME": "/b", "HOME": "/h"}) == Path("/b/edgespec")
    assert default_cache_dir({"HOME": "/h", "XDG_CACHE_HOME": ""}) == Path("/h/.cache/edgespec")


def test_blobs_are_kept_by_their_digest(cache: Cache) -> None:
    blob = cache.put(b"hello")
    assert blob == Blob(sha256_hex(b"hello"), 5)
    assert cache.read(blob) == b"hello"
    path = cache.path(blob.sha256)
    assert path is not None
    assert path.read_bytes() == b"hello"
    assert cache.put(memoryview(b"hello")) == blob


@pytest.mark.parametrize("name", ["", "x" * 64, "../../../etc/passwd", "AB" * 32, KEY])
def test_names_that_are_no_blob(cache: Cache, name: str) -> None:
    assert cache.path(name) is None


def test_a_damaged_blob_is_dropped(cache: Cache) -> None:
    blob = cache.put(b"hello")
    path = cache.path(blob.sha256)
    assert path is not None
    path.write_bytes(b"hellO")
    assert cache.read(blob) is None
    assert not path.exists()
    cache.put(b"hello")
    path.write_bytes(b"hell")
    assert cache.path(blob.sha256) is None
    assert cache.put(b"hello") == blob
    assert cache.read(blob) == b"hello"


def test_entries_survive_and_know_their_blobs(cache: Cache, tmp_path: Path) -> None:
    entry = Entry({"out": cache.put(b"result")}, {"columns": 3})
    assert cache.entry("export", KEY) is None
    cache.commit("export", KEY, entry)
    assert Cache(tmp_path / "cache").entry("export", KEY) == entry
    assert cache.entry("head", KEY) is None


@pytest.mark.parametrize("damage", [b"", b"{}", b"[]", b"null", b'{"format": 1}', b"\xff", None])
def test_a_damaged_entry_is_dropped(cache: Cache, damage: bytes | None) -> None:
    cache.commit("export", KEY, Entry({"out": cache.put(b"result")}, {"columns": 3}))
    path = cache.root / "v1" / "stages" / "export" / f"{KEY}.json"
    if damage is None:  # one number in it is another
        damage = path.read_bytes().replace(b'"columns":3', b'"columns":4')
    path.write_bytes(damage)
    assert cache.entry("export", KEY) is None
    assert not path.exists()


@pytest.mark.parametrize("damage", [b"", b"resulT", None])
def test_an_entry_with_a_damaged_blob_is_dropped(cache: Cache, damage: bytes | None) -> None:
    blob = cache.put(b"result")
    cache.commit("export", KEY, Entry({"out": blob}, {}))
    path = cache.root / "v1" / "blobs" / blob.sha256[:2] / blob.sha256
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    assert cache.entry("export", KEY) is None
    assert not path.exists()


def test_text_is_hashed_alike_with_either_line_end(cache: Cache, tmp_path: Path) -> None:
    unix, windows = tmp_path / "u", tmp_path / "w"
    unix.write_bytes(b"a\nb\n")
    windows.write_bytes(b"a\r\nb\r\n")
    a, b = cache.input(unix, "x", text=True), cache.input(windows, "x", text=True)
    assert a.sha256 == b.sha256
    assert b.read() == b"a\nb\n"
    assert cache.input(windows, "x", text=False).sha256 != a.sha256


def test_digests_are_remembered_by_look(cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = aged(tmp_path / "weights", b"one")
    monkeypatch.setattr("edgespec.build.cache.time.time_ns", lambda: path.stat().st_ctime_ns + RACY_NS + 1)
    first = cache.input(path, "w", text=False)
    cache.save()
    known = json.loads((cache.root / "v1" / "stat.json").read_bytes())["files"]
    assert known[str(path)][-1] == first.sha256

    monkeypatch.setattr("edgespec.build.cache.hashlib.file_digest", None)  # must not be called
    assert Cache(cache.root).input(path, "w", text=False) == first


def test_files_that_are_gone_are_forgotten(cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgespec.build.cache.STATS_KEPT", 1)
    monkeypatch.setattr("edgespec.build.cache.RACY_NS", -(10**18))
    for name in ("gone", "here"):
        (tmp_path / name).write_bytes(b"x")
        cache.input(tmp_path / name, name, text=True)
    (tmp_path / "gone").unlink()
    cache.save()
    assert list(json.loads((cache.root / "v1" / "stat.json").read_bytes())["files"]) == [f"{tmp_path / 'here'}?text"]


def test_a_file_of_this_very_moment_is_not_remembered(cache: Cache, tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"one")
    look = path.stat()
    first = cache.input(path, "w", text=False)
    path.write_bytes(b"two")
    os.utime(path, ns=(look.st_mtime_ns, look.st_mtime_ns))
    assert cache.input(path, "w", text=False).sha256 != first.sha256
    cache.save()
    assert not (cache.root / "v1" / "stat.json").exists()


def test_another_look_is_another_file(cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = aged(tmp_path / "weights", b"one")
    monkeypatch.setattr("edgespec.build.cache.time.time_ns", lambda: path.stat().st_ctime_ns + RACY_NS + 1)
    first = cache.input(path, "w", text=False)
    aged(path, b"two", seconds=50)
    assert cache.input(path, "w", text=False).sha256 != first.sha256


@pytest.mark.parametrize("content", [b"", b"[]", b'{"files": 3}', b'{"files": {"a": [1]}}', b"\xff"])
def test_a_damaged_memory_of_digests_is_forgotten(cache: Cache, tmp_path: Path, content: bytes) -> None:
    (cache.root / "v1").mkdir(parents=True)
    (cache.root / "v1" / "stat.json").write_bytes(content)
    path = aged(tmp_path / "weights", b"one")
    assert cache.input(path, "w", text=False).sha256 == sha256_hex(b"one")


def test_an_input_that_changed_is_noticed(cache: Cache, tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_bytes(b"one")
    file = cache.input(path, "data/train.jsonl", text=True)
    file.check()
    os.utime(path, ns=(1, 1))
    file.check()  # touched, but the same text
    path.write_bytes(b"two")
    for look in (file.read, file.check):
        with pytest.raises(EdgespecError, match=r"data/train\.jsonl was edited or removed"):
            look()
    path.unlink()
    with pytest.raises(EdgespecError, match="ES530"):
        file.check()


def test_a_cache_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EdgespecError, match=r"ES532.*EDGESPEC_CACHE_DIR"):
        Cache(tmp_path / "file").put(b"x")
    Cache(tmp_path / "file").save()


def test_nothing_half_written_is_left(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("edgespec.build.cache.os.fsync", broken)
    with pytest.raises(EdgespecError, match="No space left on device"):
        cache.put(b"x")
    assert [p for p in cache.root.rglob("*") if p.is_file()] == []
