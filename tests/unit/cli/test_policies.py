"""Policies and costs from the command line: exit codes, and every output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgespec import assets
from tests.unit.cli.conftest import PROJECT, SPEC, Run
from tests.world import World

POLICIES = """policies:
  - name: no-deletes
    when: change.action == "delete"
    deny: Deletes go through a change request.
  - name: tell-the-team
    when: change.type == "worker" && change.labels.team == "support"
    warn: Tell the support team.
"""
LABELLED = SPEC.replace("{name: alpha}", "{name: alpha, labels: {team: support}}")


@pytest.fixture
def guarded(project: Path) -> Path:
    (project / "edgespec.yaml").write_text(PROJECT + POLICIES)
    (project / "specs" / "alpha.yaml").write_text(LABELLED)
    return project


def test_a_warning_is_in_every_output(run: Run, world: World, guarded: Path) -> None:
    place = "edgespec.yaml:9:11"
    text = run("plan")
    assert text.code == 0 and f"{place}: warning: A policy warns [ES232]" in text.err
    assert "Policy tell-the-team warns worker/alpha: Tell the support team." in text.out and place in text.out
    document = json.loads(run("plan", "--json").out)
    assert assets.schema_error("plan", document) is None
    assert [(p["name"], p["verdict"], p["about"], p["place"]) for p in document["policies"]] == [
        ("tell-the-team", "warn", ["worker/alpha"], place)
    ]
    comment = run("plan", "--markdown").out
    assert "**warns** <code>worker/alpha</code>: <code>Tell the support team.</code>" in comment
    assert run("apply", "--auto-approve").code == 0


def test_a_denial_is_shown_and_exits_with_4(run: Run, world: World, guarded: Path, tmp_path: Path) -> None:
    assert run("apply", "--auto-approve").code == 0
    saved = tmp_path / "plan.json"
    for arguments in (["plan", "--destroy"], ["plan", "--destroy", "--markdown"], ["plan", "--destroy", "--json"]):
        refused = run(*arguments, "--out", saved)
        assert refused.code == 4 and "ES230" in refused.err and "edgespec.yaml:6:11" in refused.err
        assert "no-deletes" in refused.out and not saved.exists()
    before = len(world.effects)
    for arguments in (["destroy", "--auto-approve"], ["destroy", "--auto-approve", "--json"]):
        refused = run(*arguments)
        assert refused.code == 4 and "Deletes go through a change request." in refused.err
    assert json.loads(refused.out)["outcome"] == "refused" and len(world.effects) == before


def test_policies_that_changed_make_a_saved_plan_stale(run: Run, world: World, guarded: Path, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    assert run("plan", "--out", saved).code == 0
    (guarded / "edgespec.yaml").write_text(PROJECT + POLICIES.replace("Tell the support", "Mind the support"))
    stale = run("apply", saved)
    assert stale.code == 1 and "what the policies say changed" in stale.err and not world.effects


def test_a_policy_of_another_environment(run: Run, world: World, project: Path) -> None:
    text = POLICIES.replace("    deny", "    environments: [production]\n    deny")
    environments = (
        "environments:\n  local: {target: {type: local}}\n"
        "  production: {target: {type: local}, state: {type: local, path: p.json}}\n"
    )
    (project / "edgespec.yaml").write_text(PROJECT + environments + text)
    (project / "specs" / "alpha.yaml").write_text(LABELLED)
    assert run("apply", "--auto-approve").code == 0
    assert run("destroy", "--auto-approve").code == 0


def test_costs_in_every_output(run: Run, world: World, project: Path) -> None:
    (project / "specs" / "alpha.yaml").write_text(SPEC + "budget: {monthly_cost: 20, requests: 2M}\n")
    text = run("plan").out
    assert "alpha: at least 0.60 USD (budget 20.00 USD) for 2M requests at list prices" in text
    assert "| <code>alpha</code> | 2M | at least 0.60 USD | 20.00 USD |" in run("plan", "--markdown").out
    costs = json.loads(run("plan", "--json").out)["costs"]
    assert (costs["models"][0]["after"]["usd"], costs["after"]["usd"]) == (0.6, 5.0)
    (project / "specs" / "alpha.yaml").write_text(SPEC + "budget: {monthly_cost: 0.5, requests: 2M}\n")
    refused = run("apply", "--auto-approve")
    assert refused.code == 4 and "specs/alpha.yaml:6:24: error: The cost is over its budget [ES216]" in refused.err
    assert not world.effects


def test_costs_before_and_after(run: Run, world: World, project: Path) -> None:
    assert run("apply", "--auto-approve").code == 0
    (project / "specs" / "beta.yaml").write_text(SPEC.replace("alpha", "beta"))
    document = json.loads(run("plan", "--json").out)
    models = {m["name"]: (m["before"] is not None, m["after"] is not None) for m in document["costs"]["models"]}
    assert models == {"alpha": (True, True), "beta": (False, True)}
    gone = json.loads(run("plan", "--destroy", "--json").out)["costs"]
    assert gone["models"][0]["after"] is None and (gone["before"]["usd"], gone["after"]["usd"]) == (5.0, 0.0)


def test_two_whole_documents_are_not_one(run: Run, world: World) -> None:
    both = run("plan", "--json", "--markdown")
    assert both.code == 1 and "ES226" in both.err and both.out == ""
