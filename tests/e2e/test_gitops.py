"""A team's weeks with specs/gitops, as scripts/gitops-e2e prints them for docs/gitops.md."""

from __future__ import annotations

from pathlib import Path

from tests.gitops.walk import walk


def test_a_teams_weeks_end_with_an_empty_plan_everywhere(tmp_path: Path) -> None:
    said: list[str] = []
    walk(tmp_path, said.append)
    assert sum(text.startswith("\n## ") for text in said) == 9
