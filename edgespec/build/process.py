"""Tools as processes of their own: a group that is stopped whole, output streamed into a log and to a reader."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

GRACE: Final = 5.0
"""Seconds between SIGINT, SIGTERM and SIGKILL."""
_READ: Final = 65536
_POLL: Final = 0.5
_GROUPS: Final[set[int]] = set()
"""Of the tools that run now."""
_LINE_END: Final = re.compile(rb"[\r\n]+")
_LONGEST: Final = 1 << 20
"""Bytes of a line that never ends, after which it is cut."""


def run_tool(
    command: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    log: Path,
    on_line: Callable[[str], None],
    grace: float = GRACE,
) -> int:
    """Runs a command to its end and gives its exit code, negative for a signal.

    Output of both kinds goes to `log` as it comes and line by line to `on_line`; a progress bar's redrawing is a line
    too. Whatever ends the reading here (ctrl-C, an error that `on_line` raises) ends the tool with everything that it
    started, and goes on to the caller. So does the tool's own end: no process of its group is left.
    """
    with log.open("ab") as sink:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        _GROUPS.add(process.pid)
        try:
            _stream(process, sink, on_line)
            code = process.wait()
        except BaseException:
            stop_group(process, grace)
            raise
        finally:
            _signal(process.pid, signal.SIGKILL)  # what the tool itself left behind
            _GROUPS.discard(process.pid)
            if process.stdout is not None:
                process.stdout.close()
    return code


def _stream(process: subprocess.Popen[bytes], sink: IO[bytes], on_line: Callable[[str], None]) -> None:
    """Until the output ends, or the tool does: a process that it left behind may hold the pipe open for ever."""
    output = process.stdout
    if output is None:
        raise TypeError("the output is no pipe")
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while True:
            if not selector.select(_POLL):
                if process.poll() is not None:
                    break
                continue
            # The descriptor gives what is there; the buffered file would wait for a full buffer.
            if not (data := os.read(output.fileno(), _READ)):
                break
            sink.write(data)
            sink.flush()
            *lines, rest = _LINE_END.split(rest + data)
            if len(rest) > _LONGEST:
                lines, rest = [*lines, rest], b""
            _tell(lines, on_line)
    _tell([rest], on_line)


def _tell(lines: Sequence[bytes], on_line: Callable[[str], None]) -> None:
    for line in lines:
        if line.strip():
            on_line(line.decode("utf-8", "replace"))


def stop_group(process: subprocess.Popen[bytes], grace: float = GRACE) -> None:
    """SIGINT, then SIGTERM, then SIGKILL to the whole group; back when the tool is gone. A second ctrl-C hurries."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            if not _signal(process.pid, number):
                break
            if _ended(process, grace):
                break
    except KeyboardInterrupt:
        pass
    _signal(process.pid, signal.SIGKILL)
    process.wait()


def end_listener(process: subprocess.Popen[str]) -> None:
    """Ends a process that answers on its standard output what it is told on its standard input: it stops when nothing
    more can come, and is killed where it does not."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def end_all() -> None:
    """Kill every tool that runs, for a process that ends without coming back to those that wait for them."""
    for group in tuple(_GROUPS):
        _signal(group, signal.SIGKILL)


def _ended(process: subprocess.Popen[bytes], grace: float) -> bool:
    """Whether the whole group ended in time: its leader may end before those that it started."""
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline:
        process.poll()
        if not _signal(process.pid, 0):
            return True
        time.sleep(0.05)
    return False


def _signal(group: int, number: int) -> bool:
    """False when nobody of the group is left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # PermissionError: macOS, for a group of zombies
        os.killpg(group, number)
        return True
    return False
