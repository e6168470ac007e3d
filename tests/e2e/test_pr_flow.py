"""A change on its way: the workflows that `init --ci` writes, step by step, on a bare repository and a real local edge.

The forge is a stand-in of the API (tests/forge.py); everything else is what runs at a user's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from edgespec import formatting, operations
from edgespec.cli.main import cli
from edgespec.plan.model import Request
from edgespec.session import connect, open_session
from tests.e2e.workflows import GitHub, GitLab, Machine, Ran, git
from tests.forge import Forge, forge
from tests.tiny import write_tiny_bert

ENVIRONMENTS = ("staging", "production")
TEMPLATES = Path(operations.__file__).parent / "scaffold" / "templates"


@pytest.fixture
def there() -> Iterator[Forge]:
    with forge() as made:
        yield made


class Repository:
    """A team's repository: a work tree in which people edit, a bare one that jobs clone."""

    def __init__(self, folder: Path, name: str, ci: str) -> None:
        self.origin, self.work, self.name = folder / "origin.git", folder / "work", name
        git(folder, "init", "--quiet", "--bare", str(self.origin))
        git(folder, "clone", "--quiet", str(self.origin), str(self.work))
        options = ("--task", "embedding", "--name", name, "--source", "./models/tiny", "--ci", ci)
        cli.main(["init", str(self.work), *options], standalone_mode=False)
        write_tiny_bert(self.work / "models" / "tiny")
        self._edit_project()
        spec = self.spec.read_text()
        self.spec.write_text(spec[: spec.index("\nquality:")])  # a model of random weights passes no gate
        self.commit("A new project")

    def _edit_project(self) -> None:
        """Both environments on the local edge, with their state in a bucket there, as accounts would have it."""
        path = self.work / "edgespec.yaml"
        document = yaml.safe_load(path.read_text())
        state = {"type": "r2", "bucket": f"{self.name}-state"}
        for environment in ENVIRONMENTS:
            document["environments"][environment] = {"target": {"type": "local", "port": 0}, "state": state}
        path.write_text("# The team's project\n" + yaml.safe_dump(document, sort_keys=False))
        formatting.write(formatting.formatted(path))

    @property
    def spec(self) -> Path:
        return self.work / "specs" / "similarity.yaml"

    def edit(self, before: str, after: str) -> None:
        text = self.spec.read_text()
        assert before in text
        self.spec.write_text(text.replace(before, after))

    def branch(self, name: str) -> None:
        git(self.work, "checkout", "--quiet", "-B", name, "main")

    def commit(self, message: str) -> str:
        git(self.work, "add", "--all")
        git(self.work, "commit", "--quiet", "--message", message)
        git(self.work, "push", "--quiet", "--force", "origin", "HEAD")
        return git(self.work, "rev-parse", "HEAD")

    def merge(self, name: str) -> str:
        git(self.work, "checkout", "--quiet", "main")
        if name == "main":
            return git(self.work, "rev-parse", "HEAD")
        git(self.work, "merge", "--quiet", "--no-ff", "--message", f"Merge {name}", name)
        git(self.work, "push", "--quiet", "origin", "main")
        return git(self.work, "rev-parse", "HEAD")


class Flow:
    """What a team does, with the jobs that it sets off."""

    def __init__(self, machine: Machine, repository: Repository, there: Forge) -> None:
        self.machine, self.repository, self.forge = machine, repository, there
        self.runs = 0

    def plan(self, head: str, number: int) -> Ran:
        self.runs += 1
        on = "pull_request" if number else "workflow_dispatch"
        return self.machine.job("plan", head, head=head, number=number, run=self.runs, on=on)

    def merge(self, branch: str, head: str, number: int) -> Ran:
        """The change request is merged, and the workflow of `main` runs."""
        commit = self.repository.merge(branch)
        self.forge.pulls.append({"commit": commit, "number": number, "head": head, "branch": "main", "merged": True})
        return self.apply(commit)

    def apply(self, commit: str, **inputs: int) -> Ran:
        return self.machine.job("apply", commit, on="push", inputs=inputs)

    def session(self, root: Path, environment: str) -> operations.Session:
        return open_session(root, environment, self.machine.environ, lambda _: None)

    def changes(self, root: Path) -> int:
        """What a plan of both environments would do, counted."""
        total = 0
        for environment in ENVIRONMENTS:
            planned = operations.plan(self.session(root, environment))
            planned.close()
            total += not planned.plan.is_empty
        return total


@pytest.fixture(params=["github", "gitlab"])
def flow(
    request: pytest.FixtureRequest, tmp_path: Path, build_cache: Path, shared_edge: Path, there: Forge
) -> Iterator[Flow]:
    repository = Repository(tmp_path, f"team-{request.param}", request.param)
    kind = GitHub if request.param == "github" else GitLab
    made = Flow(kind(tmp_path, repository.origin, build_cache, shared_edge, there), repository, there)
    (repository.work / ".edgespec").mkdir()
    (repository.work / ".edgespec" / "edge").symlink_to(shared_edge)
    cli.main(["-C", str(repository.work), "state", "init", "--env", "staging"], standalone_mode=False)
    yield made
    git(repository.work, "checkout", "--quiet", "main")
    for environment in ENVIRONMENTS:
        session = made.session(repository.work, environment)
        request_ = Request(destroy=True, allow_destroy=True)
        operations.apply(session, request=request_, approve=lambda _: True, on_event=lambda _: None)


def test_a_change_on_its_way(flow: Flow) -> None:
    there, repository = flow.forge, flow.repository

    # A change request: its plan is one comment. GitLab's jobs differ in how they are told what they run for.
    head = git(repository.work, "rev-parse", "HEAD")
    planned = flow.plan(head, 5)
    assert planned.code == 0, planned.text
    (comment,) = there.comments[5]
    first = comment["body"]
    assert first.startswith("<!-- edgespec:comment:plan -->") and "staging" in first and "production" in first

    # Merged: exactly these plans are applied.
    applied = flow.merge("main", head, 5)
    assert applied.code == 0, applied.text
    assert applied.text.count("Apply complete") == 2
    assert flow.changes(applied.root) == 0
    if isinstance(flow.machine, GitLab):
        return

    # Another one, and a push to it: the same comment, another plan.
    repository.branch("second")
    for before, after in (("quantization:", "cache: {weights: {memory: 48MiB}}\nquantization:"), ("48MiB", "40MiB")):
        repository.edit(before, after)
        head = repository.commit("Less memory")
        assert flow.plan(head, 6).code == 0
    (comment,) = there.comments[6]
    assert "40 MiB" in comment["body"] and "48 MiB" not in comment["body"]

    # One more meanwhile: its plan is stale once the second one is in, and nothing is done.
    repository.branch("third")
    more = repository.spec.read_text().replace("name: similarity", "name: more")
    (repository.work / "specs" / "more.yaml").write_text(more)
    third = repository.commit("Another model")
    assert flow.plan(third, 7).code == 0
    assert flow.merge("second", head, 6).code == 0
    stale = flow.merge("third", third, 7)
    assert stale.code != 0 and "Not applied: plans/staging.plan.json" in stale.text, stale.text
    assert flow.changes(stale.root) == 2

    # Planned again by hand, and that applied.
    commit = git(repository.work, "rev-parse", "HEAD")
    assert flow.plan(commit, 0).code == 0
    again = flow.apply(commit, run=flow.runs)
    assert again.code == 0, again.text
    assert flow.changes(again.root) == 0

    # Somebody changes production by hand: an issue, once, until it is as it was.
    session = flow.session(again.root, "production")
    account = connect(session)
    script = f"{repository.name}-production-similarity"
    account.sdk.workers.scripts.subdomain.create(script, account_id=account.id, enabled=False, previews_enabled=True)
    drifted = flow.machine.job("drift", commit, on="schedule")
    assert drifted.code == 0, drifted.text
    (issue,) = there.issues
    assert issue["open"] and "deployment/similarity" in issue["body"] and "<code>staging</code>" not in issue["body"]
    account.sdk.workers.scripts.subdomain.create(script, account_id=account.id, enabled=True, previews_enabled=True)
    account.close()
    assert flow.machine.job("drift", commit, on="schedule").code == 0
    assert not issue["open"]


def test_what_is_wrong_is_shown_on_its_line(tmp_path: Path, there: Forge, build_cache: Path) -> None:
    repository = Repository(tmp_path, "team-wrong", "github")
    machine = GitHub(tmp_path, repository.origin, build_cache, tmp_path / "no-edge", there)
    good = machine.job("validate", git(repository.work, "rev-parse", "HEAD"), on="push")
    assert good.code == 0, good.text
    repository.branch("wrong")
    repository.edit("type: embedding", "type: embeding")
    bad = machine.job("validate", repository.commit("A typo"), on="push")
    assert bad.code == 1
    (run,) = json.loads((tmp_path / "uploaded.sarif").read_text())["runs"]
    (place,) = run["results"][0]["locations"]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == "specs/similarity.yaml"
    line = repository.spec.read_text().split("\n").index("  type: embeding") + 1
    assert place["physicalLocation"]["region"]["startLine"] == line
    repository.branch("ugly")
    repository.edit("normalize: true", "normalize:    true")
    assert machine.job("validate", repository.commit("Spaces"), on="push").code == 1


def test_a_fork_cannot_run_what_it_likes() -> None:
    """No step of a template puts an expression into a script, and no workflow runs with secrets for a fork's code."""
    for path in (TEMPLATES / "github").glob("*.yml"):
        document = yaml.load(path.read_text(), Loader=yaml.BaseLoader)
        jobs = document["jobs"].values() if "jobs" in document else [document["runs"]]
        scripts = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
        assert not any("${{" in script for script in scripts), path
        assert "pull_request_target" not in json.dumps(document.get("on", ""))
        for script in scripts:
            subprocess.run(["bash", "-n", "-c", script], check=True)


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("vendor.github-workflows", ["validate.yml", "plan.yml", "apply.yml", "drift.yml"]),
        ("vendor.github-actions", ["action.yml"]),
        ("vendor.gitlab-ci", ["gitlab-ci.yml"]),
    ],
)
def test_the_files_are_what_the_forges_schemas_ask_for(schema: str, files: list[str]) -> None:
    folder = TEMPLATES / ("gitlab" if "gitlab" in schema else "github")
    options = ["--data-transform", "gitlab-ci"] if "gitlab" in schema else []
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *options]
    ran = subprocess.run(command + [str(folder / f) for f in files], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
