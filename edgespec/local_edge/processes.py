"""Processes by pid and start time, so that a number that was used again is never mistaken (edge)."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path


def started_at(pid: int) -> str:
    """The token that `processes.mjs` records for a process, or "" when it is not there (or is a zombie)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except OSError:
        if Path("/proc/self/stat").exists():
            return ""
        done = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)  # noqa: S607
        return done.stdout.strip()
    fields = stat[stat.rindex(")") + 2 :].split(" ")
    return "" if fields[0] in ("Z", "X") else fields[19]


def is_running(pid: int, started: str) -> bool:
    return bool(started) and started_at(pid) == started


def stop(pid: int, started: str, *, grace_s: float) -> bool:
    """Ends exactly the recorded process: asks, waits, then kills. False when it was not there any more."""
    if not is_running(pid, started):
        return False
    os.kill(pid, signal.SIGTERM)
    if wait_gone(pid, started, seconds=grace_s):
        return True
    if is_running(pid, started):
        os.kill(pid, signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
        wait_gone(pid, started, seconds=grace_s)
    return True


def wait_gone(pid: int, started: str, *, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not is_running(pid, started):
            return True
        time.sleep(0.02)
    return not is_running(pid, started)
