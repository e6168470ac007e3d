from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from edgespec.build.cache import Cache, Entry
from edgespec.cli.cache import command

DAY = 86400


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setenv("EDGESPEC_CACHE_DIR", str(tmp_path / "cache"))
    made = Cache(tmp_path / "cache")
    now = time.time()
    for stage, key, days, data in (("export", "a", 40.5, b"x" * 2048), ("pack", "b", 2.5, b"y" * 1024)):
        made.commit(stage, key, Entry({"out": made.put(data)}, {}))
        path = made.root / "v1" / "stages" / stage / f"{key}.json"
        os.utime(path, (now - days * DAY, now - days * DAY))
    made.put(b"nobody's")
    return made


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


def test_stats(cache: Cache) -> None:
    ran = run("stats")
    assert ran.exit_code == 0
    path, header, *rows = ran.stdout.splitlines()
    assert path == str(cache.root)
    assert header.split()[:3] == ["stage", "entries", "size"]
    assert [" ".join(r.split()) for r in rows] == [
        "export 1 2.0 KiB 40 days ago 40 days ago",
        "pack 1 1.0 KiB 2 days ago 2 days ago",
        "unreferenced 1 8 B",
        "total 3.0 KiB",
    ]
    document = json.loads(run("stats", "--json").stdout)
    assert (document["path"], document["bytes"]) == (str(cache.root), 3080)
    assert [(s["stage"], s["entries"], s["bytes"]) for s in document["stages"]] == [
        ("export", 1, 2048),
        ("pack", 1, 1024),
        ("unreferenced", 1, 8),
    ]


def test_gc(cache: Cache) -> None:
    says = "Would remove 1 result, 0 downloaded models, 2 blobs: 2.0 KiB. 1.0 KiB left."
    assert run("gc", "--older-than", "30d", "--dry-run").stdout.strip() == says
    assert run("gc", "--older-than", "30d").stdout.strip() == says.replace("Would remove", "Removed")
    document = json.loads(run("gc", "--max-size", "1KiB", "--json").stdout)
    assert document == {
        "path": str(cache.root), "dry_run": False, "entries": 0, "downloads": 0, "blobs": 0, "bytes": 0, "left": 1024,
    }  # fmt: skip
    assert json.loads(run("gc", "--max-size", "1023", "--json").stdout)["left"] == 0


@pytest.mark.parametrize(("option", "value"), [("--older-than", "soon"), ("--max-size", "20 potatoes")])
def test_what_is_no_time_and_no_size(cache: Cache, option: str, value: str) -> None:
    ran = run("gc", option, value)
    assert ran.exit_code == 2
    assert f"got '{value}'" in ran.output
    assert "Invalid value" in ran.output


def test_an_empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGESPEC_CACHE_DIR", str(tmp_path / "none"))
    assert run("stats").stdout.splitlines()[-1].split() == ["total", "0", "B"]
    assert "Removed 0 results" in run("gc").stdout
