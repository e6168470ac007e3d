"""Back to what served before: no build, no upload, whatever has become of the machine that built it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from edgespec import operations
from edgespec.cli.main import cli
from edgespec.diagnostics import EdgespecError
from edgespec.plan.model import Action
from edgespec.rollback import history, rollback, unpin
from edgespec.spec.releases import ModelReleases
from tests.e2e.conftest import TinyProject
from tests.e2e.shops import Shop

PINNED = {"weights": {"kv": {"pin": ["tokenizer"]}}}


def artifact(project: TinyProject) -> str:
    return next(str(r.inputs["artifact"]) for k, r in project.state().records.items() if k.address.type == "weights")


def releases(project: TinyProject) -> ModelReleases:
    loaded = project.session().workspace.releases
    assert loaded is not None
    return loaded.releases.models["tiny"]


def steps(project: TinyProject) -> list[str]:
    return [str(s.id) for s in project.plan().plan.steps]


def test_back_without_the_machine_that_built_it(project: TinyProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """No releases yet: state knows what served. Neither the cache nor the model's files are there any more."""
    project.write_spec(cache=PINNED)
    project.apply_well()
    first = artifact(project)
    project.write_spec(cache=PINNED, quantization={"method": "none"})
    project.apply_well()
    second = artifact(project)
    assert first != second
    assert [(p.artifact, p.live, p.kept) for p in history(project.session(), "tiny").past] == [
        (second, True, True),
        (first, False, True),
    ]
    project.environ = {**project.environ, "EDGESPEC_CACHE_DIR": str(project.root / "no-cache")}
    shutil.rmtree(project.root / "models")
    done = rollback(project.session(), "tiny", reason="wrong answers for refunds")
    assert done.kept and done.after is not None
    assert (releases(project).current, releases(project).pinned) == (1, "wrong answers for refunds")
    assert [r.artifact for r in releases(project).releases] == [second, first]
    uploads = Uploads(monkeypatch)
    project.apply_well()
    assert uploads.keys == []
    assert artifact(project) == first
    assert project.infer("tiny", "refund my money please")[0]["label"] == "refund"
    assert steps(project) == []
    assert not list(Path(project.environ["EDGESPEC_CACHE_DIR"]).rglob("stages/*/*.json"))
    with pytest.raises(EdgespecError, match="oldest that is known"):
        rollback(project.session(), "tiny")
    rollback(project.session(), "tiny", to=second[:8])  # forward again, still without a build
    project.apply_well()
    assert artifact(project) == second and uploads.keys == []
    assert unpin(project.session(), "tiny").after is None
    with pytest.raises(EdgespecError, match="models/tiny"):
        project.plan()  # the spec is built again, and this machine has no model
    rollback(project.session(), "tiny", to=second[:8])
    project.apply_well(destroy=True)


class Uploads:
    """The keys of R2 that are written from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import botocore.httpsession

        self.keys: list[str] = []
        send = botocore.httpsession.URLLib3Session.send

        def spy(this: Any, request: Any) -> Any:
            if request.method == "PUT" and "/artifacts/" in request.url:
                self.keys.append(request.url.rpartition("/")[2])
            return send(this, request)

        monkeypatch.setattr(botocore.httpsession.URLLib3Session, "send", spy)


def test_production_goes_back_and_stays_there(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.apply("staging")
    shop.promote("tiny")
    shop.apply("production")
    shop.write_spec(quantization={"method": "none"})
    shop.apply("staging")
    shop.promote("tiny")
    shop.apply("production")
    first, second = (r.artifact for r in reversed(shop.releases().releases))
    shutil.rmtree(shop.caches["production"])
    shop.apply("staging", destroy=True)  # not even staging has it any more
    done = rollback(shop.session("production"), "tiny", reason="bad")
    assert done.after is not None and (done.after.number, done.kept) == (1, True)
    uploads = Uploads(monkeypatch)
    shop.apply("production")
    assert uploads.keys == [] and shop.artifact("production") == first
    assert shop.infer("production", "where is my parcel") == "delivery"
    shop.apply("staging")
    with pytest.raises(EdgespecError, match=r"rolled back to release 1 \(bad\)"):
        shop.promote("tiny")
    assert [d.code for d in shop.promote().warnings] == ["ES712"]
    assert unpin(shop.session("production"), "tiny").after == done.after
    assert shop.actions("production") == {}
    assert [(p.before, p.after.number) for p in shop.promote("tiny").promoted] == [(done.after, 3)]
    shop.apply("production")
    assert shop.artifact("production") == second
    [three, two, one] = history(shop.session("production"), "tiny").past
    assert (three.current, three.live, three.kept) == (True, True, True)
    assert two.artifact == second and one.artifact == first and one.kept


def test_a_rollback_to_another_task_is_not_held_up_by_its_gate(shop: Shop) -> None:
    shop.apply("staging")
    shop.promote("tiny")
    shop.apply("production")
    task = {"type": "text-classification", "labels": ["refund", "delivery", "other"], "max_tokens": 16}
    shop.write_spec(task=task)
    shop.apply("staging")
    shop.promote("tiny")
    shop.apply("production")
    rollback(shop.session("production"), "tiny")
    planned = shop.plan("production")
    assert "ES704" in [d.code for d in planned.warnings]
    shop.apply("production")
    assert shop.artifact("production") == shop.releases().releases[1].artifact
    assert shop.actions("production") == {}


def test_what_was_deleted_by_hand_is_let_go(project: TinyProject) -> None:
    project.apply_well()
    first = artifact(project)
    project.write_spec(quantization={"method": "none"})
    project.apply_well()
    planned = project.plan()
    archived = next(r for k, r in project.state().records.items() if k.address.type == "archive")
    current = next(r for k, r in project.state().records.items() if k.address.type == "weights")
    only: Any = {b["sha256"] for b in archived.inputs["blobs"]} - {b["sha256"] for b in current.inputs["blobs"]}  # type: ignore[union-attr,index,call-overload,arg-type]
    bucket = f"{project.name}-local-auto"
    planned.account.s3("default").delete_object(Bucket=bucket, Key=f"artifacts/{sorted(only)[0]}")
    planned.account.close()
    assert {str(c.key): c.action for c in project.plan().plan.changes if c.action is not Action.NOOP} == {
        "archive/tiny/default": Action.DELETE
    }
    project.apply_well()
    assert steps(project) == []
    assert first not in [p.artifact for p in history(project.session(), "tiny").past]
    with pytest.raises(EdgespecError, match="served no other artifact that is kept"):
        rollback(project.session(), "tiny")


def stored(project: TinyProject) -> tuple[float, float]:
    """Bytes in R2 that a month's cost counts, before the plan and after."""
    planned = project.plan()
    planned.account.close()
    [cost] = planned.review.costs.models
    assert cost.before is not None and cost.after is not None
    return cost.before.usage.r2_storage, cost.after.usage.r2_storage


def test_keep_is_how_many_stay(project: TinyProject) -> None:
    document = yaml.safe_load((project.root / "edgespec.yaml").read_text())
    document["environments"]["local"]["keep"] = 1
    (project.root / "edgespec.yaml").write_text(yaml.safe_dump(document))
    seen = []
    for quantization in ("int8", "none", "fp16"):
        project.write_spec(quantization={"method": quantization})
        project.apply_well()
        seen.append(artifact(project))
        assert steps(project) == []
    assert [p.artifact for p in history(project.session(), "tiny").past] == [seen[2], seen[1]]
    account = project.plan().account
    held = operations.Live(account).objects(f"{project.name}-local-auto", "default")
    account.close()
    named = {
        b["sha256"]  # type: ignore[index,call-overload]
        for k, r in project.state().records.items()
        if k.address.type in ("weights", "archive")
        for b in r.inputs["blobs"]  # type: ignore[union-attr]
    }
    assert set(held or ()) == named
    in_bucket = sum((held or {}).values()) - (held or {})[seen[2]]  # the manifest that is served is not counted
    assert stored(project) == (in_bucket, in_bucket)
    document["environments"]["local"]["keep"] = 0
    (project.root / "edgespec.yaml").write_text(yaml.safe_dump(document))
    assert steps(project) == ["delete:archive/tiny/default"]
    before, after = stored(project)
    assert before == in_bucket and after < before - 90_000  # fp16 and float32 share the tokenizer, not the weights
    project.apply_well()
    assert steps(project) == [] and stored(project) == (after, after)


def test_the_commands(project: TinyProject, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in project.environ.items():
        monkeypatch.setenv(name, value)

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(cli, ["-C", str(project.root), *arguments], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    project.apply_well()
    first = artifact(project)
    project.write_spec(quantization={"method": "none"})
    project.apply_well()
    second = artifact(project)
    said = run("history", "tiny")
    assert second[:12] in said and first[:12] in said and "current, live, kept" in said
    assert f'"artifact": "{first}"' in run("history", "tiny", "--json")
    said = run("rollback", "tiny", "--reason", "bad", "--auto-approve")
    assert f"{second[:12]} -> {first[:12]}" in said and "none of them is uploaded" in said
    assert artifact(project) == first
    said = run("history", "tiny")
    assert "rolled back, and pinned: bad" in said and "live" in said
    assert "its spec says again" in run("rollback", "tiny", "--unpin", "--auto-approve")
    assert artifact(project) == second
