from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from edgespec import assets, operations
from tests.unit.cli.conftest import PROJECT, SPEC, Run
from tests.world import World

PLAN = "Plan for shop in local: 6 to create"
COMMANDS = ("validate", "plan", "apply", "destroy", "build", "bench", "infer", "state", "edge", "schema")


def test_validate(run: Run, project: Path) -> None:
    assert run("validate").out == "shop: 1 spec is valid.\n"
    (project / "specs" / "alpha.yaml").write_text(SPEC.replace("embedding", "embeding"))
    failed = run("validate")
    assert (failed.code, failed.out) == (1, "")
    assert failed.err.startswith("specs/alpha.yaml:5:14: error: Wrong value [ES112]\n")


def test_validate_as_json(run: Run, project: Path) -> None:
    assert json.loads(run("validate", "--json").out) == {"valid": True, "diagnostics": []}
    (project / "specs" / "alpha.yaml").write_text(SPEC.replace("embedding", "embeding"))
    failed = run("validate", "--json")
    (problem,) = json.loads(failed.out)["diagnostics"]
    assert (failed.code, failed.err) == (1, "")
    assert (problem["code"], problem["path"], problem["line"], problem["column"]) == (
        "ES112",
        "specs/alpha.yaml",
        5,
        14,
    )


def test_warnings_do_not_fail(run: Run, project: Path) -> None:
    (project / "specs" / "alpha.yaml").write_text(SPEC + "worker: {plan: free}\n")
    ran = run("validate")
    assert (ran.code, ran.out) == (0, "shop: 1 spec is valid, 1 warning.\n") and "ES155" in ran.err


def test_plan_apply_plan(run: Run, world: World) -> None:
    first = run("plan", "--detailed-exitcode")
    assert (first.code, first.err) == (2, "") and first.out.startswith(PLAN)
    assert run("plan").code == 0
    applied = run("apply", "--auto-approve")
    assert applied.code == 0
    assert applied.out.endswith("Apply complete: 6 done.\n  alpha: http://127.0.0.1:8787/w/shop-local-alpha/\n")
    assert "worker/alpha: creating ..." in applied.err and "deployment/alpha: created" in applied.err
    second = run("plan", "--detailed-exitcode")
    assert (second.code, second.out) == (0, "shop in local: no changes. What is live is what the specs ask for.\n")
    again = run("apply", "--auto-approve")
    assert (again.code, again.err) == (0, "") and "no changes" in again.out


def test_json_is_all_of_stdout(run: Run, world: World, project: Path) -> None:
    document = json.loads(run("plan", "--json").out)
    assert assets.schema_error("plan", document) is None
    events = [json.loads(row) for row in run("apply", "--json", "--auto-approve").out.splitlines()]
    assert [assets.schema_error("event", e) for e in events] == [None] * len(events)
    assert [events[0]["event"], events[-1]["event"]] == ["plan", "summary"]
    finished = {e["step"]: e["outcome"] for e in events if e["event"] == "finished"}
    assert finished == events[-1]["steps"] and events[0]["digest"] == document["digest"] == events[-1]["plan"]
    started = [e["step"] for e in events if e["event"] == "started"]
    assert sorted(started) == sorted(finished)
    applied = events[-1]
    assert applied["outcome"] == "done"
    assert applied["summary"]["create"] == 6 and set(applied["steps"].values()) == {"done"}
    assert applied["urls"] == {"alpha": "http://127.0.0.1:8787/w/shop-local-alpha/"}
    assert {r["address"] for r in json.loads(run("state", "list", "--json").out)} >= {"worker/alpha", "model/alpha"}
    (project / "specs" / "alpha.yaml").write_text(SPEC.replace("embedding", "embeding"))
    for command in (["plan"], ["apply"], ["state", "list"]):
        failed = run(*command, "--json")
        assert (failed.code, failed.out) == (1, "") and "ES112" in failed.err


def test_a_failed_step(run: Run, world: World) -> None:
    world.fail = {"create weights/alpha/default"}
    failed = run("apply", "--auto-approve")
    assert failed.code == 1
    assert (
        "Apply failed: 3 done, 1 failed, 2 skipped." in failed.out
        and "weights/alpha/default: error: Refused" in failed.err
    )


def test_nobody_to_ask(run: Run, world: World) -> None:
    refused = run("apply")
    assert refused.code == 1 and "--auto-approve" in refused.err and "ES205" in refused.err
    assert not world.effects


@pytest.mark.parametrize("answer", [True, False])
def test_the_question(run: Run, world: World, monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    asked: list[str] = []

    def confirm(text: str, **_: object) -> bool:
        asked.append(text)
        return answer

    monkeypatch.setattr(click, "confirm", confirm)
    monkeypatch.setattr(sys, "stdin", type("Terminal", (), {"isatty": lambda self: True})())
    ran = run("apply")
    assert (ran.code, asked) == (0, ["Apply this to local?"])
    assert bool(world.effects) is answer is not ran.out.endswith("Nothing was changed.\n")


def test_interrupted_at_the_question(run: Run, world: World, monkeypatch: pytest.MonkeyPatch, project: Path) -> None:
    def interrupt(*_: object, **__: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(click, "confirm", interrupt)
    monkeypatch.setattr(sys, "stdin", type("Terminal", (), {"isatty": lambda self: True})())
    assert run("apply").code == 130
    assert run("apply", "--auto-approve").code == 0  # the lock was released


def test_a_plan_file(run: Run, world: World, project: Path) -> None:
    assert "apply just this with: edgespec apply p.json" in run("plan", "--out", "p.json").err
    assert assets.schema_error("plan", json.loads((project / "p.json").read_text())) is None
    assert run("apply", "p.json").code == 0
    stale = run("apply", "p.json")
    assert stale.code == 1 and "ES202" in stale.err and "applied to for the first time" in stale.err


def test_a_plan_file_of_an_older_edgespec(run: Run, world: World, project: Path) -> None:
    """It does not name all that it depends on, so that nobody can say that it still holds."""
    (project / "p.json").write_bytes((Path(__file__).parent.parent / "plan" / "plan-v1.json").read_bytes())
    stale = run("apply", "p.json")
    assert stale.code == 1 and "ES202" in stale.err and "edgespec was upgraded" in stale.err and not world.effects


def test_a_plan_file_says_itself_what_it_is_of(run: Run, world: World, project: Path) -> None:
    run("plan", "--out", "p.json")
    refused = run("apply", "p.json", "--allow-destroy")
    assert refused.code == 1 and "ES226" in refused.err and not world.effects


def test_a_plan_file_of_other_specs(run: Run, world: World, project: Path) -> None:
    run("plan", "--out", "p.json")
    (project / "specs" / "alpha.yaml").write_text(SPEC + "quantization: {method: none}\n")
    stale = run("apply", "p.json")
    assert stale.code == 1 and "the specs or their data changed" in stale.err and not world.effects


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"format": "edgespec.plan/v9"}', '{"format": "edgespec.plan/v2"}', "\0"]
)
def test_not_a_plan_file(run: Run, world: World, project: Path, text: str) -> None:
    (project / "p.json").write_text(text)
    refused = run("apply", "p.json")
    assert refused.code == 1 and "ES203" in refused.err and not world.effects


def test_a_plan_that_cannot_be_written(run: Run, world: World, project: Path) -> None:
    refused = run("plan", "--out", "nowhere/p.json")
    assert refused.code == 1 and "ES206" in refused.err and "bug" not in refused.err


def test_adoption_needs_consent(run: Run, world: World) -> None:
    world.buckets["default", "shop-local-auto"] = {}
    refused = run("apply", "--auto-approve")
    assert refused.code == 1 and "ES204" in refused.err and not world.effects
    assert run("apply", "--auto-approve", "--adopt").code == 0


def test_destroy(run: Run, world: World) -> None:
    run("apply", "--auto-approve")
    assert "6 to delete" in run("plan", "--destroy").out
    ran = run("destroy", "--auto-approve")
    assert ran.code == 0 and "destroyed on request" in ran.out and not world.buckets and not world.scripts
    assert run("state", "list").out == ""


def test_part_of_a_plan(run: Run, world: World) -> None:
    ran = run("apply", "--auto-approve", "--target", "r2_bucket/shop-local-auto")
    assert ran.code == 0 and world.effects == ["create r2_bucket/shop-local-auto"]
    left = run("plan", "--exclude", "kv_namespace/shop-local-weights", "--detailed-exitcode")
    assert left.code == 2 and "ES224" in left.err and "kv_namespace/shop-local-weights" in left.err
    assert "3 to create" not in left.out and "worker/alpha" not in left.out  # it binds the namespace
    for arguments in (["--target", "worker/alfa"], ["--exclude", "worker/alfa"]):
        unknown = run("plan", *arguments)
        assert unknown.code == 1 and "ES223" in unknown.err and "Did you mean `worker/alpha`?" in unknown.err
    assert "ES227" in run("plan", "--target", "alpha").err
    assert "ES226" in run("plan", "alpha", "--target", "worker/alpha").err
    assert "ES226" in run("plan", "--refresh-only", "--destroy").err


def test_the_steps_explained(run: Run, world: World) -> None:
    out = run("plan", "--explain").out
    assert "Steps, in an order that keeps every wait:" in out
    assert "(create weights/alpha/default): it needs this" in out


def test_drift(run: Run, world: World) -> None:
    run("apply", "--auto-approve")
    calm = run("drift")
    assert calm.code == 0 and "no drift" in calm.out
    world.scripts["shop-local-alpha"].public = False
    effects = list(world.effects)
    found = run("drift")
    assert found.code == 3 and "workers_dev" in found.out and "true -> false" in found.out
    report = json.loads(run("drift", "--json").out)
    assert assets.schema_error("drift", report) is None
    (drift,) = report["drift"]
    assert (drift["address"], drift["fields"][0]["path"]) == ("deployment/alpha", "workers_dev")
    assert world.effects == effects
    assert run("plan", "--refresh-only", "--detailed-exitcode").code == 2
    assert run("apply", "--refresh-only", "--auto-approve").code == 0
    assert run("drift").code == 0 and world.effects == effects
    world.scripts.clear()
    assert "in state, but gone" in run("drift").out


def test_a_protected_environment(run: Run, world: World, project: Path) -> None:
    (project / "edgespec.yaml").write_text(PROJECT + "environments: {local: {target: {type: local}, protect: true}}\n")
    run("apply", "--auto-approve")
    effects = list(world.effects)
    planned = run("plan", "--destroy", "--out", "p.json")
    assert planned.code == 1 and "ES221" in planned.err and "6 to delete" in planned.out
    assert not (project / "p.json").exists()
    refused = run("destroy", "--auto-approve")
    assert refused.code == 1 and "ES221" in refused.err and world.effects == effects
    assert run("plan", "--destroy", "--allow-destroy", "--out", "p.json").code == 0
    assert run("apply", "p.json").code == 0 and not world.scripts  # the consent is in the reviewed plan


def test_import_needs_a_choice(run: Run, world: World) -> None:
    assert "ES226" in run("import").err and "ES226" in run("import", "--all", "worker/alpha").err
    assert "ES227" in run("import", "alpha").err


def test_import(run: Run, world: World) -> None:
    world.buckets["default", "shop-local-auto"] = {}
    refused = run("import", "r2_bucket/shop-local-auto")
    assert refused.code == 1 and "ES205" in refused.err and "as the spec asks for" in refused.out
    assert run("state", "list").out == ""
    assert run("import", "r2_bucket/shop-local-auto", "--yes").code == 0
    assert run("state", "list").out == "r2_bucket/shop-local-auto\n"
    missing = run("import", "kv_namespace/shop-local-weights", "--yes")
    assert missing.code == 1 and "ES228" in missing.err and "no such object is live" in missing.err
    assert run("apply", "--auto-approve").code == 0


def test_what_was_imported_becomes_what_the_spec_says(run: Run, world: World, project: Path) -> None:
    """The state is lost and the spec has changed since: the Worker's version cannot be found by its content."""
    run("apply", "--auto-approve")
    assert run("state", "rm", "worker/alpha").code == 0
    (project / "specs" / "alpha.yaml").write_text(SPEC + "cache: {weights: {memory: 32MiB}}\n")
    shown = run("import", "worker/alpha", "--yes")
    assert shown.code == 0 and "worker/alpha" in shown.out and "compatibility_date" in shown.out
    assert "1 to update" not in run("plan", "--target", "r2_bucket/shop-local-auto").out
    assert run("apply", "--auto-approve").code == 0
    assert "no changes" in run("plan").out and len(world.scripts["shop-local-alpha"].versions) == 2


def test_names(run: Run, world: World, project: Path) -> None:
    (project / "specs" / "beta.yaml").write_text(SPEC.replace("alpha", "beta"))
    assert run("apply", "--auto-approve", "beta").code == 0
    assert list(world.scripts) == ["shop-local-beta"]
    unknown = run("plan", "betta")
    assert unknown.code == 1 and "ES139" in unknown.err and "Did you mean `beta`?" in unknown.err
    (project / "specs" / "beta.yaml").unlink()
    assert "4 to delete" in run("plan", "beta").out  # only state knows it


def test_state_show(run: Run, world: World) -> None:
    assert "ES306" in run("state", "show").err
    run("apply", "--auto-approve")
    assert json.loads(run("state", "show", "worker/alpha").out)["outputs"]["script"] == "shop-local-alpha"
    assert json.loads(run("state", "show").out)["project"] == "shop"
    unknown = run("state", "show", "worker/beta")
    assert unknown.code == 1 and "ES307" in unknown.err


def test_the_state_of_another_project(run: Run, world: World, project: Path) -> None:
    run("apply", "--auto-approve")
    text = (project / "edgespec.yaml").read_text()
    (project / "edgespec.yaml").write_text(text.replace("name: shop", "name: other"))
    refused = run("plan")
    assert refused.code == 1 and "ES305" in refused.err


@pytest.mark.parametrize("name", ["project", "spec", "state", "plan", "artifact"])
def test_schema(run: Run, name: str) -> None:
    assert json.loads(run("schema", name).out)["$schema"].startswith("https://json-schema.org/")


def test_elsewhere(run: Run, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    nothing = run("validate")
    assert nothing.code == 1 and "ES138" in nothing.err
    assert run("-C", project, "validate").code == 0
    assert run("-C", project / "specs", "validate").code == 0
    assert run("-C", tmp_path / "nowhere", "validate").code == 1
    assert json.loads(run("validate", "--json").out)["valid"] is False


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["aply"], "Did you mean 'apply'?"), (["frobnicate"], "No such command 'frobnicate'"),
        (["plan", "--jsn"], "--json"),
        (["schema", "nothing"], "'nothing' is not one of"), (["infer"], "Missing argument 'NAME'"), (["-C"], "-C"),
    ],
)  # fmt: skip
def test_usage(run: Run, arguments: list[str], said: str) -> None:
    refused = run(*arguments)
    assert (refused.code, refused.out) == (1, "") and said in refused.err


@pytest.mark.parametrize("command", [[], *([c] for c in COMMANDS), ["state", "list"], ["edge", "up"]])
def test_help(run: Run, command: list[str]) -> None:
    ran = run(*command, "--help")
    assert (ran.code, ran.err) == (0, "") and ran.out.startswith("Usage: ")


def test_a_bug_is_called_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> Any:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(operations, "validate", broken)
    ran = run("validate")
    assert (
        ran.code == 1 and "ZeroDivisionError: oh\nThis is a bug in edgespec" in ran.err and "Traceback" not in ran.err
    )


def test_ask_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", type("Empty", (), {"isatty": lambda self: False, "read": lambda self: "\n"})())
    ran = run("infer", "alpha")
    assert ran.code == 1 and "ES408" in ran.err
    assert "ES405" in run("infer", "alpha", "hello").err
