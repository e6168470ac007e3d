"""Cold start, first answer, latency and batches of /infer in workerd, and plan time by number of specs.

    bench/spine.py [--json FILE] [--requests N]

The model is the README's (specs/support, MiniLM int8). Times are of this machine and its noise; compare only within a
run. "cold" restarts the local edge, so that no isolate, module or weight is in memory; the bytes come from KV and R2 on
this disk. A plan is a whole `edgespec plan` process on specs whose model is a tiny one, against an empty state.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import yaml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
EDGESPEC = Path(sys.executable).with_name("edgespec")
TEXTS = [json.loads(row)["text"] for row in (ROOT / "specs/support/data/test.jsonl").read_text().splitlines()]

BATCH = 32


def run(project: Path, *arguments: str) -> str:
    command = [EDGESPEC, "-C", project, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure_serving(folder: Path, requests: int) -> dict[str, float]:
    project = folder / "support"
    shutil.copytree(ROOT / "specs/support", project, ignore=shutil.ignore_patterns(".edgespec"))
    text = (project / "edgespec.yaml").read_text()
    (project / "edgespec.yaml").write_text(text.replace("port: 8787", "port: 0"))
    run(project, "apply", "--auto-approve")
    url = json.loads(run(project, "state", "show", "deployment/support-intent"))["outputs"]["url"]
    found: dict[str, list[float]] = {"load_ms": [], "first_answer_ms": []}
    try:
        with httpx.Client(trust_env=False, timeout=60) as http:
            for _ in range(3):
                run(project, "edge", "down")
                run(project, "edge", "up")
                health = http.get(f"{url}healthz", params={"load": "1"}).json()
                found["load_ms"].append(health["load_ms"])
                start = time.perf_counter()
                http.post(f"{url}infer", json={"text": TEXTS[0]}).raise_for_status()
                found["first_answer_ms"].append(1000 * (time.perf_counter() - start))
            times = []
            for i in range(requests):
                start = time.perf_counter()
                http.post(f"{url}infer", json={"text": TEXTS[i % len(TEXTS)]}).raise_for_status()
                times.append(1000 * (time.perf_counter() - start))
            batches = measure_batches(http, f"{url}infer")
            memory = http.get(f"{url}healthz", params={"load": "1"}).json()["memory"]
    finally:
        run(project, "edge", "down")
    return {
        "cold_load_ms": statistics.median(found["load_ms"]),
        "first_answer_ms": statistics.median(found["first_answer_ms"]),
        "infer_p50_ms": percentile(times, 0.5),
        "infer_p99_ms": percentile(times, 0.99),
        **batches,
        "wasm_memory_mb": memory["wasm"] / 1e6,
    }


def measure_batches(http: httpx.Client, url: str, rounds: int = 15) -> dict[str, float]:
    """32 short texts, each in a request of its own and all in one: wall milliseconds a text, in turn in every round."""
    texts = sorted(TEXTS, key=len)[:BATCH]

    def timed(bodies: list[dict[str, object]]) -> float:
        start = time.perf_counter()
        for body in bodies:
            http.post(url, json=body).raise_for_status()
        return 1000 * (time.perf_counter() - start) / BATCH

    alone: list[dict[str, object]] = [{"text": text} for text in texts]
    together: list[dict[str, object]] = [{"texts": texts}]
    timed(alone), timed(together)
    pairs = [(timed(alone), timed(together)) for _ in range(rounds)]
    return {
        "short_text_alone_ms": statistics.median(a for a, _ in pairs),
        "short_text_of_32_ms": statistics.median(b for _, b in pairs),
        "batch_gain": statistics.median(a / b for a, b in pairs),
    }


def measure_plan(folder: Path, count: int) -> dict[str, float]:
    from tests.tiny import tiny_spec, write_examples, write_tiny_bert

    project = folder / f"plan{count}"
    write_tiny_bert(project / "models" / "tiny")
    write_examples(project / "data" / "train.jsonl")
    (project / "specs").mkdir()
    target = {"environments": {"local": {"target": {"type": "local", "port": 0}}}}
    head = {"apiVersion": "edgespec/v1", "kind": "Project", "name": "bench", **target}
    (project / "edgespec.yaml").write_text(yaml.safe_dump(head))
    for i in range(count):
        (project / "specs" / f"m{i}.yaml").write_text(yaml.safe_dump(tiny_spec(f"m{i}"), sort_keys=False))
    try:
        run(project, "plan")  # starts the edge and fills the cache of digests
        walls, cpus = [], []
        for _ in range(3):
            before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            run(project, "plan", "--json")
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            walls.append(time.perf_counter() - start)
            cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    finally:
        run(project, "edge", "down")
    return {"wall_s": statistics.median(walls), "cpu_s": statistics.median(cpus)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="Write the figures to this file.")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--specs", type=int, nargs="*", default=[1, 100, 1000])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        serving = measure_serving(folder, options.requests)
        plans = {n: measure_plan(folder, n) for n in options.specs}
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    result: dict[str, Any] = {"machine": machine, "serving": serving, "plan": plans}
    print("| MiniLM int8 in workerd | |\n|---|---|")
    for key, value in serving.items():
        print(f"| {key} | {value:.1f} |")
    print("\n| specs | plan, wall s | plan, CPU s |\n|---|---|---|")
    for n, figures in plans.items():
        print(f"| {n} | {figures['wall_s']:.2f} | {figures['cpu_s']:.2f} |")
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
