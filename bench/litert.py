"""LiteRT for bench/engine.py: LiteRT.js from npm, and .tflite files by Google's converter from PyPI.

Both are fetched into a cache folder of their own, once (some 2.5 GB; torch is the CPU's). What cannot be had leaves the
columns empty, with the reason: nothing here raises.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgespec.build.weights import Tensors
from edgespec.diagnostics import EdgespecError
from edgespec.local_edge.node import find_node

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "edgespec-bench" / "litert-2.5.3"
PACKAGE = "@litertjs/core@2.5.3"
PINS = ("litert-torch==0.10.0", "ai-edge-litert==2.3.0", "ai-edge-quantizer==0.10.0")
TORCH = "torch==2.13.0"
"""Before the rest, which would take a build for CUDA."""
CONVERTER = Path(__file__).with_name("litert_convert.py")


@dataclass(frozen=True)
class LiteRt:
    packages: Path | None
    """LiteRT.js's node_modules."""
    why: str = ""
    """there is none."""


def prepare(models: Mapping[str, tuple[int, Tensors]], lengths: tuple[int, ...], folder: Path) -> LiteRt:
    """Writes NAME.LENGTH.tflite into the folder; models: name -> (heads, tensors)."""
    try:
        packages, python = _javascript(), _converter()
        for name, (heads, tensors) in models.items():
            found = {n.removeprefix("bert."): tensors.get(n) for n in tensors.names() if not n.endswith("position_ids")}
            np.savez(folder / f"{name}.npz", heads=np.int64(heads), **found)
        _call("converting to .tflite", python, CONVERTER, folder, *map(str, lengths))
    except (OSError, EdgespecError, _FailedError) as why:
        return LiteRt(None, str(why))
    return LiteRt(packages)


class _FailedError(Exception):
    pass


def _call(what: str, *command: str | Path) -> None:
    print(f"LiteRT: {what} ...", file=sys.stderr)
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["nothing was said"]
        raise _FailedError(f"{what}: {lines[-1]}")


def _javascript() -> Path:
    packages = CACHE / "npm" / "node_modules"
    if not (packages / "@litertjs/core/wasm/litert_wasm_internal.wasm").is_file():
        node = find_node()
        _call(f"installing {PACKAGE}", *node.npm, "install", "--prefix", CACHE / "npm", "--no-audit", "--no-fund",
              "--ignore-scripts", PACKAGE)  # fmt: skip
    return packages


def _converter() -> Path:
    """The Python of a venv that has the converter."""
    venv = CACHE / "venv"
    python = venv / "bin" / "python"
    mark = venv / "complete"
    pins = "\n".join((TORCH, *PINS))
    if not mark.is_file() or mark.read_text() != pins:
        pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        _call("making a venv for the converter", sys.executable, "-m", "venv", "--clear", venv)
        _call("installing pip", *pip, "--upgrade", "pip")
        _call(f"installing {TORCH}", *pip, TORCH)
        _call(f"installing {' '.join(PINS)}", *pip, TORCH, *PINS)
        mark.write_text(pins)
    return python
