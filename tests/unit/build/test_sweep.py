from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgespec.build.cache import Blob, Cache, Entry
from edgespec.build.sweep import UNUSED, Swept, contents, sweep
from edgespec.diagnostics import EdgespecError

NOW = 1_700_000_000.0
DAY = 86400


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def keep(cache: Cache, stage: str, key: str, days: float, **outputs: bytes) -> Path:
    """An entry that was last used so many days before NOW."""
    cache.commit(stage, key, Entry({name: cache.put(data) for name, data in outputs.items()}, {}))
    path = cache.root / "v1" / "stages" / stage / f"{key}.json"
    os.utime(path, (NOW - days * DAY, NOW - days * DAY))
    return path


def names(cache: Cache) -> list[str]:
    return sorted(p.stem for p in (cache.root / "v1" / "stages").glob("*/*"))


def blobs(cache: Cache) -> set[bytes]:
    return {p.read_bytes() for p in (cache.root / "v1" / "blobs").glob("*/*")}


def test_an_empty_cache(cache: Cache) -> None:
    assert contents(cache, NOW).rows() == []
    assert sweep(cache, NOW, max_size=0) == Swept(0, 0, 0, 0, 0)


def test_what_there_is(cache: Cache) -> None:
    keep(cache, "export", "a", 3, graph=b"x" * 100, shared=b"s" * 10)
    keep(cache, "export", "b", 1, graph=b"y" * 50, shared=b"s" * 10)
    keep(cache, "pack", "c", 2, chunk=b"s" * 10)
    cache.put(b"nobody's")
    found = contents(cache, NOW)
    export, pack, unused = found.rows()
    assert (export.stage, export.entries, export.bytes) == ("export", 2, 160)
    assert (export.oldest, export.newest) == (NOW - 3 * DAY, NOW - 1 * DAY)
    assert (pack.stage, pack.entries, pack.bytes) == ("pack", 1, 10)
    assert (unused.stage, unused.entries, unused.bytes, unused.oldest) == (UNUSED, 1, 8, None)
    assert found.bytes == 168


def test_what_nothing_names_goes(cache: Cache) -> None:
    keep(cache, "export", "a", 300, graph=b"kept")
    cache.put(b"nobody's")
    assert sweep(cache, NOW) == Swept(entries=0, downloads=0, blobs=1, bytes=8, left=4)
    assert blobs(cache) == {b"kept"}


def test_what_was_not_used_for_long_goes(cache: Cache) -> None:
    keep(cache, "export", "old", 31, graph=b"old", shared=b"shared")
    keep(cache, "export", "new", 29, graph=b"new", shared=b"shared")
    assert sweep(cache, NOW, older_than=30 * DAY) == Swept(1, 0, 1, 3, 9)
    assert names(cache) == ["new"]
    assert blobs(cache) == {b"new", b"shared"}
    assert cache.entry("export", "new") is not None


def test_the_least_recently_used_goes_first(cache: Cache) -> None:
    for days in (5, 1, 4, 2, 3):
        keep(cache, "export", f"k{days}", days, graph=bytes([days]) * 100)
    assert sweep(cache, NOW, max_size=299).left == 200
    assert names(cache) == ["k1", "k2"]
    assert sweep(cache, NOW, max_size=200).entries == 0


def test_sharing_counts_once(cache: Cache) -> None:
    keep(cache, "export", "a", 3, shared=b"s" * 100)
    keep(cache, "export", "b", 2, shared=b"s" * 100, more=b"m" * 10)
    keep(cache, "export", "c", 1, other=b"o" * 10)
    assert sweep(cache, NOW, max_size=110) == Swept(2, 0, 2, 110, 10)  # the first alone would free nothing
    assert names(cache) == ["c"]


def test_use_makes_an_entry_the_newest(cache: Cache) -> None:
    path = keep(cache, "export", "a", 40, graph=b"a")
    keep(cache, "export", "b", 35, graph=b"b")
    before = path.stat().st_mtime
    assert cache.entry("export", "a") is not None
    assert path.stat().st_mtime > before
    sweep(cache, path.stat().st_mtime + 1, older_than=DAY)
    assert names(cache) == ["a"]


def test_a_dry_run_removes_nothing_and_counts_the_same(cache: Cache) -> None:
    keep(cache, "export", "a", 3, graph=b"aa")
    keep(cache, "export", "b", 1, graph=b"b")
    cache.put(b"nobody's")
    planned = sweep(cache, NOW, max_size=1, dry_run=True)
    assert names(cache) == ["a", "b"]
    assert len(blobs(cache)) == 3
    assert sweep(cache, NOW, max_size=1) == planned
    assert names(cache) == ["b"]


def test_never_while_a_build_runs(cache: Cache) -> None:
    keep(cache, "export", "a", 300, graph=b"a")
    with cache.in_use(pytest.fail), pytest.raises(EdgespecError, match=r"ES536.*Nothing was removed"):
        sweep(cache, NOW, max_size=0)
    assert names(cache) == ["a"]
    with cache.in_use(pytest.fail):
        assert sweep(cache, NOW, max_size=0, dry_run=True).entries == 1
    assert sweep(cache, NOW, max_size=0).entries == 1


def test_damage_and_what_killed_builds_left(cache: Cache) -> None:
    broken = keep(cache, "export", "broken", 1, graph=b"1")
    broken.write_bytes(b"{}")
    keep(cache, "export", "lost", 1, graph=b"22", rest=b"333")
    (path,) = [p for p in (cache.root / "v1" / "blobs").glob("*/*") if p.read_bytes() == b"22"]
    path.unlink()
    old, young = path.parent / ".writing-old", path.parent / ".writing-young"
    for unfinished, age in ((old, 2 * 3600), (young, 60)):
        unfinished.write_bytes(b"4444")
        os.utime(unfinished, (NOW - age, NOW - age))
    lock = cache.root / "v1" / "locks" / "finetune-ab"
    lock.parent.mkdir(exist_ok=True)
    lock.write_text("process 1")
    swept = sweep(cache, NOW)
    assert (swept.entries, swept.blobs) == (0, 2)  # `1` and `333`: no build would take their entries
    assert names(cache) == []
    assert not old.exists()
    assert young.exists()
    assert not lock.exists()


def test_downloaded_models(cache: Cache) -> None:
    package, model = cache.root / "packages" / "minilm" / "1.0", cache.root / "hubs" / "hf" / "org" / "m" / ("a" * 40)
    for folder, days in ((package, 10), (model, 20)):
        (folder / "deep").mkdir(parents=True)
        (folder / "deep" / "weights").write_bytes(b"w" * 100)
        os.utime(folder, (NOW - days * DAY, NOW - days * DAY))
    keep(cache, "export", "a", 15, graph=b"g" * 100)
    rows = contents(cache, NOW).rows()
    assert [(r.stage, r.bytes) for r in rows] == [("export", 100), ("hubs", 100), ("packages", 100)]
    assert sweep(cache, NOW, max_size=250) == Swept(0, 1, 0, 100, 200)
    assert not model.exists()
    assert sweep(cache, NOW, older_than=12 * DAY) == Swept(1, 0, 1, 100, 100)
    assert (package / "deep" / "weights").exists()


def test_a_blob_arrives_in_parts(cache: Cache) -> None:
    blob = cache.put(b"whole")
    (cache.root / "v1" / "blobs" / blob.sha256[:2] / blob.sha256).unlink()
    with pytest.raises(ValueError, match="others"), cache.receive(blob) as f:
        f.write(b"whol")
    assert not cache.holds(blob)
    with pytest.raises(RuntimeError), cache.receive(blob) as f:
        f.write(b"whole")
        raise RuntimeError
    assert not cache.holds(blob)
    with cache.receive(blob) as f:
        f.write(b"wh")
        f.write(b"ole")
    assert cache.read(blob) == b"whole"
    assert not list(cache.root.rglob(".writing-*"))
    assert not cache.holds(Blob("0" * 64, 3))
