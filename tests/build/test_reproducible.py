"""The same inputs give the same artifact, byte for byte, wherever, whenever and by however many processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from edgespec.artifact import Manifest
from edgespec.build.cache import Cache
from edgespec.build.pipeline import Pipeline
from edgespec.spec.models import EdgeModel
from tests.tiny import tiny_spec, write_tiny_project

ROOT = Path(__file__).parents[2]


def start(root: Path, cache: Path, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.build.worker", str(root), str(cache)]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True)


def result(process: subprocess.Popen[str]) -> tuple[str, str]:
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    digest, key = out.split()
    return digest, key


def test_two_folders_two_caches_two_processes(tmp_path: Path) -> None:
    one = write_tiny_project(tmp_path / "one")
    two = tmp_path / "a much longer name" / "two"
    # The same files, written in another order, at other times, as Windows writes text.
    for path in sorted((p for p in one.rglob("*") if p.is_file()), reverse=True):
        copy = two / path.relative_to(one)
        copy.parent.mkdir(parents=True, exist_ok=True)
        data = path.read_bytes()
        copy.write_bytes(data if path.suffix == ".safetensors" else data.replace(b"\n", b"\r\n"))
        os.utime(copy, ns=(10**18, 10**18))
    first = start(one, tmp_path / "cache-1", PYTHONHASHSEED="1", OMP_NUM_THREADS="1", TZ="UTC")
    second = start(two, tmp_path / "cache-2", PYTHONHASHSEED="2", OMP_NUM_THREADS="2", TZ="Asia/Tokyo", LC_ALL="C")
    assert result(first) == result(second)

    digest = Pipeline(one, Cache(tmp_path / "cache-1"), lambda _: None).facts(EdgeModel.model_validate(tiny_spec()))
    assert digest.manifest is not None
    for blob in (*(c.sha256 for c in digest.manifest.chunks), digest.manifest.digest):
        files = [Cache(tmp_path / f"cache-{i}").path(blob) for i in (1, 2)]
        assert all(f is not None for f in files)
        assert len({f.read_bytes() for f in files if f}) == 1


def test_two_builds_at_once_in_one_cache(tmp_path: Path) -> None:
    project = write_tiny_project(tmp_path / "project")
    builds = [start(project, tmp_path / "cache") for _ in range(3)]
    assert len({result(b) for b in builds}) == 1
    assert not list((tmp_path / "cache").rglob(".writing-*"))


def test_a_process_killed_while_it_builds_leaves_a_usable_cache(tmp_path: Path) -> None:
    project = write_tiny_project(tmp_path / "project")
    expected = result(start(project, tmp_path / "clean"))
    for moment in (0.4, 0.7, 0.9, 1.1):
        cache = tmp_path / f"cache-{moment}"
        process = start(project, cache)
        try:
            process.wait(timeout=moment)
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
        assert result(start(project, cache)) == expected


def test_a_cache_that_moved_is_still_good(tmp_path: Path) -> None:
    project = write_tiny_project(tmp_path / "project")
    spec = EdgeModel.model_validate(tiny_spec())
    first = Pipeline(project, Cache(tmp_path / "cache"), lambda _: None).build(spec)
    shutil.move(tmp_path / "cache", tmp_path / "moved")
    shutil.move(project, tmp_path / "project-2")
    facts = Pipeline(tmp_path / "project-2", Cache(tmp_path / "moved"), lambda _: None).facts(spec)
    assert isinstance(facts.manifest, Manifest)
    assert facts.manifest == first
    assert all(s.cached for s in facts.stages)
