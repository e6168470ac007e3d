"""Runs what a workflow runs: the `run:` steps of GitHub's files and the scripts of GitLab's, by bash, as they stand.

What is not ours (checkout, upload-artifact) is done by hand; conditions and expressions are those that the templates
use, and any other fails the test.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from tests.forge import TOKEN, Forge


@dataclass
class Ran:
    """A job that ran in its own clone."""

    root: Path
    code: int
    text: str
    """All that its steps wrote, to stdout and stderr."""


class Machine:
    """Where jobs run: a bare repository that they clone, an edge that they deploy to, a forge that they tell."""

    def __init__(self, folder: Path, origin: Path, cache: Path, edge: Path, forge: Forge) -> None:
        self.folder, self.origin, self.edge, self.forge = folder, origin, edge, forge
        self.jobs = 0
        self.environ = {
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": os.environ["HOME"],
            "EDGESPEC_CACHE_DIR": str(cache),
            "ENVIRONMENTS": "--env staging --env production",
        }

    def job(
        self,
        name: str,
        commit: str,
        *,
        head: str = "",
        number: int = 0,
        run: int = 0,
        on: str = "",
        inputs: Mapping[str, Any] = MappingProxyType({}),
    ) -> Ran:
        """One job, from its clone to its end. `run` is the number that its run gets, `on` the event's name, `inputs`
        are those of a dispatch, `number` and `head` a change request's."""
        raise NotImplementedError

    def clone(self, commit: str) -> Path:
        self.jobs += 1
        root = self.folder / f"job{self.jobs}"
        git(self.folder, "clone", "--quiet", str(self.origin), str(root))
        git(root, "checkout", "--quiet", commit)
        (root / ".edgespec").mkdir()
        (root / ".edgespec" / "edge").symlink_to(self.edge)
        return root

    def bash(self, script: str, root: Path, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=root,
            env={**self.environ, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def keep(self, number: int, head: str, path: Path) -> None:
        """What upload-artifact and `artifacts:` do."""
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as made:
            for file in sorted(path.iterdir()):
                made.write(file, file.name)
        self.forge.runs.append({"id": number, "head": head, "job": "edgespec-plan", "artifact": packed.getvalue()})


class GitHub(Machine):
    def job(
        self,
        name: str,
        commit: str,
        *,
        head: str = "",
        number: int = 0,
        run: int = 0,
        on: str = "",
        inputs: Mapping[str, Any] = MappingProxyType({}),
    ) -> Ran:
        """The one job of .github/workflows/edgespec-NAME.yml."""
        root = self.clone(commit)
        document = yaml.safe_load((root / f".github/workflows/edgespec-{name}.yml").read_text())
        (job,) = document["jobs"].values()
        files = {k: root.parent / f"{root.name}-{k}" for k in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for file in files.values():
            file.touch()
        environ = {
            **{k: str(v) for k, v in files.items()},
            **{k: str(v) for k, v in document.get("env", {}).items()},
            "GITHUB_ACTIONS": "true",
            "GITHUB_API_URL": self.forge.url,
            "GITHUB_REPOSITORY": "acme/shop",
            "GITHUB_REF": f"refs/pull/{number}/merge" if number else "refs/heads/main",
            "GITHUB_REF_NAME": f"{number}/merge" if number else "main",
            "GITHUB_SHA": commit,
        }
        said, code, outputs = "", 0, {}
        for step in job["steps"]:
            if not self._wanted(step.get("if", ""), on, code):
                continue
            if "uses" in step:
                self._use(step, root, run, head)
                continue
            values = {"github.token": TOKEN, **{f"inputs.{k}": v for k, v in inputs.items()}}
            values |= {f"steps.{k}": v for k, v in outputs.items()}
            local = {k: _expanded(str(v), values) for k, v in step.get("env", {}).items()}
            assert "${{" not in step["run"], "expressions in scripts can be injected into"
            ran = self.bash(step["run"], root, {**environ, **local})
            said += ran.stdout
            code = code or ran.returncode
            rows = [row.partition("=") for row in files["GITHUB_OUTPUT"].read_text().splitlines()]
            outputs |= {f"{step.get('id')}.outputs.{k}": v for k, _, v in rows}
        return Ran(root, code, said)

    @staticmethod
    def _wanted(condition: str, on: str, code: int) -> bool:
        if condition == "":
            return code == 0
        if condition == "github.event_name == 'pull_request'":
            return code == 0 and on == "pull_request"
        assert condition == "always() && hashFiles('edgespec.sarif') != ''", condition
        return True

    def _use(self, step: Mapping[str, Any], root: Path, run: int, head: str) -> None:
        action = step["uses"].split("@")[0]
        if action == "actions/upload-artifact":
            assert step["with"]["name"] == "edgespec-plan"
            self.keep(run, head, root / step["with"]["path"])
        elif action == "github/codeql-action/upload-sarif":
            shutil.copy(root / step["with"]["sarif_file"], root.parent / "uploaded.sarif")
        else:
            assert action in ("actions/checkout", "./.github/actions/edgespec"), action


class GitLab(Machine):
    def job(
        self,
        name: str,
        commit: str,
        *,
        head: str = "",
        number: int = 0,
        run: int = 0,
        on: str = "",
        inputs: Mapping[str, Any] = MappingProxyType({}),
    ) -> Ran:
        """The job NAME of .gitlab-ci.yml."""
        root = self.clone(commit)
        document = yaml.safe_load((root / ".gitlab-ci.yml").read_text())
        job = document["edgespec-plan" if name == "plan" else name]
        environ = {
            **{k: v for k, v in document["variables"].items() if k == "ENVIRONMENTS"},
            "GITLAB_CI": "true",
            "CI_API_V4_URL": self.forge.url,
            "CI_PROJECT_ID": "12",
            "CI_PROJECT_URL": "https://gitlab.example/acme/shop",
            "CI_COMMIT_SHA": commit,
            "CI_COMMIT_BRANCH": "" if number else "main",
            "GITLAB_TOKEN": TOKEN,
            **({"CI_MERGE_REQUEST_IID": str(number)} if number else {}),
            **{k.upper(): str(v) for k, v in inputs.items()},
        }
        ran = self.bash("\n".join(job["script"]), root, environ)
        if name == "plan" and ran.returncode == 0:
            (kept,) = job["artifacts"]["paths"]
            self.keep(run, head, root / kept)
        return Ran(root, ran.returncode, ran.stdout)


def _expanded(text: str, values: Mapping[str, Any]) -> str:
    return re.sub(r"\$\{\{ *(.+?) *\}\}", lambda m: str(values.get(m[1], "")), text)


def git(folder: Path, *arguments: str) -> str:
    names = ["-c", "user.name=dev", "-c", "user.email=dev@example.com", "-c", "init.defaultBranch=main"]
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    ran = subprocess.run(
        ["git", *names, *arguments], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, f"git {arguments}: {ran.stdout}{ran.stderr}"
    return ran.stdout.strip()
