"""From staging to production on real local edges: what is promoted is deployed as it is, by digest, never rebuilt."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgespec import asking, operations
from edgespec.assets import local_edge_sources
from edgespec.diagnostics import EdgespecError
from edgespec.local_edge.edge import Endpoint, LocalEdge
from edgespec.operations import Applied, Planned, Session
from edgespec.plan.model import Action
from edgespec.promotion import Promotion, promote, revision_of
from edgespec.render.plan import render
from edgespec.render.text import plain
from edgespec.session import current_state
from edgespec.spec.releases import ModelReleases
from edgespec.state.model import State
from tests.e2e.conftest import TinyProject

GATE = {"data": "data/test.jsonl", "metrics": {"accuracy": {"min": 0.5}}}


class Shop:
    """A project with staging and production, each in an account of its own, and a machine for each."""

    def __init__(self, made: TinyProject, staging: Endpoint, production: Endpoint, other_cache: Path) -> None:
        self.root, self.name, self.made = made.root, made.name, made
        self.caches = {"staging": made.environ["EDGESPEC_CACHE_DIR"], "production": str(other_cache)}
        self.accounts = {"staging": staging, "production": production}
        self.write_project()
        self.write_spec()

    def write_project(self, **production: Any) -> None:
        environments = {
            name: {
                "target": {
                    "type": "cloudflare",
                    "account": at.account_id,
                    "api_base_url": at.api_base_url,
                    "s3_base_url": at.s3_base_url,
                }
            }
            for name, at in self.accounts.items()
        }
        environments["production"] |= {"promote_from": "staging", **production}
        document = {
            "apiVersion": "edgespec/v1",
            "kind": "Project",
            "name": self.name,
            "environments": environments,
        }
        (self.root / "edgespec.yaml").write_text(yaml.safe_dump(document, sort_keys=False))

    def write_spec(self, **fields: Any) -> None:
        self.made.write_spec(**{"quality": GATE, "cache": {"weights": {"kv": {"pin": ["tokenizer"]}}}, **fields})

    def environ(self, environment: str) -> dict[str, str]:
        """Of the machine that deploys to it; the production one has no build cache and both tokens."""
        tokens = {f"CLOUDFLARE_API_TOKEN_{n.upper()}": a.api_token.reveal() for n, a in self.accounts.items()}
        return {**self.made.environ, **tokens, "EDGESPEC_CACHE_DIR": self.caches[environment]}

    def session(self, environment: str) -> Session:
        return operations.open_session(self.root, environment, self.environ(environment), lambda _: None)

    def plan(self, environment: str, **options: Any) -> Planned:
        planned = operations.plan(self.session(environment), **options)
        planned.close()
        return planned

    def actions(self, environment: str) -> dict[str, str]:
        planned = self.plan(environment)
        return {str(c.key): c.action.value for c in planned.plan.changes if c.action is not Action.NOOP}

    def apply(self, environment: str, **options: Any) -> Applied:
        session = self.session(environment)
        applied = operations.apply(session, approve=lambda _: True, on_event=lambda _: None, **options)
        if applied.result is not None and applied.result.diagnostics.has_errors:
            raise EdgespecError(applied.result.diagnostics)
        return applied

    def promote(self, *names: str, **options: Any) -> Promotion:
        environ = self.environ("staging")
        return promote(self.root, names, environ, lambda _: None, source="staging", target="production", **options)

    def state(self, environment: str) -> State:
        found = current_state(self.session(environment))
        assert found is not None
        return found

    def artifact(self, environment: str) -> str:
        found = [r.outputs["artifact"] for k, r in self.state(environment).records.items() if k.address.type == "model"]
        return str(found[0])

    def releases(self) -> ModelReleases:
        loaded = self.session("production").workspace.releases
        assert loaded is not None
        return loaded.releases.models["tiny"]

    def infer(self, environment: str, text: str) -> str:
        return str(asking.infer(self.session(environment), "tiny", {"texts": [text]})["results"][0]["label"])


@pytest.fixture(scope="session")
def two_edges(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[tuple[Endpoint, Endpoint]]:
    """Two accounts; stopped at the end, each by its pid."""
    edges = []
    for name in ("staging", "production"):
        folder = tmp_path_factory.mktemp(f"edge-{name}")
        edge = LocalEdge(folder, port=0, sources=local_edge_sources(), cache_dir=build_cache, progress=lambda _: None)
        edges.append(edge)
    yield edges[0].ensure(), edges[1].ensure()
    for edge in edges:
        edge.down()


@pytest.fixture
def shop(
    tmp_path: Path, build_cache: Path, two_edges: tuple[Endpoint, Endpoint], request: pytest.FixtureRequest
) -> Iterator[Shop]:
    name = f"shop{abs(hash(request.node.name)) % 10**6}"
    made = Shop(TinyProject(tmp_path / "project", build_cache, name), *two_edges, tmp_path / "empty-cache")
    yield made
    for environment in made.accounts:
        if current_state(made.session(environment)) is not None:
            made.apply(environment, destroy=True)


def built(cache: Path) -> list[str]:
    """Results of stages that a cache holds."""
    return [p.name for p in cache.rglob("*.json") if "stages" in p.parts]


def test_promoted_is_what_staging_serves_copied_between_accounts_and_not_built(shop: Shop) -> None:
    shop.apply("staging")
    planned = shop.plan("production").plan
    assert planned.is_empty
    assert planned.unreleased == ("tiny",)
    done = shop.promote("tiny")
    assert [(p.name, p.before, p.after.number) for p in done.promoted] == [("tiny", None, 1)]
    release = shop.releases().deployed
    assert release.artifact == shop.artifact("staging")
    assert release.metrics["accuracy"] > 0.5
    assert release.origin is not None
    assert release.origin.worker == f"{shop.name}-staging-tiny"
    shutil.rmtree(shop.root / "models")  # neither the model's source nor a cache is on this machine
    assert set(shop.actions("production").values()) == {"create"}
    shop.apply("production")
    assert shop.actions("production") == {}
    assert shop.artifact("production") == release.artifact
    assert built(Path(shop.caches["production"])) == []
    assert shop.infer("production", "refund my money please") == "refund"
    shutil.rmtree(shop.caches["production"])
    assert shop.actions("production") == {}  # state has the manifest


def test_another_release_says_from_which_to_which(shop: Shop) -> None:
    shop.apply("staging")
    shop.promote("tiny")
    shop.apply("production")
    first = shop.releases().deployed
    shop.write_spec(quantization={"method": "none"})
    assert shop.actions("production") == {}  # what is in the spec is not what production deploys
    shop.apply("staging")
    done = shop.promote("tiny")
    assert [(p.before, p.after.number) for p in done.promoted] == [(first, 2)]
    planned = shop.plan("production").plan
    shown = plain(render(planned, "shop", "production"))
    assert f"{first.artifact[:12]} -> {shop.releases().deployed.artifact[:12]} (release 1 -> 2)" in shown
    change = next(c for c in planned.changes if c.address.type == "model")
    assert {f.path: (f.before, f.after) for f in change.fields if f.path != "engine"} == {
        "artifact": (first.artifact, shop.releases().deployed.artifact),
        "release": (1, 2),
    }
    shop.apply("production")
    assert shop.actions("production") == {}


def test_what_is_refused(shop: Shop) -> None:
    def refused(said: str, **options: Any) -> None:
        with pytest.raises(EdgespecError, match=said):
            shop.promote("tiny", **options)
        assert not (shop.root / "releases").exists()

    refused("never ran in staging")
    shop.apply("staging")
    shop.write_spec(quantization={"method": "none"})
    refused(r"changed since it was deployed in staging.*model/tiny \(quantization int8 -> none")
    shop.write_spec(quantization={"method": "none"}, quality={**GATE, "metrics": {"accuracy": {"min": 1.0}}})
    (shop.root / "data" / "test.jsonl").write_text('{"text": "where is my parcel", "label": "refund"}\n')
    with pytest.raises(EdgespecError, match="gate failed"):
        shop.apply("staging")
    refused("got no traffic: its gate failed")
    shop.write_spec(quality=None)
    shop.apply("staging")
    account = shop.plan("staging").account
    script = f"{shop.name}-staging-tiny"
    account.sdk.workers.scripts.subdomain.create(script, account_id=account.id, enabled=False, previews_enabled=True)
    account.close()
    refused(r"changed by hand in staging: deployment/tiny \(workers_dev\)")
    shop.apply("staging")
    assert shop.promote("tiny").promoted
    assert shop.promote("tiny").unchanged == ("tiny",)
    with pytest.raises(EdgespecError, match=r"edgespec\.yaml:\d+:\d+.*production is promoted to from staging"):
        promote(shop.root, (), shop.environ("staging"), lambda _: None, source="production", target="production")


def test_the_commit_is_named_and_whether_the_tree_was_clean(shop: Shop) -> None:
    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=shop.root, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    git("init", "-q")
    (shop.root / ".gitignore").write_text(".edgespec/\n")
    git("add", ".")
    git("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-q", "-m", "first")
    shop.apply("staging")
    shop.promote("tiny")
    release = shop.releases().deployed
    assert (release.revision, release.dirty) == (git("rev-parse", "HEAD"), False)
    shop.write_spec(quantization={"method": "none"})
    shop.apply("staging")
    git("add", "specs")
    git("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-q", "-m", "second")
    shop.promote("tiny")  # releases/ itself, not committed yet, makes nothing dirty
    assert (shop.releases().deployed.revision, shop.releases().deployed.dirty) == (git("rev-parse", "HEAD"), False)
    (shop.root / "README").write_text("new")
    assert revision_of(shop.root) == (git("rev-parse", "HEAD"), True)


def test_a_spec_that_asks_for_another_task_is_refused_until_it_is_promoted(shop: Shop) -> None:
    shop.apply("staging")
    shop.promote("tiny")
    shop.apply("production")
    task = {"type": "text-classification", "labels": ["refund", "delivery", "other"], "max_tokens": 16}
    shop.write_spec(task=task)
    with pytest.raises(EdgespecError, match=r"specs/tiny\.yaml:\d+:\d+.*another max_tokens.*edgespec promote tiny"):
        shop.plan("production")
    shop.apply("staging")
    shop.promote("tiny")
    shop.apply("production")
    assert shop.actions("production") == {}


def test_what_is_deployed_and_not_released_is_not_removed_by_the_way(shop: Shop) -> None:
    shop.apply("staging")
    shop.promote("tiny")
    shop.apply("production")
    (shop.root / "releases" / "production.yaml").unlink()
    with pytest.raises(EdgespecError, match="tiny: deployed in production"):
        shop.plan("production")
    shop.apply("production", names=("tiny",), destroy=True)
    assert shop.plan("production").plan.unreleased == ("tiny",)
