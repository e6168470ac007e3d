"""What it costs to plan a fleet: 500 models in 3 environments, in one command.

    python bench/fleet.py [--json] [--models 500] [--rounds 3] [--latency 0.05]

The project has a YAML file a model and overlays for all, for one team and for one name; `plan_project.py` says what is
kept in memory of an account. Every run is a process of its own; user and system CPU, wall time and peak memory are the
operating system's. `first` finds an empty account, `no-op` one on which everything is deployed. `one by one` plans the
environments by three commands in turn and `three processes` by three at once, beside one command with its threads. With
`--latency`, each call answers after so many seconds: what threads are for.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

ENVIRONMENTS: Final = ("local", "staging", "production")
TEAMS: Final = 10
PROJECT: Final = """\
apiVersion: edgespec/v1
kind: Project
name: fleet
environments:
  local: {target: {type: local, port: 0}}
  staging:
    target: {type: local, port: 0}
    overrides:
      "*": {cache: {weights: {memory: 32MiB}}}
      "team=team-1": {worker: {engine: edge}}
  production:
    target: {type: local, port: 0}
    overrides:
      "team in (team-2, team-3)": {cache: {weights: {kv: {ttl: 14d}}}}
      model-7: {regions: {shards: {eu: {jurisdiction: eu, location: null}}}}
"""
HERE: Final = Path(__file__).resolve()


@dataclass(frozen=True, slots=True)
class Cost:
    """The best of the rounds, milliseconds and bytes; `peak` is that of the largest process."""

    run: str
    cpu_ms: float
    wall_ms: float
    wall_ms_median: float
    peak_bytes: int


# --- in a process of their own ---------------------------------------------------------------------------------------


def make(folder: Path, models: int) -> None:
    """The project, everything of it in state and in account.json; nothing in `empty`, its twin."""
    sys.path.insert(0, str(HERE.parents[1]))
    from plan_project import SPEC, account, deployed

    from edgespec.session import open_session
    from tests.tiny import write_tiny_bert

    for place in (folder, folder / "empty"):
        (place / "specs").mkdir(parents=True)
        (place / "edgespec.yaml").write_text(PROJECT)
        for number in range(models):
            labels = f"{{name: model-{number}, labels: {{team: team-{number % TEAMS}}}}}"
            text = SPEC.format(number=number).replace(f"{{name: model-{number}}}", labels)
            (place / "specs" / f"model-{number}.yaml").write_text(text)
        write_tiny_bert(place / "models" / "tiny")
    records: dict[Any, Any] = {}
    for environment in ENVIRONMENTS:
        made = deployed(open_session(folder, environment, os.environ, lambda _: None))
        records |= {(environment, key): record for key, record in made.items()}
    (folder / "account.json").write_text(json.dumps(account(records)))
    (folder / "empty" / "account.json").write_text(json.dumps(account({})))
    print(len(records))


# --- here ------------------------------------------------------------------------------------------------------------


def start(folder: Path, environ: dict[str, str], latency: float, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(HERE), "plan", str(folder), str(latency), *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environ)


def ended(process: subprocess.Popen[bytes], expected: int) -> tuple[float, int]:
    """CPU seconds and peak bytes; raises where it did not end as expected."""
    said = process.stderr.read() if process.stderr else b""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != expected:
        raise SystemExit(f"{process.args}: {process.returncode}\n{said.decode(errors='replace')[-2000:]}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def once(runs: list[tuple[str, ...]], *, together: bool, **how: Any) -> tuple[float, float, int]:
    """CPU, wall time and peak of commands in turn, or at once."""
    folder, environ, latency, expected = how["folder"], how["environ"], how["latency"], how["expected"]
    began = time.perf_counter()
    if together:
        found = [ended(p, expected) for p in [start(folder, environ, latency, *o) for o in runs]]
    else:
        found = [ended(start(folder, environ, latency, *o), expected) for o in runs]
    return sum(cpu for cpu, _ in found), time.perf_counter() - began, max(peak for _, peak in found)


def measured(folder: Path, environ: dict[str, str], options: argparse.Namespace) -> list[Cost]:
    every, detailed = "--all-environments", "--detailed-exitcode"
    single: list[tuple[str, ...]] = [("--env", e, detailed) for e in ENVIRONMENTS]
    quiet: dict[str, Any] = {"environ": environ, "latency": 0.0}
    slow = {**quiet, "latency": options.latency}
    runs: dict[str, tuple[list[tuple[str, ...]], bool, dict[str, Any]]] = {
        "one command, first": ([(every, detailed)], False, {**quiet, "folder": folder / "empty", "expected": 2}),
        "one command, no-op": ([(every, detailed)], False, {**quiet, "folder": folder, "expected": 0}),
        "  as --json": ([(every, detailed, "--json")], False, {**quiet, "folder": folder, "expected": 0}),
        "  first, --markdown": (
            [(every, detailed, "--markdown")], False, {**quiet, "folder": folder / "empty", "expected": 2},
        ),
        "  --selector team=team-1": (
            [(every, detailed, "--selector", "team=team-1")], False, {**quiet, "folder": folder, "expected": 0},
        ),
        "one by one, no-op": (single, False, {**quiet, "folder": folder, "expected": 0}),
        "three processes, no-op": (single, True, {**quiet, "folder": folder, "expected": 0}),
        "with latency: one command": ([(every, detailed)], False, {**slow, "folder": folder, "expected": 0}),
        "with latency: one by one": (single, False, {**slow, "folder": folder, "expected": 0}),
        "with latency: three processes": (single, True, {**slow, "folder": folder, "expected": 0}),
    }  # fmt: skip
    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in runs}
    for round_ in range(options.rounds):
        for name, (commands, together, how) in runs.items():
            print(f"round {round_ + 1}: {name.strip()} ...", file=sys.stderr)
            found[name].append(once(commands, together=together, **how))
    return [_cost(name, seen) for name, seen in found.items()]


def _cost(name: str, seen: list[tuple[float, float, int]]) -> Cost:
    walls = [wall * 1e3 for _, wall, _ in seen]
    cpu = min(c for c, _, _ in seen) * 1e3
    return Cost(name, round(cpu), round(min(walls)), round(statistics.median(walls)), max(p for _, _, p in seen))


def table(document: dict[str, Any]) -> list[str]:
    lines = [f"{'':32}{'CPU ms':>9}{'wall ms':>9}{'median':>9}{'peak MB':>9}"]
    for c in document["costs"]:
        cells = f"{c['cpu_ms']:>9,.0f}{c['wall_ms']:>9,.0f}{c['wall_ms_median']:>9,.0f}{c['peak_bytes'] / 1e6:>9,.0f}"
        lines.append(f"{c['run']:32}{cells}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--models", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency", type=float, default=0.05, help="seconds of each call, in the runs that have it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "project")
        environ = {**os.environ, "EDGESPEC_CACHE_DIR": str(Path(temporary, "cache"))}
        command = [sys.executable, str(HERE), "make", str(folder), str(options.models)]
        resources = int(subprocess.run(command, env=environ, check=True, stdout=subprocess.PIPE).stdout.split()[-1])
        once([("--env", "local")], together=False, folder=folder, environ=environ, latency=0.0, expected=0)
        costs = measured(folder, environ, options)
    machine = {"cpus": os.cpu_count(), "load": os.getloadavg()[0], "python": platform.python_version()}
    document = {
        "machine": machine,
        "models": options.models,
        "environments": len(ENVIRONMENTS),
        "resources": resources,
        "latency": options.latency,
        "rounds": options.rounds,
        "costs": [asdict(c) for c in costs],
    }
    print(json.dumps(document, indent=1) if options.json else "\n".join(table(document)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["make"]:
        make(Path(sys.argv[2]), int(sys.argv[3]))
    elif sys.argv[1:2] == ["plan"]:
        from plan_project import plan

        plan(Path(sys.argv[2]), *sys.argv[4:], latency=float(sys.argv[3]))
    else:
        main()
