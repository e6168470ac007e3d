"""A few examples of the machine; scripts/fault-report runs many and prints the figures."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.faults.ground import Ground, quick
from tests.faults.injector import Injector
from tests.faults.machine import Figures, Machine

EXAMPLES = int(os.environ.get("EDGESPEC_FAULT_EXAMPLES", "3"))
STEPS = 12


def test_whatever_fails_the_next_apply_makes_it_good(tmp_path: Path, build_cache: Path, shared_edge: Path) -> None:
    figures, injector = Figures(), Injector()
    made = Ground(tmp_path, build_cache, shared_edge)

    class OnTheEdge(Machine):
        ground = made
        undisturbed = {}  # noqa: RUF012

    OnTheEdge.injector, OnTheEdge.figures = injector, figures
    options = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize="EDGESPEC_FAULT_EXAMPLES" not in os.environ,
        database=None,
        phases=[Phase.generate],  # an example takes seconds: shrinking it would take hours
        print_blob=True,
    )
    with quick(tmp_path), injector.installed():
        run_state_machine_as_test(OnTheEdge, settings=options)
    assert figures.checks > 0 and sum(injector.injected.values()) > 0
