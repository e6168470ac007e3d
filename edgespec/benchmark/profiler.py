"""worker_runtime/local-edge/profile.mjs as a process: a call goes in, its answer comes out (edge)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

from edgespec.build.process import end_listener
from edgespec.diagnostics import EdgespecError, error
from edgespec.local_edge.node import find_node


class Profiler:
    """Starts Node; use it as a context manager. Every call raises EdgespecError (ES411) with what went wrong."""

    def __init__(self, sources: Path) -> None:
        self._process = subprocess.Popen(
            [str(find_node().path), str(sources / "profile.mjs")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> Profiler:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None) -> None:
        end_listener(self._process)

    def call(self, op: str, **arguments: Any) -> dict[str, Any]:
        """One call of profile.mjs; its header says which there are."""
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise TypeError("the profiler was started without pipes")
        try:
            stdin.write(json.dumps({"op": op, **arguments}) + "\n")
            stdin.flush()
            line = stdout.readline()
        except OSError:
            line = ""
        answer = json.loads(line) if line else {"error": "the profiler's process ended"}
        if "error" in answer:
            raise EdgespecError(error("ES411", "Measuring failed", f"{answer['error']}."))
        return dict(answer)
