"""Every case gives what its folder says. When a change is meant: `scripts/update-cases`, and read the difference."""

from __future__ import annotations

import pytest

from tests.cases import diff_cases, plan_cases, spec_cases


@pytest.mark.parametrize("name", spec_cases.names())
def test_spec(name: str) -> None:
    for file, content in spec_cases.expected_files(name).items():
        assert content == (spec_cases.FOLDER / name / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", plan_cases.names())
def test_plan(name: str) -> None:
    for file, content in plan_cases.expected_files(name).items():
        assert content == (plan_cases.FOLDER / name / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", diff_cases.names())
def test_diff(name: str) -> None:
    for file, content in diff_cases.expected_files(name).items():
        assert content == (diff_cases.FOLDER / name / file).read_text(encoding="utf-8")
