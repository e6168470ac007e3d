"""Build the edge engine: `python build.py`, `--check` asks whether dist/ is fresh, `--profile` adds run_one().

Two modules of the same sources: edge-relaxed.wasm uses relaxed SIMD, edge-simd.wasm does not. The compiler is zig's
clang from PyPI (`ziglang`); the same compiler and sources give the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent
DIST = ROOT / "dist"
COMPILER = "0.17.1"
MODULES = {"edge-relaxed.wasm": ["-mrelaxed-simd", "-DRELAXED=1"], "edge-simd.wasm": ["-DRELAXED=0"]}
FLAGS = [
    *("-target", "wasm32-freestanding", "-std=c11", "-O3", "-Wall", "-Wextra", "-Werror", "-Wno-cast-function-type"),
    *("-msimd128", "-mbulk-memory", "-fno-exceptions", "-fno-sanitize=all", "-fno-stack-protector", "-nostdlib"),
    # Loops of unknown length stay as written: unrolled they would be 3 kB more and no faster.
    *("-mllvm", "-unroll-runtime=false"),
    *("-ffp-contract=off", "-Wl,--no-entry", "-Wl,-z,stack-size=16384", "-Wl,--strip-all"),
]
LARGEST = 64 * 1024


def sources() -> list[Path]:
    return sorted([*ROOT.glob("*.c"), *ROOT.glob("*.h"), ROOT / "build.py"])


def source_digest() -> str:
    """Over the name and the bytes of everything that decides what dist/ is."""
    digest = hashlib.sha256()
    for path in sources():
        digest.update(f"{path.name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def compile_module(target: Path, flags: list[str]) -> None:
    units = [path.name for path in sources() if path.suffix == ".c"]
    command = [sys.executable, "-m", "ziglang", "cc", *FLAGS, *flags, *units, "-o", str(target)]
    subprocess.run(command, cwd=ROOT, check=True)


def build(folder: Path, extra: list[str]) -> list[dict[str, object]]:
    """The modules in `folder`, and what manifest.json says of each."""
    listed: list[dict[str, object]] = []
    for name, flags in MODULES.items():
        target = folder / name
        compile_module(target, [*flags, *extra])
        data = target.read_bytes()
        if len(data) > LARGEST:
            raise SystemExit(f"{name} has {len(data)} bytes: more than {LARGEST}")
        print(f"{name} {len(data)} bytes, {len(gzip.compress(data, 9, mtime=0))} in gzip")
        listed.append({"name": name, "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)})
    return listed


def staleness() -> str | None:
    """Why dist/ is not what the sources make, or None."""
    try:
        manifest = json.loads((DIST / "manifest.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return "worker_runtime/engine/dist is not built"
    if manifest["source_digest"] != source_digest():
        return "worker_runtime/engine/dist was built from other sources"
    for one in manifest["files"]:
        path = DIST / one["name"]
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != one["sha256"]:
            return f"worker_runtime/engine/dist/{one['name']} is not what was built"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--check", action="store_true", help="only say whether dist/ is fresh")
    parser.add_argument("--profile", metavar="FOLDER", type=Path, help="build there, with run_one(), instead of dist/")
    arguments = parser.parse_args()
    if arguments.check:
        reason = staleness()
        if reason is not None:
            print(f"{reason}: run `python worker_runtime/engine/build.py`", file=sys.stderr)
        return int(reason is not None)
    if arguments.profile is not None:
        arguments.profile.mkdir(parents=True, exist_ok=True)
        build(arguments.profile, ["-DPROFILE=1"])
        return 0
    with tempfile.TemporaryDirectory(dir=ROOT) as folder:
        files = build(Path(folder), [])
        DIST.mkdir(exist_ok=True)
        (DIST / "manifest.json").unlink(missing_ok=True)
        for one in files:
            (Path(folder) / str(one["name"])).replace(DIST / str(one["name"]))
    text = json.dumps({"files": files, "source_digest": source_digest()}, indent=2)
    (DIST / "manifest.json").write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
