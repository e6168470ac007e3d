"""`edgespec plan` of several environments."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from edgespec import assets, operations
from edgespec.diagnostics import EdgespecError, error
from edgespec.fleet import EnvironmentPlan, Plans, plan_all
from edgespec.session import Session
from tests.unit.cli.conftest import PROJECT, SPEC, Run
from tests.world import World

ENVIRONMENTS = """environments:
  local: {target: {type: local}}
  staging:
    target: {type: local}
    overrides: {"team=find": {cache: {weights: {tiers: [memory]}}}}
  production: {target: {type: cloudflare, account: "${NO_SUCH_ACCOUNT}"}}
"""


@pytest.fixture(autouse=True)
def fleet(project: Path, world: World) -> None:
    (project / "edgespec.yaml").write_text(PROJECT + ENVIRONMENTS)
    labelled = SPEC.replace("{name: alpha}", "{name: beta, labels: {team: find}}")
    (project / "specs" / "beta.yaml").write_text(labelled)


def test_each_environment_is_planned_whatever_becomes_of_the_others(run: Run) -> None:
    ran = run("plan", "--all-environments")
    assert ran.code == 1
    assert ran.out.startswith(
        "Plans for shop in 3 environments\n"
        "  local       10 to create\n"
        "  staging     10 to create\n"
        "  production  no plan: Variable is not set [ES121]\n\n"
        "Plan for shop in local: 10 to create\n"
    )
    assert "Plan for shop in staging: 10 to create" in ran.out and "r2_bucket/shop-staging-auto" in ran.out
    assert ran.out.endswith("shop in production: no plan: Variable is not set [ES121]\n\n")
    assert ran.err.startswith("production:\nedgespec.yaml:9:52: error: Variable is not set [ES121]\n")


def test_named_ones_in_their_order_each_once(run: Run) -> None:
    ran = run("plan", "--env", "staging", "--env", "local", "--env", "staging", "--detailed-exitcode")
    assert (ran.code, ran.err) == (2, "")
    assert ran.out.startswith("Plans for shop in 2 environments\n  staging  10 to create\n  local    10 to create\n")
    assert run("plan", "--env", "staging", "--env", "local").code == 0


def test_one_environment_is_planned_as_ever(run: Run) -> None:
    assert run("plan", "--env", "staging").out.startswith("Plan for shop in staging: 10 to create\n")
    assert run("plan", "--env", "staging", "-e", "staging").out.startswith("Plan for shop in staging: 10 to create\n")


def test_a_selector_picks_by_label(run: Run) -> None:
    ran = run("plan", "--env", "staging", "--env", "local", "-l", "team in (find, other)")
    assert ran.code == 0 and "model/beta" in ran.out and "model/alpha" not in ran.out
    assert "kv_namespace/shop-staging-weights" not in ran.out and "kv_namespace/shop-local-weights" in ran.out
    alone = run("plan", "-l", "!team")
    assert alone.code == 0 and "model/alpha" in alone.out and "model/beta" not in alone.out
    assert "model/beta" in run("plan", "-l", "team", "beta", "alpha").out


def test_a_selector_that_picks_nothing_plans_nothing(run: Run) -> None:
    nothing = run("plan", "-l", "team=nobody")
    assert (nothing.code, nothing.out) == (1, "") and "ES185" in nothing.err
    assert "among alpha" in run("plan", "-l", "team=find", "alpha").err
    wrong = run("plan", "-l", "team in")
    assert wrong.code == 1 and "expected values in parentheses" in wrong.err
    everywhere = run("plan", "-e", "local", "-e", "staging", "-l", "team=nobody")
    assert everywhere.code == 1 and everywhere.out.count("no plan: Nothing is selected [ES185]") == 4


def test_drift_and_builds_of_some_labels(run: Run, world: World) -> None:
    run("apply", "--auto-approve")
    world.scripts["shop-local-beta"].public = False
    assert run("drift").code == run("drift", "-l", "team=find").code == 3
    elsewhere = run("drift", "-l", "!team")
    assert elsewhere.code == 0 and "no drift" in elsewhere.out
    assert run("drift", "-l", "team=nobody").code == 1
    nothing = run("build", "-l", "team=nobody")
    assert nothing.code == 1 and "ES185" in nothing.err
    assert "beta" in run("build", "-l", "team").err  # its model is no package: the build says so, of beta alone
    assert run("build", "-l", "team", "alhpa").err.startswith("error: Unknown name [ES139]")


def test_validate_reads_the_files_of_some_labels(run: Run, project: Path) -> None:
    assert run("validate", "-l", "team=find").out == "shop: 1 spec is valid.\n"
    data = "quality: {data: nowhere.jsonl, metrics: {spearman: {min: 0.1}}}\n"
    (project / "specs" / "alpha.yaml").write_text(SPEC + data)
    assert run("validate", "-l", "team=find").code == 0
    assert "nowhere.jsonl" in run("validate", "-l", "!team").err and "nowhere.jsonl" in run("validate").err
    nothing = run("validate", "-l", "team=nobody")
    assert nothing.code == 1 and nothing.err.count("ES185") == 2  # nobody in local, nobody in staging


@pytest.mark.parametrize(
    "options",
    [
        ("--all-environments", "--env", "local"),
        ("--all-environments", "--json", "--markdown"),
        ("-l", "team", "--refresh-only"),
        ("-l", "team", "--target", "model/beta"),
    ],
)
def test_options_that_do_not_go_together(run: Run, options: tuple[str, ...]) -> None:
    ran = run("plan", *options)
    assert ran.code == 1 and "ES226" in ran.err


def test_as_json(run: Run) -> None:
    ran = run("plan", "--all-environments", "--json")
    document: dict[str, Any] = json.loads(ran.out)
    Draft202012Validator(assets.schema("plans")).validate(document)
    assert (ran.code, ran.err, document["exit_code"]) == (1, "", 1)
    found = {e["environment"]: e for e in document["environments"]}
    assert {n: e["outcome"] for n, e in found.items()} == {
        "local": "changes",
        "staging": "changes",
        "production": "failed",
    }
    assert found["staging"]["plan"] == json.loads(run("plan", "-e", "staging", "--json").out)
    assert found["production"]["plan"] is None and found["production"]["errors"][0]["code"] == "ES121"


def test_plan_files_go_into_a_folder(run: Run, project: Path) -> None:
    folder = project / "plans"
    folder.mkdir()
    (folder / "production.plan.json").write_text("{}")
    assert run("plan", "--all-environments", "--out", folder).code == 1
    assert sorted(p.name for p in folder.iterdir()) == ["local.plan.json", "staging.plan.json"]
    applied = run("apply", folder / "staging.plan.json")
    assert applied.code == 0 and "Apply complete: 10 done." in applied.out
    again = run("plan", "-e", "staging", "-e", "local", "--detailed-exitcode", "--out", folder)
    assert again.code == 2
    assert again.out.startswith("Plans for shop in 2 environments\n  staging  no changes\n  local    10 to create\n")
    assert run("plan", "-e", "staging", "--out", folder).code == 0
    taken = run("plan", "--all-environments", "--out", project / "edgespec.yaml")
    assert taken.code == 1 and "ES226" in taken.err


def test_as_a_comment(run: Run, project: Path) -> None:
    run("apply", "-e", "staging", "--auto-approve")
    (project / "specs" / "beta.yaml").unlink()
    document = json.loads(run("plan", "--all-environments", "--json").out)
    digests = {e["environment"]: e["plan"] for e in document["environments"]}
    ran = run("plan", "--all-environments", "--markdown")
    assert ran.code == 1 and len(ran.out.encode()) < 65_536
    rows = [row for row in ran.out.split("\n") if row.startswith("| <code>")][:3]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == [
        "<code>staging</code>",
        "<code>production</code>",
        "<code>local</code>",
    ]
    assert "**<code>4 to delete, refused" in rows[0] and digests["staging"]["digest"] in rows[0]
    assert "**<code>no plan&#58; Variable is not set &#91;ES121&#93;</code>**" in rows[1]
    assert digests["local"]["digest"] in rows[2]
    order = [ran.out.index(t) for t in ("in <code>staging</code>: 4", "### No plan for", "in <code>local</code>: 6")]
    assert order == sorted(order)
    deletes = ran.out[order[0] : order[1]]
    assert "#### Delete" in deletes and deletes.index("#### Delete") < deletes.index("<code>worker/beta")
    assert ran.out.count("<details>") == ran.out.count("</details>")


def test_a_comment_of_many_models_stays_short(run: Run, project: Path) -> None:
    for i in range(150):
        spec = SPEC.replace("{name: alpha}", f"{{name: model-{i}}}")
        (project / "specs" / f"model-{i}.yaml").write_text(spec)
    ran = run("plan", "-e", "local", "-e", "staging", "--markdown")
    assert ran.code == 0 and 40_000 < len(ran.out.encode()) < 65_536
    assert ran.out.count("more changes are not listed") + ran.out.count("details of") >= 1
    assert ran.out.count("<details>") == ran.out.count("</details>")


def test_ctrl_c_waits_for_no_plan(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, goes_on, finished = threading.Event(), threading.Event(), threading.Event()

    def plan(session: Session, **_: Any) -> Any:
        if session.workspace.environment == "local":
            begun.wait(30)
            raise KeyboardInterrupt
        begun.set()
        goes_on.wait(30)
        finished.set()
        raise EdgespecError(error("ES000", "Too late"))

    monkeypatch.setattr(operations, "plan", plan)
    try:
        with pytest.raises(KeyboardInterrupt):
            plan_all(project, ("local", "staging"), {"EDGESPEC_CACHE_DIR": str(tmp_path / "cache")}, lambda _: None)
        assert not finished.is_set()
    finally:
        goes_on.set()
    assert finished.wait(30)


def test_the_worst_exit_code_wins() -> None:
    def code(*codes: int) -> int:
        class Plan(EnvironmentPlan):
            def exit_code(self, *, detailed: bool) -> int:
                return int(self.environment)

        return Plans("shop", tuple(Plan(str(c)) for c in codes)).exit_code(detailed=True)

    assert [code(0, 2), code(2, 4, 0), code(4, 1, 2), code(0, 0), code()] == [2, 4, 1, 0, 0]
