"""Two environments of a project on one account, and a project whose names look like theirs: what is done to one leaves
the others exactly as they were, by name, by tag, by state, and as they answer."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgespec import adoption, asking, operations
from edgespec.build.cache import Cache, default_cache_dir
from edgespec.build.sweep import sweep
from edgespec.diagnostics import EdgespecError
from edgespec.fleet import plan_all
from edgespec.plan.model import Action
from edgespec.providers.cloudflare.discover import JURISDICTIONS, discover
from edgespec.providers.cloudflare.live import Live
from edgespec.session import Session, connect, open_session
from tests.e2e.conftest import TinyProject, _numbers
from tests.tiny import tiny_spec

OVERRIDES = {"*": {"cache": {"weights": {"kv": {"pin": ["tokenizer"]}}}}, "tiny": {"regions": None}}
"""Staging's."""


@dataclass
class Fleet:
    project: TinyProject
    neighbour: TinyProject

    def session(self, environment: str) -> Session:
        return open_session(self.project.root, environment, self.project.environ, lambda _: None)

    def apply(self, environment: str, **options: Any) -> None:
        session = self.session(environment)
        applied = operations.apply(session, approve=lambda _: True, on_event=lambda _: None, **options)
        if applied.result is not None and applied.result.diagnostics.has_errors:
            raise EdgespecError(applied.result.diagnostics)

    def changes(self, environment: str) -> dict[str, str]:
        with contextlib.closing(operations.plan(self.session(environment))) as planned:
            return {str(c.key): c.action.value for c in planned.plan.changes if c.action is not Action.NOOP}

    def answer(self, environment: str) -> str:
        return str(asking.infer(self.session(environment), "tiny", {"texts": ["hello"]})["results"][0]["label"])

    def everything(self, prefix: str) -> dict[str, Any]:
        """What the account holds under names that begin so, in all detail: ids, etags, versions, times."""
        with contextlib.closing(connect(self.session("local"))) as account:
            live = Live(account)
            found: dict[str, Any] = {}
            for j in JURISDICTIONS:
                for bucket in sorted(b for b in live.buckets(j) if b.startswith(prefix)):
                    listed = account.s3(j).list_objects_v2(Bucket=bucket).get("Contents", [])
                    found[f"{j}/{bucket}"] = {o["Key"]: (o["Size"], o["ETag"], o["LastModified"]) for o in listed}
            for id_, title in live.namespaces().items():
                if title.startswith(prefix):
                    found[title] = (id_, account.get(f"/storage/kv/namespaces/{id_}/keys")["result"])
            for script in sorted(s for s in live.scripts() if s.startswith(prefix)):
                found[script] = [
                    live.scripts()[script],
                    account.get(f"/workers/scripts/{script}/versions")["result"]["items"],
                    account.get(f"/workers/scripts/{script}/deployments")["result"],
                    live.workers_dev(script),
                ]
            return found

    @contextlib.contextmanager
    def untouched(self, *environments: str) -> Iterator[None]:
        """These, and the neighbour, are afterwards exactly what they were before, and answer."""
        prefixes = [f"{self.project.name}-{e}-" for e in environments if e != "staging"]
        prefixes += [f"{self.neighbour.name}-local-"]
        before = [self.everything(p) for p in prefixes], [self._state(e) for e in environments]
        assert all(before[0])
        yield
        assert ([self.everything(p) for p in prefixes], [self._state(e) for e in environments]) == before
        for environment in environments:
            assert self.changes(environment) == {}
            assert self.answer(environment) == "other"
        assert self.neighbour.infer("tiny", "hello")[0]["label"] == "other"

    def _state(self, environment: str) -> bytes:
        return self.session(environment).workspace.state_path.read_bytes()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, build_cache: Path, shared_edge: Path) -> Iterator[Fleet]:
    """`local` and `staging` of one project and `local` of one called PROJECT-staging, all of them deployed."""
    name = f"isle{next(_numbers)}"
    folder = tmp_path_factory.mktemp("isolation")
    project = TinyProject(folder / "project", build_cache, name, shared_edge)
    write(project)
    project.write_spec(regions={"shards": {"world": {"location": "weur"}}})
    neighbour = TinyProject(folder / "neighbour", build_cache, f"{name}-staging", shared_edge)
    neighbour.write_spec()
    made = Fleet(project, neighbour)
    made.apply("local")
    made.apply("staging")
    neighbour.apply_well()
    yield made
    for environment in ("local", "staging"):
        with contextlib.suppress(EdgespecError):
            made.apply(environment, destroy=True)
    neighbour.apply(destroy=True)


def write(project: TinyProject, overrides: dict[str, Any] | None = None) -> None:
    target = {"type": "local", "port": 0}
    staging = {"target": target, "keep": 0, "overrides": overrides or OVERRIDES}  # a lost state forgets what is kept
    environments = {"local": {"target": target}, "staging": staging}
    document = {"apiVersion": "edgespec/v1", "kind": "Project", "name": project.name, "environments": environments}
    (project.root / "edgespec.yaml").write_text(yaml.safe_dump(document, sort_keys=False))


def test_each_has_its_own_names_and_what_its_overlays_say(fleet: Fleet) -> None:
    name = fleet.project.name
    local, staging = (set(fleet.everything(f"{name}-{e}-")) for e in ("local", "staging"))
    neighbour = set(fleet.everything(f"{name}-staging-local-"))
    assert local == {f"default/{name}-local-weur", f"{name}-local-weights", f"{name}-local-tiny"}
    own = {f"default/{name}-staging-auto", f"{name}-staging-weights", f"{name}-staging-tiny"}
    assert staging == own | neighbour and len(neighbour) == 3
    plans = plan_all(fleet.project.root, (), fleet.project.environ, lambda _: None)
    assert [(p.environment, p.exit_code(detailed=True)) for p in plans.plans] == [("local", 0), ("staging", 0)]
    assert fleet.answer("local") == fleet.answer("staging") == "other"


def test_a_change_in_one_is_none_in_the_other(fleet: Fleet) -> None:
    with fleet.untouched("local"):
        write(fleet.project, {"tiny": {"quantization": {"method": "none"}, "regions": {"shards": None}}})
        assert "weights/tiny/default" in fleet.changes("staging")
        fleet.apply("staging")
        assert fleet.answer("staging") == "other"
    write(fleet.project)
    with fleet.untouched("local"):
        fleet.apply("staging")


def test_a_lost_state_takes_back_its_own_and_nothing_else(fleet: Fleet) -> None:
    name = fleet.project.name
    with fleet.untouched("local"):
        fleet.session("staging").workspace.state_path.unlink()
        found = adoption.discover_all(fleet.session("staging"))
        assert {str(d.address) for d in found.deployed} == {
            f"r2_bucket/{name}-staging-auto",
            f"kv_namespace/{name}-staging-weights",
            "worker/tiny",
        }
        taken = adoption.import_described(fleet.session("staging"), lambda _: True)
        assert {str(i.record.address) for i in taken} >= {"worker/tiny", f"r2_bucket/{name}-staging-auto"}
        fleet.apply("staging")
        fleet.session("staging").workspace.state_path.unlink()
        assert set(fleet.changes("staging").values()) <= {"create", "adopt"}
        fleet.apply("staging", adopt=True)
        assert fleet.changes("staging") == {}


def test_a_worker_of_another_project_is_never_taken(fleet: Fleet) -> None:
    """PROJECT's `local-tiny` in `staging` and PROJECT-staging's `tiny` in `local` have one name."""
    document = tiny_spec("local-tiny")
    path = fleet.project.root / "specs" / "local-tiny.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    try:
        with fleet.untouched():
            with pytest.raises(EdgespecError, match=f"ES415.*belongs to {fleet.neighbour.name}/local"):
                fleet.changes("staging")
            with pytest.raises(EdgespecError, match="ES415"):
                fleet.apply("staging", adopt=True)
    finally:
        path.unlink()


def test_a_build_cache_that_is_emptied_takes_nothing_from_anybody(fleet: Fleet, tmp_path: Path) -> None:
    shutil.copytree(default_cache_dir(fleet.project.environ), tmp_path / "cache")
    environ = {**fleet.project.environ, "EDGESPEC_CACHE_DIR": str(tmp_path / "cache")}
    before = fleet.everything(f"{fleet.project.name}-")
    sweep(Cache(default_cache_dir(environ)), time.time(), older_than=None, max_size=0, dry_run=False)
    assert fleet.everything(f"{fleet.project.name}-") == before
    plans = plan_all(fleet.project.root, (), environ, lambda _: None).plans
    found = [p.planned.plan for p in plans if p.planned is not None]
    assert len(found) == 2
    assert not [str(c.key) for plan in found for c in plan.changes if c.action in (Action.DELETE, Action.REPLACE)]


def test_destroying_one_leaves_the_other(fleet: Fleet) -> None:
    name = fleet.project.name
    with fleet.untouched("local"):
        fleet.apply("staging", destroy=True)
        left = set(fleet.everything(f"{name}-staging-"))
        assert left == set(fleet.everything(f"{name}-staging-local-")), "only the neighbour's"
        with contextlib.closing(connect(fleet.session("staging"))) as account:
            assert discover(account, Live(account), name, "staging") == ()
    fleet.apply("staging")
    assert fleet.answer("staging") == "other"
    fleet.apply("local", destroy=True)
    assert fleet.everything(f"{name}-local-") == {}
    assert fleet.changes("staging") == {} and fleet.answer("staging") == "other"
