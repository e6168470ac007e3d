"""The commands in this process, on a project whose account is the one of tests/world.py."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgespec import assets, operations
from edgespec.cli.main import main
from tests.world import BUNDLE, World, contents, providers

PROJECT = "apiVersion: edgespec/v1\nkind: Project\nname: shop\n"
SPEC = (
    "apiVersion: edgespec/v1\nkind: EdgeModel\nmetadata: {name: alpha}\n"
    "model: {source: package:edgespec-no-such-model}\ntask: {type: embedding}\n"
)


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(absent={"package:edgespec-no-such-model"})
    account = SimpleNamespace(close=lambda: None, stop_with=lambda stop: None)
    monkeypatch.setattr(operations, "connect", lambda session: account)
    monkeypatch.setattr(operations, "providers_of", lambda *_: providers(made))
    monkeypatch.setattr(operations, "_contents", lambda plan, _: contents(made, plan))
    monkeypatch.setattr(assets, "bundles", lambda: SimpleNamespace(facts=BUNDLE))
    return made


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "specs").mkdir(parents=True)
    (root / "edgespec.yaml").write_text(PROJECT)
    (root / "specs" / "alpha.yaml").write_text(SPEC)
    return root


@pytest.fixture
def run(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(project)
    monkeypatch.setenv("EDGESPEC_CACHE_DIR", str(tmp_path / "cache"))
    # Other tests' threads may be alive in this process, which `_leave` would end with them.
    monkeypatch.setattr("edgespec.cli.main._leave", sys.exit)

    def call(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["edgespec", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        code: Any = ended.value.code
        return Ran(code or 0, said.out, said.err)

    return call
