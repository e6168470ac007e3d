"""Steps in processes of their own on this machine, a few at a time.

A process for each step keeps what one sets (threads, seeds, a library's global state) from the next, and can be ended
with everything that it started. When this process dies, its workers notice and end too.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from typing import IO, Any, Final, Self

from edgespec.build.events import BuildEvent
from edgespec.build.executor import Finished, Happening, Said, Task
from edgespec.build.problems import problem
from edgespec.build.worker import decode_problems
from edgespec.threads import take

GRACE: Final = 15.0
"""Seconds for a step to stop its own tools, before it is killed."""
_TAIL: Final = 2000
"""Characters of a dead process's last words."""


@dataclass(slots=True)
class _Running:
    process: subprocess.Popen[str]
    errors: IO[bytes]
    reader: threading.Thread


class LocalExecutor:
    """At most `parallel` steps at once."""

    def __init__(self, parallel: int) -> None:
        self.slots: int | None = parallel
        self._running: dict[str, _Running] = {}
        self._happenings: queue.SimpleQueue[Happening] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for running in self._running.values():
            _signal(running.process, signal.SIGTERM)
        for running in self._running.values():
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    running.process.wait(GRACE)
            finally:
                _kill(running.process)
            _close(running)
        self._running.clear()

    def check(self, tasks: object) -> None:
        """Whether this machine is large enough shows when a step runs."""

    def submit(self, task: Task) -> None:
        errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
        process = subprocess.Popen(
            [sys.executable, "-m", "edgespec.build.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
            start_new_session=True,  # ctrl-C comes here alone, and from here to the steps
        )
        reader = threading.Thread(target=self._read, args=(task, process, errors), daemon=True)
        self._running[task.id] = _Running(process, errors, reader)
        reader.start()
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it died at once: the reader says so
                process.stdin.write(task.request.encode() + "\n")
                process.stdin.flush()

    def next(self) -> Happening:
        happening = take(self._happenings)
        if isinstance(happening, Finished):
            running = self._running.pop(happening.task)
            _kill(running.process)  # also what a step may have left behind
            _close(running)
        return happening

    def _read(self, task: Task, process: subprocess.Popen[str], errors: IO[bytes]) -> None:
        finished: Finished | None = None
        for line in process.stdout or ():
            document: dict[str, Any] = json.loads(line)
            if "said" in document:
                self._happenings.put(Said(task.id, BuildEvent(**document["said"])))
            else:
                finished = Finished(task.id, decode_problems(document["finished"]))
        code = process.wait()
        self._happenings.put(finished or Finished(task.id, (_death(task, code, errors),)))


def _death(task: Task, code: int, errors: IO[bytes]) -> Any:
    errors.seek(0, os.SEEK_END)
    errors.seek(max(0, errors.tell() - _TAIL))
    words = errors.read().decode("utf-8", "replace").strip()
    if code == -signal.SIGKILL:
        how = "was killed, most likely because memory ran out. Build fewer models at once with --parallel"
    elif code < 0:
        how = f"was ended by {signal.Signals(-code).name}"
    else:
        how = f"ended with exit code {code}"
    last = f" Its last words:\n{words}" if words else ""
    return problem("ES588", f"{task.title} {how}. Nothing of it was kept.{last}")


def _signal(process: subprocess.Popen[str], number: int) -> None:
    if process.poll() is None:
        process.send_signal(number)


def _kill(process: subprocess.Popen[str]) -> None:
    """The whole group: a step's tools that are still there, too."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _close(running: _Running) -> None:
    running.reader.join()
    for stream in (running.process.stdin, running.process.stdout, running.errors):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()
