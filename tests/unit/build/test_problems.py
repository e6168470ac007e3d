"""Every code that a build can fail with has its fixed summary."""

from __future__ import annotations

import re
from pathlib import Path

from edgespec.build.problems import SUMMARIES

BUILD = Path(__file__).parents[3] / "edgespec" / "build"


def test_every_code_has_a_summary() -> None:
    text = "".join(p.read_text() for p in BUILD.rglob("*.py") if p.name != "problems.py")
    used = set(re.findall(r'"(ES5\d\d)"', text))
    assert len(used) > 20
    assert used <= set(SUMMARIES)
