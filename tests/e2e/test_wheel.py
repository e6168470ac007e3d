"""The wheel is complete: installed into an empty environment outside the checkout, it validates, plans and applies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.e2e.conftest import TinyProject

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    [found] = folder.glob("*.whl")
    return found


def test_it_carries_the_worker_the_schemas_and_the_local_edge(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for needed in (
        "edgespec/_assets/worker/manifest.json",
        "edgespec/_assets/worker/worker.js",
        "edgespec/_assets/worker/ort-wasm-simd.wasm",
        "edgespec/_assets/schemas/spec.schema.json",
        "edgespec/_assets/local-edge/main.mjs",
        "edgespec/_assets/local-edge/package-lock.json",
        "edgespec/providers/build/model.py",
    ):
        assert needed in names
    assert not [n for n in names if "node_modules" in n or n.startswith("tests/")]


def test_it_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    install = [
        python,
        "-m",
        "pip",
        "install",
        "-qq",
        "--disable-pip-version-check",
        f"edgespec[local] @ file://{wheel}",
    ]
    subprocess.run(install, check=True)
    project = TinyProject(tmp_path / "project", tmp_path / "cache", "wheel")
    project.write_spec()
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "EDGESPEC", "VIRTUAL_ENV"))}
    env["EDGESPEC_CACHE_DIR"] = str(tmp_path / "cache")

    def run(*arguments: str, code: int = 0) -> str:
        command = [environment / "bin" / "edgespec", "-C", project.root, *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=env, cwd=tmp_path)
        assert done.returncode == code, done.stderr
        return done.stdout

    try:
        assert "1 spec is valid" in run("validate")
        run("plan", "--detailed-exitcode", code=2)
        run("apply", "--auto-approve")
        run("plan", "--detailed-exitcode")
        answer = json.loads(run("infer", "tiny", "refund my money please", "--json"))
        assert answer["results"][0]["label"] == "refund"
    finally:
        run("edge", "down")
