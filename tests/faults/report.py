"""scripts/fault-report: the machine for as long as one likes, and its figures."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from edgespec.assets import local_edge_sources
from edgespec.local_edge.edge import LocalEdge
from tests.faults.ground import Ground, Wanted, quick
from tests.faults.injector import Injector
from tests.faults.machine import Figures, Machine

BATCH = 3
STEPS = 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seed", type=int, help="run just this batch")
    chosen = parser.parse_args()
    figures, injector = Figures(), Injector()
    began, said = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="edgespec-faults-") as name:
        folder = Path(name)
        edge = folder / "edge"
        known: dict[Wanted, dict[str, Any]] = {}
        try:
            with quick(folder), injector.installed():
                while True:
                    number = chosen.seed if chosen.seed is not None else secrets.randbelow(2**32)
                    ground = Ground(folder / f"batch-{number}", folder / "cache", edge)
                    run_batch(number, machine(ground, injector, figures, known))
                    for violation in figures.violations[said:]:
                        print(f"--- violated, with --seed {number}\n{violation}", file=sys.stderr, flush=True)
                    said = len(figures.violations)
                    if chosen.seed is not None or time.monotonic() - began > chosen.minutes * 60:
                        break
        finally:
            LocalEdge(edge, port=0, sources=local_edge_sources(), cache_dir=folder / "cache", progress=print).down()
    print(report(figures, injector, time.monotonic() - began))
    sys.exit(1 if figures.violations else 0)


def machine(made: Ground, injector: Injector, figures: Figures, known: dict[Wanted, dict[str, Any]]) -> type[Machine]:
    class OnTheEdge(Machine):
        ground = made
        undisturbed = known

    OnTheEdge.injector, OnTheEdge.figures = injector, figures
    return OnTheEdge


def run_batch(number: int, tested: type[Machine]) -> None:
    """What is violated is kept by the machine: with threads, Hypothesis cannot see it twice."""
    options = settings(
        max_examples=BATCH,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    before = len(tested.figures.violations)
    try:
        run_state_machine_as_test(seed(number)(tested), settings=options)
    except Exception:
        if len(tested.figures.violations) == before:
            raise


def report(figures: Figures, injector: Injector, seconds: float) -> str:
    faults = "\n".join(f"| {kind} | {count} |" for kind, count in sorted(injector.injected.items()))
    return f"""| | |
|---|---|
| runs (random histories of up to {STEPS} events) | {figures.runs} |
| events: {_listed(figures.steps)} | {sum(figures.steps.values())} |
| applies under faults, by how they ended: {_listed(figures.ended)} | {sum(figures.ended.values())} |
| steps carried out: {_listed(figures.outcomes)} | {sum(figures.outcomes.values())} |
| API requests | {injector.requests} |
| faults injected | {sum(injector.injected.values())} |
| "the next apply makes it good" checked | {figures.checks} |
| violations | {len(figures.violations)} |
| minutes | {seconds / 60:.0f} |

| fault | injected |
|---|---|
{faults}
"""


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    main()
