"""Golden cases: a folder is an input and what must come of it; `scripts/update-cases` writes the latter."""

from __future__ import annotations

from tests.cases import diff_cases, plan_cases, spec_cases

CASES = (spec_cases, plan_cases, diff_cases)
