from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.conftest import PROJECT, SPEC, Run

ENVIRONMENTS = "environments: {local: {target: {type: local}}, staging: {target: {type: local}}}\n"


@pytest.fixture
def shop(project: Path) -> Path:
    (project / "edgespec.yaml").write_text(PROJECT + ENVIRONMENTS)
    (project / "specs" / "two.yaml").write_text(SPEC.replace("alpha", "beta") + "---\n" + SPEC.replace("alpha", "bell"))
    (project / "specs" / "broken.yaml").write_text("a: [\n")
    return project


def complete(folder: Path, *words: str) -> list[str]:
    """What bash would offer for the last word."""
    environ = {**os.environ, "_EDGESPEC_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(["edgespec", *words])}
    environ["COMP_CWORD"] = str(len(words))
    code = "import sys; sys.argv[0] = 'edgespec'; from edgespec.cli.main import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environ, capture_output=True, text=True, check=True
    )
    return sorted(row.partition(",")[2] for row in ran.stdout.splitlines() if row)


def test_commands_options_specs_and_environments(shop: Path) -> None:
    assert complete(shop, "val") == ["validate"]
    assert "--pipeline" in complete(shop, "graph", "--p")
    assert complete(shop, "graph", "be") == ["bell", "beta"]
    assert complete(shop, "graph", "--env", "s") == ["staging"]


def test_where_there_is_no_project(tmp_path: Path) -> None:
    assert complete(tmp_path, "graph", "a") == []


def test_another_folder(shop: Path, tmp_path: Path) -> None:
    assert complete(tmp_path, "-C", str(shop), "infer", "al") == ["alpha"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts(run: Run, shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = run("completion", shell)
    assert written.code == 0 and "_EDGESPEC_COMPLETE" in written.out
    found = shutil.which(shell)
    if found is not None:
        subprocess.run([found, "-n"], input=written.out, text=True, check=True, env={"PATH": os.environ["PATH"]})
