"""A local edge for one measurement: a folder and ports of its own, workerd's inspector open on loopback (edge)."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgespec.diagnostics import EdgespecError, error
from edgespec.local_edge.edge import Endpoint, LocalEdge

_PREFIX: Final = "edgespec-bench-"


@dataclass(frozen=True, slots=True)
class Running:
    endpoint: Endpoint
    inspector: str
    """The inspector's base address."""
    process: int
    """workerd's pid."""
    workerd: str
    """workerd's version."""


class TemporaryEdge:
    """`restart` gives fresh isolates; what was deployed stays."""

    def __init__(self, folder: Path, sources: Path, cache_dir: Path) -> None:
        self._folder = folder
        self._sources = sources
        self._cache_dir = cache_dir
        self._edge: LocalEdge | None = None

    def restart(self) -> Running:
        self.stop()
        port = _free_port()
        edge = LocalEdge(
            self._folder,
            port=0,
            sources=self._sources,
            cache_dir=self._cache_dir,
            progress=lambda _: None,
            inspector_port=port,
        )
        self._edge = edge
        endpoint = edge.up()
        status = edge.status()
        pids = sorted(self._folder.glob("run/workerd/*"), key=lambda p: p.stat().st_mtime)
        if status is None or not pids:
            raise EdgespecError(error("ES411", "Measuring failed", f"The local edge ended; see {edge.log_path}."))
        return Running(endpoint, f"http://127.0.0.1:{port}", int(pids[-1].name), status.workerd)

    def stop(self) -> None:
        if self._edge is not None:
            self._edge.down()


@contextlib.contextmanager
def temporary_edge(sources: Path, cache_dir: Path, say: Callable[[str], None]) -> Iterator[TemporaryEdge]:
    """Nothing is left of it at the end, however that comes; where stopping it fails, its folder stays for its log."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    say(f"Measuring in a local edge of its own ({folder}) ...")
    edge = TemporaryEdge(folder, sources, cache_dir)
    try:
        yield edge
    finally:
        edge.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
