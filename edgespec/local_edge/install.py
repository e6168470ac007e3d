"""The local edge's sources with their Node packages beside them (edge)."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from edgespec.diagnostics import Diagnostic, EdgespecError, error
from edgespec.local_edge.lockfile import locked
from edgespec.local_edge.node import Node

Progress = Callable[[str], None]


def installed(sources: Path, cache_dir: Path, node: Node, progress: Progress) -> Path:
    """A folder with `main.mjs` and a `node_modules` that matches the lock.

    That is `sources` itself in a checkout whose packages are installed. Otherwise the sources are copied to
    `<cache_dir>/local-edge/<digest of sources and lock>` and their packages installed there, once: in a
    temporary folder that is renamed when complete, so a crash leaves nothing that looks installed.
    Raises ES603 when the sources are not there and ES604 when npm fails.
    """
    files = source_files(sources)
    if _matches_lock(sources):
        return sources
    home = cache_dir / "local-edge"
    target = home / _digest(files)
    if target.is_dir():
        return target
    with locked(home / "install.lock"):
        if not target.is_dir():
            _install(files, target, node, progress)
    return target


def source_files(sources: Path) -> tuple[Path, ...]:
    """The files that make the local edge: its modules, its package.json and its lock."""
    needed = [sources / name for name in ("main.mjs", "package.json", "package-lock.json")]
    missing = [path.name for path in needed if not path.is_file()]
    if missing:
        raise EdgespecError(
            error(
                "ES603",
                "the local edge's sources are incomplete",
                f"{sources} has no {', '.join(missing)}. This installation of edgespec is damaged: reinstall it.",
            )
        )
    return (*sorted(sources.glob("*.mjs")), *needed[1:])


def _digest(files: tuple[Path, ...]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:32]


def _matches_lock(folder: Path) -> bool:
    """Whether npm's record of what it installed names every package of the lock that this system needs."""
    record = folder / "node_modules" / ".package-lock.json"
    if not record.is_file():
        return False
    try:
        have = json.loads(record.read_text("utf-8"))["packages"]
        want = json.loads((folder / "package-lock.json").read_text("utf-8"))["packages"]
    except (ValueError, KeyError):
        return False
    needed = {
        name: entry for name, entry in want.items() if name and not entry.get("optional") and not entry.get("dev")
    }
    return all(have.get(name, {}).get("version") == entry.get("version") for name, entry in needed.items())


def _install(files: tuple[Path, ...], target: Path, node: Node, progress: Progress) -> None:
    progress("Installing the local edge's Node packages (once, about 175 MB on disk) ...")
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".installing-", dir=target.parent))
    try:
        for path in files:
            shutil.copyfile(path, work / path.name)
        # No install script is needed: workerd's only copies its binary over a small launcher.
        command = [*node.npm, "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        environment = {**os.environ, "PATH": f"{node.path.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
        done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise EdgespecError(_failed(done.stderr or done.stdout))
        work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    progress("Installed the local edge's Node packages.")


def _failed(output: str) -> Diagnostic:
    tail = "\n".join(output.strip().splitlines()[-8:])
    return error(
        "ES604",
        "the local edge's Node packages could not be installed",
        f"npm said:\n{tail}\nIt needs a registry: check the network or npm's settings (`npm config get registry`), "
        "and run the command again.",
    )
