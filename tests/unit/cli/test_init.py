from __future__ import annotations

import json
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from edgespec.cli.main import cli
from edgespec.scaffold.project import CI_FILES, TASKS, slug
from tests.unit.cli.conftest import Run


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("ci", ["none", "github", "gitlab"])
def test_a_new_project_is_valid_and_laid_out(run: Run, tmp_path: Path, task: str, ci: str) -> None:
    made = run("init", tmp_path / "My Shop", "--task", task, "--ci", ci)
    assert made.code == 0, made.err
    root = tmp_path / "My Shop"
    assert "name: my-shop" in (root / "edgespec.yaml").read_text()
    assert sorted(made.out.split()) == sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())
    checked = run("-C", root, "validate")
    assert (checked.code, checked.out) == (0, "my-shop: 1 spec is valid.\n"), checked.err
    assert run("-C", root, "fmt", "--check", "--diff").code == 0
    assert ".edgespec/" in (root / ".gitignore").read_text().split()
    environments = yaml.safe_load((root / "edgespec.yaml").read_text())["environments"]
    assert list(environments) == (["local"] if ci == "none" else ["local", "staging", "production"])


def test_an_editor_finds_the_schemas(run: Run, tmp_path: Path) -> None:
    run("init", tmp_path / "new", "--task", "embedding")
    for file in ("edgespec.yaml", "specs/similarity.yaml"):
        text = (tmp_path / "new" / file).read_text()
        named = text.split("\n")[0].removeprefix("# yaml-language-server: $schema=")
        schema = json.loads(((tmp_path / "new" / file).parent / named).read_text())
        jsonschema.Draft202012Validator(schema).validate(yaml.safe_load(text))


def test_names_and_sources(run: Run, tmp_path: Path) -> None:
    options = ("--name", "shop", "--model", "search", "--source", "hf:acme/my model@main")
    assert run("init", tmp_path / "a", "--task", "embedding", *options).code == 0
    spec = yaml.safe_load((tmp_path / "a" / "specs" / "search.yaml").read_text())
    assert (spec["metadata"]["name"], spec["model"]["source"]) == ("search", "hf:acme/my model@main")
    for wrong in (("--name", "Shop"), ("--name", "a" * 25), ("--model", "a_b")):
        ran = run("init", tmp_path / "b", "--task", "embedding", *wrong)
        assert ran.code == 1 and "ES754" in ran.err
    assert not (tmp_path / "b").exists()


def test_nothing_is_written_over(run: Run, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "test.jsonl").write_text("mine")
    ran = run("init", tmp_path, "--task", "embedding")
    assert ran.code == 1 and "ES752" in ran.err and "data/test.jsonl" in ran.err
    assert not (tmp_path / "edgespec.yaml").exists()


def test_workflows_for_a_project_that_there_is(run: Run, project: Path) -> None:
    assert run("init", "--ci-only", "--ci", "github").code == 0
    assert all((project / name).is_file() for name in CI_FILES["github"])
    assert run("init", "--ci-only").code == 1


def test_without_a_terminal_the_task_must_be_said(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    ran = run("init", tmp_path / "a")
    assert ran.code == 1 and "ES755" in ran.err and "text-classification" in ran.err


def test_it_asks_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgespec.cli.init._asks", lambda: True)
    said = CliRunner().invoke(cli, ["init", str(tmp_path / "a")], input="embedding\nshop\n\ngithub\n")
    assert said.exit_code == 0, said.output
    assert (tmp_path / "a" / "specs" / "similarity.yaml").is_file()
    assert (tmp_path / "a" / ".github" / "workflows" / "edgespec-plan.yml").is_file()
    assert "name: shop" in (tmp_path / "a" / "edgespec.yaml").read_text()


@pytest.mark.parametrize(
    ("text", "name"), [("My Shop!", "my-shop"), ("2048", "edge"), ("a" * 40, "a" * 24), ("x-", "x")]
)
def test_a_name_from_a_folder(text: str, name: str) -> None:
    assert slug(text) == name
