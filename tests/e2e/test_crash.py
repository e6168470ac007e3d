"""SIGKILL an apply at every step, and apply again.

A child process runs the real apply against the real local edge and kills itself at the n-th boundary: in the middle of
a write of state or after it, just before or just after a changing API call. Then a second apply runs to the end, and
the account must hold exactly what an undisturbed apply leaves: nothing orphaned, nothing twice, nothing lost. n grows
until the child gets through.
"""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from edgespec import assets, operations, states
from edgespec.assets import Bundles, Module
from edgespec.plan.model import Action
from edgespec.stores import local
from edgespec.stores.local import LocalFiles
from tests.e2e.conftest import TinyProject

# A Worker without an engine, so that a hundred applies take seconds: healthy only when every chunk that its
# configuration names is in its bucket. The engine has its own tests; here the planner and the applier are on trial.
WORKER = """
import text from "./config.json";
const config = JSON.parse(text);
const json = (value, status = 200) => new Response(JSON.stringify(value), { status });
export default {
  async fetch(request, env) {
    const path = new URL(request.url).pathname;
    for (const shard of Object.values(config.shards)) {
      for (const file of Object.values(config.artifacts[shard.artifact].files)) {
        for (const chunk of file.chunks) {
          if (!(await env[shard.bucket].head("artifacts/" + chunk.sha256))) return json({ missing: chunk.sha256 }, 503);
        }
      }
    }
    return path.endsWith("/healthz") ? json({ status: "ok" }) : json({ error: { message: "no engine" } }, 404);
  },
};
"""


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "worker.js"
    path.write_text(WORKER)
    module = Module(
        path.name, "application/javascript+module", path, hashlib.sha256(WORKER.encode()).hexdigest(), len(WORKER)
    )
    monkeypatch.setattr(assets, "bundles", lambda: Bundles({"edge": (module,), "onnxruntime": (module,)}))


class Boundaries:
    """Counts the places where a process may die, and dies at the chosen one."""

    def __init__(self, fatal: int) -> None:
        self.seen = 0
        self.fatal = fatal

    def reached(self) -> None:
        self.seen += 1
        if self.seen == self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, call: Callable[..., Any], counts: Callable[..., bool]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if not counts(*args, **kwargs):
                return call(*args, **kwargs)
            self.reached()
            result = call(*args, **kwargs)
            self.reached()
            return result

        return wrapped

    def after(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any) -> None:
            call(*args)
            self.reached()

        return wrapped

    def within(self, write: Callable[[int, bytes], None]) -> Callable[[int, bytes], None]:
        """Half of it is in the file."""

        def wrapped(descriptor: int, data: bytes) -> None:
            write(descriptor, data[: len(data) // 2])
            self.reached()
            write(descriptor, data[len(data) // 2 :])

        return wrapped


def run_and_die(project: TinyProject, fatal: int, **options: Any) -> bool:
    """Apply in a child that dies at boundary `fatal`; False when it got through without reaching it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            import botocore.httpsession

            boundaries = Boundaries(fatal)
            local._write_all = boundaries.within(local._write_all)
            LocalFiles.append = boundaries.after(LocalFiles.append)  # type: ignore[method-assign]
            LocalFiles.replace_snapshot = boundaries.after(LocalFiles.replace_snapshot)  # type: ignore[method-assign]
            httpx.Client.send = boundaries.around(  # type: ignore[method-assign]
                httpx.Client.send,
                lambda _, request, **__: request.method != "GET" and "/client/v4/" in str(request.url),
            )
            session = botocore.httpsession.URLLib3Session
            session.send = boundaries.around(session.send, lambda _, request: request.method != "GET")
            applied = project.apply(**options)
            failed = applied.result is not None and applied.result.diagnostics.has_errors
            code = 3 if failed else 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "the undisturbed apply failed"
    return False


def inventory(project: TinyProject) -> dict[str, Any]:
    """Everything of this project that the account holds, without generated ids."""
    account = operations.connect(project.session())
    live = operations.Live(account)
    mine = f"{project.name}-"
    buckets = sorted((b, j) for j in ("default", "eu") for b in live.buckets(j) if b.startswith(mine))
    namespaces = sorted((t, i) for i, t in live.namespaces().items() if t.startswith(mine))
    scripts = sorted(s for s in live.scripts() if s.startswith(mine))
    versions = {s: account.get(f"/workers/scripts/{s}/versions")["result"]["items"] for s in scripts}
    found = {
        "buckets": buckets,
        "objects": {f"{j}/{b}": sorted(live.objects(b, j)) for b, j in buckets},
        "namespaces": [title for title, _ in namespaces],
        "pinned": [sorted(live.pinned(i)) for _, i in namespaces],
        "scripts": scripts,
        "versions": {s: sorted(v["annotations"]["workers/tag"] for v in items) for s, items in versions.items()},
        "served": {s: sorted(live.deployed(s).values()) for s in scripts},
        "open": {s: live.workers_dev(s) for s in scripts},
    }
    account.close()
    return found


def expected(project: TinyProject) -> dict[str, list[str]]:
    """Object keys that the current state asks for."""
    wanted: dict[str, set[str]] = {}
    for key, record in project.state().records.items():
        if key.address.type in ("weights", "archive"):
            place = f"{record.inputs['jurisdiction']}/{record.inputs['bucket']}"
            wanted.setdefault(place, set()).update(b["sha256"] for b in record.inputs["blobs"])  # type: ignore[union-attr,index,call-overload,misc,arg-type]
    return {place: sorted(found) for place, found in wanted.items()}


def check_converged(project: TinyProject) -> dict[str, Any]:
    project.apply_well()
    planned = project.plan()
    assert [str(c.key) for c in planned.plan.changes if c.action is not Action.NOOP] == []
    found = inventory(project)
    assert found["objects"] == expected(project)
    for script, tags in found["versions"].items():
        assert len(tags) == len(set(tags)), "a version was uploaded twice"
        found["versions"][script] = len(tags)  # tags themselves depend on the namespace's generated id
    assert set(found["open"].values()) == {True}
    state = project.state()
    assert not any(k.deposed for k in state.records)
    assert {r.status.value for r in state.records.values()} == {"ready"}
    return found


REGIONS = {
    "default": "world",
    "shards": {"world": {"location": "wnam"}, "eu": {"jurisdiction": "eu", "match": {"continents": ["EU"]}}},
}
CACHE = {"weights": {"kv": {"pin": ["tokenizer"]}}}
STRIDE = 13


@pytest.fixture
def crashing(project: TinyProject, light: None) -> Iterator[TinyProject]:
    project.write_spec(regions=REGIONS, cache=CACHE)
    project.plan()  # starts the edge outside the child
    yield project


def test_killed_at_every_step_of_a_first_apply(crashing: TinyProject) -> None:
    reference: dict[str, Any] | None = None
    boundary = 1
    while run_and_die(crashing, boundary):
        found = check_converged(crashing)
        reference = reference or found
        assert found == reference, f"after a kill at boundary {boundary}"
        crashing.apply_well(destroy=True)
        assert not any(inventory(crashing).values())
        boundary += 1
    assert boundary > 30
    assert check_converged(crashing) == reference


def test_killed_at_every_step_of_a_replacement(crashing: TinyProject) -> None:
    """Weights are replaced create-first: new ones up, traffic over, old ones away."""
    variants = ({"method": "none"}, {"method": "int8"})
    crashing.apply_well()
    boundary = 1
    while True:
        crashing.write_spec(regions=REGIONS, cache=CACHE, quantization=variants[(boundary - 1) % 2])
        died = run_and_die(crashing, boundary)
        check_converged(crashing)
        if not died:
            break
        boundary += 1
    assert boundary > 25


def test_killed_at_every_step_of_a_removal(crashing: TinyProject) -> None:
    boundary = 1
    while True:
        crashing.apply_well()
        died = run_and_die(crashing, boundary, destroy=True)
        crashing.apply_well(destroy=True)
        left = {what: found for what, found in inventory(crashing).items() if found}
        assert not left, f"after a kill at boundary {boundary}"
        assert not crashing.state().records
        if not died:
            break
        boundary += 1
    assert boundary > 20


def test_killed_while_state_is_in_a_bucket(crashing: TinyProject) -> None:
    """Every request to the bucket is a boundary too; a sample of all, another one with EDGESPEC_CRASH_OFFSET. What a
    killed run leaves locked is unlocked, as its user would."""
    path = crashing.root / "edgespec.yaml"
    document = yaml.safe_load(path.read_text())
    document["environments"]["local"]["state"] = {"type": "r2", "bucket": "state-of-crashes"}
    path.write_text(yaml.safe_dump(document))
    states.make_state_bucket(crashing.session())
    boundary = 1 + int(os.environ.get("EDGESPEC_CRASH_OFFSET", "3")) % STRIDE
    while run_and_die(crashing, boundary):
        store = crashing.session().store
        holder = store.holder()
        if holder is not None:
            store.unlock(holder)
        check_converged(crashing)
        crashing.apply_well(destroy=True)
        assert not any(inventory(crashing).values())
        boundary += STRIDE
    assert boundary > 60
    check_converged(crashing)
