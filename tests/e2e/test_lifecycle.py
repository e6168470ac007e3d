"""The life of a deployment on the real local edge: plan, apply, change, drift, removal."""

from __future__ import annotations

from typing import Any

import pytest

from edgespec.diagnostics import EdgespecError
from edgespec.plan.model import Action, Reason
from edgespec.values import is_known
from tests.e2e.conftest import TinyProject


def actions(project: TinyProject, *names: str, **options: Any) -> dict[str, str]:
    planned = project.plan(*names, **options)
    return {str(c.key): c.action.value for c in planned.plan.changes if c.action is not Action.NOOP}


def test_first_apply_serves_and_the_second_plan_is_empty(project: TinyProject) -> None:
    with (project.root / "data" / "train.jsonl").open("a") as data:  # an artifact that no other test has built
        data.write('{"text": "refund my money for this parcel please", "label": "refund"}\n')
    planned = project.plan()
    assert set(actions(project).values()) == {"create"}
    weights = next(c for c in planned.plan.changes if c.address.type == "weights")
    assert weights.after is not None
    assert not is_known(weights.after)  # the artifact is not built yet, and a plan builds nothing
    project.apply_well()
    assert actions(project) == {}
    assert project.apply().result is None  # an apply with nothing to do does nothing
    [result] = project.infer("tiny", "refund my money please")
    assert result["label"] == "refund"
    assert set(result["scores"]) == {"refund", "delivery", "other"}
    assert sum(result["scores"].values()) == pytest.approx(1, abs=1e-4)


def test_a_change_of_the_model_replaces_weights_and_keeps_serving(project: TinyProject) -> None:
    project.apply_well()
    before = project.state()
    project.write_spec(quantization={"method": "none"})
    found = actions(project)
    assert found == {
        "model/tiny": "update",
        "weights/tiny/default": "replace",
        "worker/tiny": "update",
        "deployment/tiny": "update",
        "archive/tiny/default": "create",
    }
    order = [str(s.id) for s in project.plan().plan.steps]
    assert order.index("delete:weights/tiny/default") > order.index("update:deployment/tiny")
    project.apply_well()
    assert actions(project) == {}
    after = project.state()
    assert {str(k) for k in after.records} == {str(k) for k in before.records} | {"archive/tiny/default"}
    assert project.infer("tiny", "where is my parcel")[0]["label"] == "delivery"


def test_regions_choose_buckets_and_the_worker_names_the_shard(project: TinyProject) -> None:
    regions = {
        "default": "world",
        "shards": {
            "world": {"location": "wnam"},
            "eu": {"jurisdiction": "eu", "match": {"continents": ["EU"]}},
            "asia": {"location": "apac", "match": {"countries": ["JP", "KR"]}},
        },
    }
    project.write_spec(regions=regions)
    project.apply_well()
    assert actions(project) == {}
    buckets = sorted(k.address.name for k in project.state().records if k.address.type == "r2_bucket")
    assert buckets == [f"{project.name}-local-{place}" for place in ("apac", "eu", "wnam")]
    import httpx

    url = project.state().records[next(k for k in project.state().records if k.address.type == "deployment")]
    for cf, shard in (
        ('{"continent":"EU","country":"FR"}', "eu"),
        ('{"continent":"AS","country":"JP"}', "asia"),
        ('{"continent":"AS","country":"IN"}', "world"),
    ):
        answer = httpx.post(
            f"{url.outputs['url']}infer", json={"text": "hello"}, headers={"MF-CF-Blob": cf}, trust_env=False
        ).json()
        assert answer["shard"] == shard
    regions["shards"].pop("asia")  # type: ignore[attr-defined]
    project.write_spec(regions=regions)
    assert actions(project) == {
        "worker/tiny": "update",
        "deployment/tiny": "update",
        "weights/tiny/asia": "delete",
        f"r2_bucket/{project.name}-local-apac": "delete",
    }
    project.apply_well()
    assert actions(project) == {}


def test_two_specs_share_a_bucket_and_one_goes(project: TinyProject) -> None:
    project.write_spec("second")
    project.apply_well()
    (project.root / "specs" / "second.yaml").unlink()
    found = actions(project)
    assert set(found.values()) == {"delete"}
    assert {a.split("/")[1] for a in found} == {"second"}
    with pytest.raises(EdgespecError, match="4 of 10 resources"):
        project.apply()
    project.apply_well(allow_destroy=True)
    assert actions(project) == {}
    assert project.infer("tiny", "hello")[0]["label"] == "other"  # shared chunks were kept


def test_names_limit_an_apply_to_what_they_own(project: TinyProject) -> None:
    project.write_spec("second")
    project.apply_well("second")
    assert {k.address.name.split("/")[0] for k in project.state().records if k.address.type == "model"} == {"second"}
    assert set(actions(project)) == {"model/tiny", "weights/tiny/default", "worker/tiny", "deployment/tiny"}
    project.apply_well()
    assert set(actions(project, "second", destroy=True)) == {
        "model/second",
        "weights/second/default",
        "worker/second",
        "deployment/second",
    }
    project.apply_well("second", destroy=True)
    assert set(actions(project)) == {
        "model/second",
        "weights/second/default",
        "worker/second",
        "deployment/second",
    }


def test_a_failed_gate_leaves_the_old_version_serving(project: TinyProject) -> None:
    gate = {"data": "data/test.jsonl", "metrics": {"accuracy": {"min": 0.5}}}
    project.write_spec(quality=gate)
    project.apply_well()
    served = project.infer("tiny", "where is my parcel")
    record = next(r for k, r in project.state().records.items() if k.address.type == "deployment")
    assert record.outputs["metrics"]["accuracy"] > 0.8  # type: ignore[index,call-overload]
    wrong = "\n".join('{"text": "where is my parcel", "label": "refund"}' for _ in range(1)) + "\n"
    (project.root / "data" / "test.jsonl").write_text(wrong)
    project.write_spec(quality=gate, quantization={"method": "none"})
    result = project.apply().result
    assert result is not None
    messages = [f"{d.summary}: {d.detail}" for d in result.diagnostics]
    assert any("quality gate failed" in m and "accuracy is 0.0000, below the minimum 0.5" in m for m in messages)
    assert project.infer("tiny", "where is my parcel") == served  # its weights were not removed either
    assert "deployment/tiny" in actions(project)
    project.write_spec(
        quality={"data": "data/train.jsonl", "metrics": {"accuracy": {"min": 0.5}}}, quantization={"method": "none"}
    )
    project.apply_well()
    assert actions(project) == {}


def test_drift_is_seen_and_repaired(project: TinyProject) -> None:
    project.apply_well()
    planned = project.plan()
    account = planned.account
    script, bucket = f"{project.name}-local-tiny", f"{project.name}-local-auto"
    account.sdk.workers.scripts.subdomain.create(script, account_id=account.id, enabled=False, previews_enabled=True)
    s3 = account.s3("default")
    key = s3.list_objects_v2(Bucket=bucket)["Contents"][0]["Key"]
    s3.delete_object(Bucket=bucket, Key=key)
    account.close()
    changes = {str(c.key): c for c in project.plan().plan.changes if c.action is not Action.NOOP}
    assert changes["deployment/tiny"].reason is Reason.DRIFTED
    assert [f.path for f in changes["deployment/tiny"].fields] == ["workers_dev"]
    assert changes["weights/tiny/default"].reason is Reason.DRIFTED
    project.apply_well()
    assert actions(project) == {}
    account.sdk.workers.scripts.delete(script, account_id=account.id, force=True)
    account.close()
    changes = {str(c.key): c for c in project.plan().plan.changes if c.action is not Action.NOOP}
    assert changes["worker/tiny"].reason is Reason.MISSING_REMOTELY
    project.apply_well()
    assert actions(project) == {}
    assert project.infer("tiny", "hello")[0]["label"] == "other"


def test_objects_that_state_does_not_know_are_adopted_only_with_consent(project: TinyProject) -> None:
    project.apply_well()
    project.session().workspace.state_path.unlink()  # a lost state
    found = actions(project)
    assert found["worker/tiny"] == "adopt"
    assert found[f"r2_bucket/{project.name}-local-auto"] == "adopt"
    assert found[f"kv_namespace/{project.name}-local-weights"] == "adopt"
    with pytest.raises(EdgespecError, match="--adopt"):
        project.apply()
    project.apply_well(adopt=True)
    assert actions(project) == {}
    assert project.infer("tiny", "hello")[0]["label"] == "other"


def test_destroy_leaves_nothing(project: TinyProject) -> None:
    project.write_spec(cache={"weights": {"kv": {"pin": ["tokenizer", "model"]}}})
    project.apply_well()
    project.apply_well(destroy=True)
    assert not project.state().records
    planned = project.plan()
    assert set(actions(project).values()) == {"create"}
    found = {*planned.live.scripts(), *planned.live.buckets("default"), *planned.live.namespaces().values()}
    assert not {n for n in found if n.startswith(f"{project.name}-")}
    planned.close()


def test_a_saved_plan_is_applied_as_reviewed_or_refused(project: TinyProject) -> None:
    saved = project.plan().document
    project.write_spec(
        task={"type": "text-classification", "labels": ["refund", "delivery", "other"], "max_tokens": 16}
    )
    with pytest.raises(EdgespecError, match="the specs or their data changed"):
        project.apply(saved=saved)
    saved = project.plan().document
    project.apply_well(saved=saved)
    with pytest.raises(EdgespecError, match="stale"):  # it was for a state that is no more
        project.apply(saved=saved)
    tampered = {**project.plan(destroy=True).document, "destroy": False}
    with pytest.raises(EdgespecError, match="digest"):
        project.apply(saved=tampered)


def test_a_bucket_with_foreign_objects_is_not_deleted(project: TinyProject) -> None:
    project.apply_well()
    account = project.plan().account
    bucket = f"{project.name}-local-auto"
    account.s3("default").put_object(Bucket=bucket, Key="mine.txt", Body=b"keep me")
    result = project.apply(destroy=True).result
    assert result is not None
    assert any("mine.txt" in d.detail for d in result.diagnostics)
    assert [k.address.type for k in project.state().records] == ["r2_bucket"]
    account.s3("default").delete_object(Bucket=bucket, Key="mine.txt")
    account.close()
