"""How many calls a refresh makes, and that it misses nothing for it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from edgespec import operations, states
from edgespec.plan.model import Action
from edgespec.providers.cloudflare.account import Account
from edgespec.providers.cloudflare.reader import Reader
from tests.e2e.conftest import TinyProject
from tests.unit.cli.test_startup import HEAVY, SCRIPT


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked of the v4 API, without the account."""
    found: list[str] = []
    send = Reader.send

    def watched(reader: Reader, place: Any, target: str, headers: Any) -> Any:
        found.append(target.partition("?")[0].partition("/accounts/")[2].partition("/")[2])
        return send(reader, place, target, headers)

    monkeypatch.setattr(Reader, "send", watched)
    return found


@contextlib.contextmanager
def account_of(project: TinyProject) -> Iterator[Account]:
    with contextlib.closing(operations.connect(project.session())) as account:
        yield account


def changed(project: TinyProject) -> dict[str, list[str]]:
    """The fields that a plan changes, by address."""
    changes = project.plan().plan.changes
    return {str(c.key): [f.path for f in c.fields] for c in changes if c.action is not Action.NOOP}


def test_lists_answer_for_every_worker(project: TinyProject, asked: list[str]) -> None:
    for name in ("second", "third"):
        project.write_spec(name)
    project.apply_well()
    when = {
        k.address.name: r.outputs["deployed_on"]
        for k, r in project.state().records.items()
        if k.address.type == "deployment"
    }
    assert len(set(when.values())) == 3
    asked.clear()
    assert changed(project) == {}
    assert "workers/workers" in asked and not [a for a in asked if a.startswith("workers/scripts/")]
    assert project.apply().result is None  # what the list says is what state has


def test_a_plan_without_changes_imports_no_more_than_it_uses(project: TinyProject) -> None:
    project.apply_well()
    modules = imported_by_a_plan(project)
    unused = {
        *HEAVY, "httpx", "rich", "jsonschema", "asyncio", "email.policy",
        "edgespec.apply.applier", "edgespec.build.data", "edgespec.build.stages.finetune", "edgespec.engine.format",
        "edgespec.measurement", "edgespec.plan.file", "edgespec.providers.cloudflare.discover", "edgespec.stores.r2",
    }  # fmt: skip
    assert not unused & modules


def test_nor_does_one_whose_state_is_in_a_bucket(project: TinyProject) -> None:
    path = project.root / "edgespec.yaml"
    document = yaml.safe_load(path.read_text())
    document["environments"]["local"]["state"] = {"type": "r2", "bucket": f"{project.name}-the-state"}
    path.write_text(yaml.safe_dump(document))
    states.make_state_bucket(project.session())
    project.apply_well()
    modules = imported_by_a_plan(project)
    assert "edgespec.stores.r2" in modules and not {"boto3", "botocore", "cloudflare", "httpx"} & modules


def imported_by_a_plan(project: TinyProject) -> set[str]:
    """The modules that a process has in the end which finds no changes."""
    command = [sys.executable, "-c", SCRIPT, "-C", str(project.root), "plan"]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, env=project.environ)
    code, modules = json.loads(ran.stderr.splitlines()[-1])
    assert code == 0 and "no changes" in ran.stdout
    return set(modules)


def test_what_others_did_to_a_worker_is_seen(project: TinyProject, asked: list[str]) -> None:
    project.apply_well()
    script = f"{project.name}-local-tiny"
    first = project.state().records
    project.write_spec(cache={"weights": {"memory": "9MiB"}})
    project.apply_well()
    version = next(r.outputs["version_id"] for k, r in first.items() if k.address.type == "worker")
    with account_of(project) as account:
        account.once.workers.scripts.deployments.create(
            script, account_id=account.id, strategy="percentage", versions=[{"version_id": version, "percentage": 100}]
        )
        asked.clear()
        assert changed(project) == {"deployment/tiny": ["version"]}
        assert f"workers/scripts/{script}/deployments" in asked
        project.apply_well()
        assert changed(project) == {}
        account.sdk.workers.scripts.subdomain.create(
            script, account_id=account.id, enabled=False, previews_enabled=True
        )
        assert changed(project) == {"deployment/tiny": ["workers_dev"]}
        project.apply_well()
        account.sdk.workers.scripts.delete(script, account_id=account.id, force=True)
        assert set(changed(project)) == {"worker/tiny", "deployment/tiny"}
        project.apply_well()
        assert changed(project) == {}


def test_a_state_without_times_reads_each_worker_once_and_learns(project: TinyProject, asked: list[str]) -> None:
    """As an edgespec before this one wrote it."""
    project.apply_well()
    path = next((project.root / ".edgespec" / "state").glob("*.json"))
    text = path.read_text()
    when = next(r.outputs["deployed_on"] for k, r in project.state().records.items() if k.address.type == "deployment")
    path.write_text(text.replace(f', "deployed_on": "{when}"', ""))
    asked.clear()
    assert changed(project) == {}
    assert [a for a in asked if a.endswith("/deployments")]
    project.apply_well()  # nothing to do but to write it down
    asked.clear()
    assert changed(project) == {}
    assert not [a for a in asked if a.endswith("/deployments")]
