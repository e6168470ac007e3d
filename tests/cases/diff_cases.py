"""`diff/<name>/case.yaml`: a project at two commits -> what `edgespec diff` says of them, in every form.

    before: {PATH: TEXT, ...}       the first commit
    after: {PATH: TEXT, ...}        what the second one changes; null removes a file

Commits have one author and one date, so that git gives them the same names everywhere.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

import yaml

from edgespec import assets
from edgespec.diffing import diff
from edgespec.plan.comparison_document import to_document
from edgespec.render import diff as render_diff
from edgespec.render.text import plain

FOLDER = Path(__file__).parent / "diff"
_WHO: Final = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Ana"), ("EMAIL", "ana@example.com"), ("DATE", "2026-01-01T00:00:00Z"))
}


def names() -> list[str]:
    return sorted(p.name for p in FOLDER.iterdir() if p.is_dir())


def expected_files(name: str) -> dict[str, str]:
    """File name -> content, as the code has it now."""
    case: dict[str, Any] = yaml.safe_load((FOLDER / name / "case.yaml").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary, "project").resolve()
        repository = Git(root)
        repository.commit(case["before"])
        repository.commit(case["after"])
        found = diff(root, "HEAD~1..HEAD", (), {"EDGESPEC_CACHE_DIR": str(Path(temporary, "cache"))})
    document = to_document(found)
    assert assets.schema_error("diff", document) is None
    return {
        "expected.txt": "".join(f"{row.rstrip()}\n" for row in plain(render_diff.render(found)).split("\n")),
        "expected.md": render_diff.markdown(found),
        "expected.json": json.dumps(document, indent=1, ensure_ascii=False) + "\n",
    }


class Git:
    """A repository in `root`, with one branch, main."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.run("init", "-q", "-b", "main", ".")

    def run(self, *arguments: str) -> str:
        """Without what the machine's own configuration says."""
        settings = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", **_WHO}
        command = ["git", "-C", str(self.root), *arguments]
        return subprocess.run(
            command, env={**os.environ, **settings}, check=True, capture_output=True, text=True
        ).stdout

    def write(self, files: dict[str, str | None]) -> None:
        for name, text in files.items():
            path = self.root / name
            if text is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8", newline="\n")

    def commit(self, files: dict[str, str | None]) -> str:
        """The commit's name."""
        self.write(files)
        self.run("add", "-A")
        self.run("commit", "-q", "--allow-empty", "-m", "Work")
        return self.run("rev-parse", "HEAD").strip()
