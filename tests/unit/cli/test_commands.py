from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from edgespec import assets, operations
from tests.unit.cli.conftest import SPEC, Run
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
    applied = json.loads(run("apply", "--json", "--auto-approve").out)
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
    assert stale.code == 1 and "ES202" in stale.err and "the state moved from serial 0" in stale.err


def test_a_plan_file_of_other_specs(run: Run, world: World, project: Path) -> None:
    run("plan", "--out", "p.json")
    (project / "specs" / "alpha.yaml").write_text(SPEC + "quantization: {method: none}\n")
    stale = run("apply", "p.json")
    assert stale.code == 1 and "the specs or their data changed" in stale.err and not world.effects


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"format": "edgespec.plan/v9"}', '{"format": "edgespec.plan/v1"}', "\0"]
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
