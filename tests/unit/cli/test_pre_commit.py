"""The hooks that .pre-commit-hooks.yaml offers, run as pre-commit runs them: their own command in the repository."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.unit.cli.conftest import PROJECT, SPEC

HOOKS = {h["id"]: h for h in yaml.safe_load((Path(__file__).parents[3] / ".pre-commit-hooks.yaml").read_text())}


def hook(name: str, root: Path, *files: str) -> subprocess.CompletedProcess[str]:
    """As pre-commit does: the hook's entry with those of the changed files that its pattern takes."""
    found = HOOKS[name]
    entry, *arguments = shlex.split(found["entry"])
    taken = [f for f in files if re.search(found["files"], f)]
    assert entry == "edgespec" and found["language"] == "python"
    command = [str(Path(sys.executable).with_name(entry)), *arguments]
    command += taken if found.get("pass_filenames", True) else []
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "specs").mkdir()
    (tmp_path / "edgespec.yaml").write_text(PROJECT)
    (tmp_path / "specs" / "alpha.yaml").write_text(SPEC)
    return tmp_path


def test_fmt_changes_what_is_committed_and_nothing_else(root: Path) -> None:
    for name in ("specs/a b.yaml", "other.yaml", "specs/alpha.yaml"):
        (root / name).write_text("a:   1\n" if "alpha" not in name else SPEC)
    ran = hook("edgespec-fmt", root, "specs/a b.yaml", "other.yaml", "specs/alpha.yaml", "README.md")
    assert (ran.returncode, ran.stdout) == (0, "specs/a b.yaml\n")
    assert (root / "specs" / "a b.yaml").read_text() == "a: 1\n"
    assert (root / "other.yaml").read_text() == "a:   1\n"


def test_validate_refuses_what_is_wrong(root: Path) -> None:
    assert hook("edgespec-validate", root, "specs/alpha.yaml").returncode == 0
    (root / "specs" / "alpha.yaml").write_text(SPEC.replace("embedding", "embeding"))
    ran = hook("edgespec-validate", root, "specs/alpha.yaml")
    assert ran.returncode == 1 and "specs/alpha.yaml:5:14" in ran.stderr


@pytest.mark.parametrize("name", list(HOOKS))
def test_pre_commit_takes_the_file(name: str) -> None:
    """What its manifest's schema asks of a hook."""
    assert {"id", "name", "entry", "language", "files"} <= HOOKS[name].keys()
    re.compile(HOOKS[name]["files"])
