"""Builds over a real Ray cluster on this machine: one node, started and stopped here."""

from __future__ import annotations

import importlib.util
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from edgespec.build import ray_executor
from edgespec.build.cache import Cache
from edgespec.build.events import BuildEvent
from edgespec.build.executor import Finished, Request, Said, Task, build_all
from edgespec.build.pipeline import Pipeline
from edgespec.build.ray_executor import RayExecutor
from edgespec.build.stages.stage import Needs
from edgespec.diagnostics import EdgespecError
from edgespec.records import replace
from edgespec.spec.models import EdgeModel
from tests.build.folder_store import open_folder
from tests.tiny import tiny_spec, write_tiny_project

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs ray"),  # not imported before it must be
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]


CLUSTER = """
import sys
import ray
ray.init("local", num_cpus=2, num_gpus=0, _memory=8 * 2**30, object_store_memory=80 * 2**20, include_dashboard=False,
         _node_ip_address="127.0.0.1", log_to_driver=False)
print("address " + ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
ray.shutdown()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster whose workers have a build cache of their own."""
    folder = tmp_path_factory.mktemp("ray")
    own = {"EDGESPEC_CACHE_DIR": str(folder / "node-cache"), "PYTHONPATH": str(Path(__file__).parents[2])}
    environ = pytest.MonkeyPatch()
    for name, value in {"MODE": "token", "TOKEN": secrets.token_hex(32)}.items():  # nobody else's, and kept nowhere
        environ.setenv(f"RAY_AUTH_{name}", value)
    process = subprocess.Popen(
        [sys.executable, "-c", CLUSTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **own, "RAY_USAGE_STATS_ENABLED": "0"},
    )
    assert process.stdout is not None
    address = next((line.split()[1] for line in process.stdout if line.startswith("address ")), "")
    assert address, "Ray did not start"
    yield address
    process.communicate()  # its input ends, and it stops what it has started
    environ.undo()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_tiny_project(tmp_path / "project")


def spec(name: str, **fields: object) -> EdgeModel:
    return EdgeModel.model_validate(tiny_spec(name, **fields))


def task(project: Path, cache: Path, needs: Needs | None = None) -> Task:
    made = spec("a")
    build = Pipeline(project, Cache(cache), lambda _: None).prepare(made)
    document = made.model_dump(mode="json", exclude_unset=True)
    request = Request(str(project), str(cache), document, "export", build.keys["export"])
    return Task(f"export/{build.keys['export']}", "a: export", needs or Needs(), request)


def test_two_specs_over_a_cluster(cluster: str, project: Path, tmp_path: Path) -> None:
    specs = [spec("a"), spec("b", quantization={"method": "none"})]
    cache = Cache(tmp_path / "cache")
    told: list[tuple[str, BuildEvent]] = []
    made = build_all(
        specs,
        lambda s: Pipeline(project, cache, lambda _: None),
        RayExecutor(cluster, cache),
        cache,
        lambda name, event: told.append((name, event)),
    )
    done = [(n, e.stage) for n, e in told if e.message == "done"]
    assert sorted(done) == sorted((n, s) for n in ("a", "b") for s in ("export", "head", "compile", "pack"))
    clean = Cache(tmp_path / "clean")
    assert made == {s.name: Pipeline(project, clean, lambda _: None).build(s) for s in specs}
    import ray

    assert not ray.is_initialized()
    assert not list((cache.root / "v1" / "locks").glob("shared-*"))


def test_workers_that_do_not_see_the_cache(
    cluster: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results go through the cache that machines share."""
    monkeypatch.setattr(ray_executor, "write_atomically", lambda *_: None)  # the mark that workers look for
    cache = Cache(tmp_path / "cache")
    made = spec("a")
    opener = partial(open_folder, str(tmp_path / "bucket"))

    def pipeline(_: EdgeModel) -> Pipeline:
        return Pipeline(project, cache, lambda _: None, opener())

    built = build_all([made], pipeline, RayExecutor(cluster, cache, opener), cache, lambda *_: None)
    assert built == {"a": Pipeline(project, Cache(tmp_path / "clean"), lambda _: None).build(made)}
    with RayExecutor(cluster, cache) as executor:
        executor.submit(task(project, tmp_path / "cache"))
        happening = executor.next()
    assert isinstance(happening, Finished)
    (found,) = happening.problems
    assert found.code == "ES587"
    assert "does not see the build cache's folder" in found.detail
    assert "build: {cache:" in found.detail


def test_what_no_node_can_take_is_refused(cluster: str, project: Path, tmp_path: Path) -> None:
    with RayExecutor(cluster, Cache(tmp_path / "cache")) as executor:
        for needs, says in (
            (Needs(gpus=1), "needs 1 CPU, 2.0 GiB of memory, 1 GPU on one node"),
            (Needs(cpus=64), "needs 64 CPU"),
            (Needs(memory=2**50), "of memory"),
        ):
            with pytest.raises(EdgespecError, match=r"ES587") as caught:
                executor.check([task(project, tmp_path / "cache", needs)])
            assert says in str(caught.value)
            assert "the cluster's nodes have at most 2 CPU" in str(caught.value)


def test_a_step_that_fails_and_one_that_dies(
    cluster: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = task(project, tmp_path / "cache")
    other = replace(good, id="export/1", request=replace(good.request, key="0" * 64))
    with RayExecutor(cluster, Cache(tmp_path / "cache")) as executor:
        executor.submit(other)
        happening = executor.next()
        assert isinstance(happening, Finished)
        assert [p.code for p in happening.problems] == ["ES587"]
        assert "would not be the same here" in happening.problems[0].detail
        monkeypatch.setattr(ray_executor, "run_on_worker", _die)
        executor.submit(good)
        happening = executor.next()
        assert isinstance(happening, Finished)
        assert [p.code for p in happening.problems] == ["ES588"]
        assert "a: export lost its worker" in happening.problems[0].detail


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_interrupted_it_stops_what_runs(
    cluster: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_executor, "run_on_worker", _wait)
    with pytest.raises(KeyboardInterrupt), RayExecutor(cluster, Cache(tmp_path / "cache")) as executor:
        executor.submit(task(project, tmp_path / "cache"))
        assert isinstance(executor.next(), Said)
        raise KeyboardInterrupt
    pid = int((tmp_path / "cache" / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def _wait(id_: str, request: str, mark: str, events: object, opener: object) -> None:
    Path(mark).parents[2].joinpath("pid").write_text(str(os.getpid()))
    events.put((id_, {"stage": "export", "message": "here", "fraction": None, "cached": False}))  # type: ignore[attr-defined]
    time.sleep(600)


def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    executor = RayExecutor("127.0.0.1:9", Cache(tmp_path / "cache"))
    with pytest.raises(EdgespecError, match=r"ES587.*Check RAY_ADDRESS"), executor:
        pytest.fail("it connected")
