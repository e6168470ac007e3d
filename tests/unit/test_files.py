from __future__ import annotations

import fnmatch
from pathlib import Path

import pytest

from edgespec.diagnostics import EdgespecError
from edgespec.files import DiskFiles
from edgespec.workspace import load_workspace

PROJECT = b"apiVersion: edgespec/v1\nkind: Project\nname: shop\n"
SPEC = b"""apiVersion: edgespec/v1
kind: EdgeModel
metadata: {name: a}
model: {source: ./m}
task: {type: embedding}
"""


class InMemory:
    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    def glob(self, pattern: str) -> list[str]:
        return sorted(fnmatch.filter(self.files, pattern))

    def read(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(f"{path} is not here")
        return self.files[path]


def test_names_are_relative_sorted_and_with_slashes(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yaml", "deep/er/c.yaml", "no.txt"):
        (tmp_path / "specs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "specs" / name).write_text(name)
    files = DiskFiles(tmp_path)
    assert files.glob("specs/*.yaml") == ["specs/a.yaml", "specs/b.yaml"]
    assert files.glob("specs/**/*.yaml") == ["specs/a.yaml", "specs/b.yaml", "specs/deep/er/c.yaml"]
    assert files.read("specs/deep/er/c.yaml") == b"deep/er/c.yaml"
    with pytest.raises(FileNotFoundError):
        files.read("specs/d.yaml")


def test_a_project_is_read_from_what_is_given(tmp_path: Path) -> None:
    files = InMemory({"edgespec.yaml": PROJECT, "specs/a.yaml": SPEC})
    workspace = load_workspace(tmp_path, None, {}, files=files)
    assert [s.name for s in workspace.specs] == ["a"]
    with pytest.raises(EdgespecError, match=r"edgespec\.yaml is not here"):
        load_workspace(tmp_path, None, {}, files=InMemory({}))
