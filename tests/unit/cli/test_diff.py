"""`edgespec diff` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgespec import assets
from tests.cases.diff_cases import Git
from tests.unit.cli.conftest import PROJECT, SPEC, Run
from tests.unit.cli.test_startup import HEAVY, imported


@pytest.fixture
def git(project: Path) -> Git:
    made = Git(project)
    made.commit({})
    return made


def test_every_form(git: Git, run: Run) -> None:
    git.write({"specs/alpha.yaml": SPEC.replace("{type: embedding}", "{type: embedding, max_tokens: 32}")})
    text, comment, document = run("diff"), run("diff", "--markdown"), run("diff", "--json")
    assert {text.code, comment.code, document.code} == {0}
    assert "~ alpha  repacked: the weights stay" in text.out
    assert comment.out.startswith("### <code>shop</code>: <code>HEAD")
    parsed = json.loads(document.out)
    assert assets.schema_error("diff", parsed) is None
    assert parsed["environments"][0]["models"][0]["effect"] == "repacked"
    assert run("diff", "--json", "--markdown").code == 1


def test_from_a_folder_below_and_of_one_environment(git: Git, run: Run, project: Path) -> None:
    two = PROJECT + "environments:\n  local: {target: {type: local}}\n  other: {target: {type: local}}\n"
    git.commit({"edgespec.yaml": two})
    git.write({"specs/alpha.yaml": SPEC.replace("name: alpha", "name: beta")})
    said = run("-C", project / "specs", "diff", "--env", "other", "HEAD")
    assert (said.code, "other  risk: high" in said.out, "local" in said.out) == (0, True, False)
    refused = run("diff", "--env", "prod")
    assert (refused.code, "ES133" in refused.err) == (1, True)


def test_of_some_labels(git: Git, run: Run) -> None:
    labelled = SPEC.replace("{name: alpha}", "{name: beta, labels: {team: care}}")
    git.write({"specs/alpha.yaml": None, "specs/beta.yaml": labelled})
    said = run("diff", "--selector", "team=care")
    assert (said.code, "+ beta" in said.out, "alpha  removed" in said.out) == (0, True, False)


def test_nothing_differs(git: Git, run: Run) -> None:
    assert "nothing differs that edgespec knows of" in run("diff").out


def test_its_help_is_light() -> None:
    assert not imported("diff", "--help") & {*HEAVY}
