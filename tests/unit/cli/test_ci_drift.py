"""`ci drift`: one issue for all environments, on the account of tests/world.py and a stand-in of GitHub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forge import TOKEN, Forge, forge
from tests.unit.cli.conftest import PROJECT, Run
from tests.world import World

OTHER = "environments:\n  local: {target: {type: local}}\n  other: {target: {type: local}}\n"
UNSET = "environments:\n  local: {target: {type: local}}\n  far: {target: {type: cloudflare, account: '${NOT_SET}'}}\n"


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Iterator[Forge]:
    with forge() as made:
        values = {"GITHUB_ACTIONS": "true", "GITHUB_API_URL": made.url, "GITHUB_REPOSITORY": "acme/shop"}
        for name, value in {**values, "GITHUB_TOKEN": TOKEN}.items():
            monkeypatch.setenv(name, value)
        yield made


def test_one_issue_while_it_is_so(run: Run, world: World, project: Path, there: Forge, tmp_path: Path) -> None:
    (project / "edgespec.yaml").write_text(PROJECT + OTHER)
    assert run("apply", "--auto-approve").code == 0
    calm = run("ci", "drift", "--all-environments")
    assert (calm.code, there.issues) == (0, []) and "is what state says" in calm.out

    world.scripts["shop-local-alpha"].public = False
    drifted = run("ci", "drift", "--all-environments")
    assert drifted.code == 0, drifted.err
    (issue,) = there.issues
    assert issue["open"] and issue["title"] == "edgespec: drift" and "deployment/alpha" in issue["body"]
    assert "<code>local</code>" in issue["body"] and "<code>other</code>" not in issue["body"]
    assert "unchanged" in run("ci", "drift", "--all-environments").err

    (project / "edgespec.yaml").write_text(PROJECT + UNSET)
    failed = run("ci", "drift", "--all-environments")
    assert failed.code == 1 and "<code>far</code> cannot be read" in issue["body"] and issue["open"]

    world.scripts["shop-local-alpha"].public = True
    assert run("ci", "drift", "--all-environments").code == 1
    assert issue["open"], "nothing is closed while an environment cannot be read"
    assert run("ci", "drift", "--env", "local", "--to", tmp_path / "issue.md").code == 0
    assert (tmp_path / "issue.md").read_text() == "" and issue["open"]
    assert run("ci", "drift", "--env", "local").code == 0
    assert not issue["open"] and "is what state says" in there.closing[0][1]
