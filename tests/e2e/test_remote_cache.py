"""The shared build cache over R2's API: a real local edge, two machines' caches."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgespec import builds, operations
from edgespec.build.events import BuildEvent
from edgespec.build.remote import PREFIX, RemoteCache
from edgespec.diagnostics import Diagnostic, EdgespecError
from edgespec.providers.cloudflare.account import Account, Endpoints
from edgespec.providers.cloudflare.remote_cache import R2Store, RemoteOpener
from edgespec.secret import Secret
from edgespec.session import Session
from tests.e2e.conftest import TinyProject


class Machine:
    """A colleague's or CI's: the same project, a cache of its own."""

    def __init__(self, project: TinyProject, cache: Path) -> None:
        self.said: list[str] = []
        self.events: list[BuildEvent] = []
        environ = {**project.environ, "EDGESPEC_CACHE_DIR": str(cache)}
        self.session: Session = operations.open_session(project.root, None, environ, self._say)

    def _say(self, text: str) -> None:
        if "ES58" in text:  # the edge, which may have to start, speaks too
            self.said.append(text)

    def build(self, **options: Any) -> dict[str, str]:
        made = builds.build(self.session, (), lambda _, e: self.events.append(e), **options)
        return {name: manifest.digest for name, manifest in made.items()}

    @property
    def ran(self) -> list[str]:
        return [e.stage for e in self.events if e.message == "done"]


@pytest.fixture
def sharing(project: TinyProject) -> TinyProject:
    path = project.root / "edgespec.yaml"
    document = yaml.safe_load(path.read_text())
    document["build"] = {"cache": {"bucket": f"{project.name}-build-cache"}}
    path.write_text(yaml.safe_dump(document))
    return project


def objects(project: TinyProject) -> dict[str, int]:
    account = operations.connect(project.session())
    pages = account.s3("default").list_objects_v2(Bucket=f"{project.name}-build-cache")
    account.close()
    return {o["Key"]: o["Size"] for o in pages.get("Contents", [])}


def put(project: TinyProject, key: str, data: bytes) -> None:
    account = operations.connect(project.session())
    account.s3("default").put_object(Bucket=f"{project.name}-build-cache", Key=key, Body=data)
    account.close()


def test_what_one_machine_built_another_takes(sharing: TinyProject, tmp_path: Path) -> None:
    first = Machine(sharing, tmp_path / "first")
    made = first.build()  # no bucket yet: the build goes on
    (warning,) = first.said
    assert "ES585" in warning
    assert "does not exist. Make it with `edgespec cache init`" in warning

    bucket = f"{sharing.name}-build-cache"
    assert builds.make_build_cache(first.session) == (bucket, True)
    assert builds.make_build_cache(first.session) == (bucket, False)
    second = Machine(sharing, tmp_path / "second")
    assert second.build() == made
    assert second.ran == first.ran
    assert second.said == []
    held = objects(sharing)
    entries = [k for k in held if k.startswith(f"{PREFIX}stages/")]
    assert sorted(k.split("/")[3] for k in entries) == sorted([*second.ran, "provenance"])

    ci = Machine(sharing, tmp_path / "ci")
    planned = operations.plan(ci.session)
    planned.close()
    (facts,) = planned.plan.builds.values()
    assert sorted(s.name for s in facts.stages if s.remote) == sorted(second.ran)
    assert ci.build() == made
    assert ci.ran == []
    assert objects(sharing) == held

    entry = next(k for k in entries if "/pack/" in k)
    put(sharing, entry, b"{}")
    last = Machine(sharing, tmp_path / "last")
    assert last.build() == made
    assert last.ran == ["pack"]
    assert ["ES586" in text for text in last.said] == [True]
    assert objects(sharing) == held  # written anew


def test_results_stay_as_they_were_first(sharing: TinyProject, tmp_path: Path) -> None:
    machine = Machine(sharing, tmp_path / "one")
    builds.make_build_cache(machine.session)
    account = operations.connect(machine.session)
    store = R2Store(lambda: account, f"{sharing.name}-build-cache")
    assert store.create("build-cache/v1/stages/x/1.json", b"first", replace=False)
    assert not store.create("build-cache/v1/stages/x/1.json", b"second", replace=False)
    assert store.read("build-cache/v1/stages/x/1.json", 100) == b"first"
    assert store.create("build-cache/v1/stages/x/1.json", b"third", replace=True)
    assert store.read("build-cache/v1/stages/x/1.json", 3) == b"thi"
    assert store.size("build-cache/v1/stages/x/1.json") == 5
    assert store.size("build-cache/v1/stages/x/2.json") is None
    assert store.read("build-cache/v1/stages/x/2.json", 3) is None


def test_no_message_holds_a_credential(sharing: TinyProject, tmp_path: Path) -> None:
    machine = Machine(sharing, tmp_path / "one")
    account = operations.connect(machine.session)
    endpoints = account.endpoints
    account.close()
    wrong = Endpoints(
        endpoints.account_id, endpoints.api_base_url, Secret("token", "a-wrong-token"), endpoints.s3_base_url
    )
    token = Secret("token", "a-wrong-token")
    nowhere = Endpoints(endpoints.account_id, "http://127.0.0.1:9/client/v4", token, "http://127.0.0.1:9/s3")
    for given in (wrong, nowhere):
        found: list[Diagnostic] = []
        RemoteCache(R2Store(partial(Account, given), "some-bucket"), found.append).has([("export", "ab")])
        assert [d.code for d in found] == ["ES585"]
        assert "a-wrong-token" not in str(found[0])


def test_a_remote_for_workers_carries_no_token_of_an_account() -> None:
    token = Secret("token", "secret-token")
    real = RemoteOpener(Endpoints("ab" * 16, "https://api.cloudflare.com/client/v4", token), "bucket")
    assert b"secret-token" not in pickle.dumps(real)
    assert pickle.loads(pickle.dumps(real)).bucket == "bucket"


def test_a_project_that_shares_nothing(project: TinyProject) -> None:
    with pytest.raises(EdgespecError, match=r"Name a bucket in edgespec\.yaml"):
        builds.make_build_cache(project.session())
