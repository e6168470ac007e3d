"""From staging to production on real local edges: what is promoted is deployed as it is, by digest, never rebuilt."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from edgespec.diagnostics import EdgespecError
from edgespec.promotion import promote, revision_of
from edgespec.render.plan import render
from edgespec.render.text import plain
from tests.e2e.shops import GATE, Shop


def built(cache: Path) -> list[str]:
    """Results of stages that a cache holds."""
    return [p.name for p in cache.rglob("*.json") if "stages" in p.parts]


def test_promoted_is_what_staging_serves_copied_between_accounts_and_not_built(shop: Shop) -> None:
    shop.write_spec(quality={**GATE, "metrics": {"accuracy": {"min": 0.5, "max_drop": 0.2}}})
    shop.apply("staging")
    planned = shop.plan("production").plan
    assert planned.is_empty
    assert planned.unreleased == ("tiny",)
    done = shop.promote("tiny")
    assert [(p.name, p.before, p.after.number) for p in done.promoted] == [("tiny", None, 1)]
    release = shop.releases().deployed
    assert release.artifact == shop.artifact("staging")
    assert release.metrics["accuracy"] > 0.5
    assert release.teacher["accuracy"] > 0.5  # production compares with it, and builds no teacher
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
