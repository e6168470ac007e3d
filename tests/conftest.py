"""Hypothesis without a clock: the machine's speed decides nothing."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("edgespec", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("edgespec")

# A shell that runs the tests in the background has them ignore ctrl-C, and every process that they start with them.
signal.signal(signal.SIGINT, signal.default_int_handler)


_LONGEST: Final = (
    "e2e/test_crash.py",
    "e2e/test_gitops.py",
    "e2e/test_workflow.py",
    "e2e/test_wheel.py",
    "e2e/test_examples.py",
    "e2e/test_pr_flow.py",
    "e2e/test_init.py",
    "e2e/test_promotion.py",
    "e2e/test_rollback.py",
    "build/test_swift.py",
    "faults/test_machine.py",
)
"""Files that take minutes, begun first: with several processes, nobody waits at the end for one of them alone."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    place = {here / name: n for n, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: place.get(item.path, len(_LONGEST)))
