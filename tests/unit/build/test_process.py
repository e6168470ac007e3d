"""The runner of tools, on small scripts that behave as tools do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from edgespec.build.process import run_tool

Run = Callable[..., int]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def start(script: str, *, on_line: Callable[[str], None] = lambda _: None, grace: float = 5.0) -> int:
        file = tmp_path / "tool.py"
        file.write_text(textwrap.dedent(script))
        return run_tool(
            [sys.executable, str(file)],
            folder=tmp_path,
            environment=dict(os.environ),
            log=tmp_path / "tool.log",
            on_line=on_line,
            grace=grace,
        )

    return start


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def wait_until_dead(pid: int) -> None:
    for _ in range(400):
        if not alive(pid):
            return
        time.sleep(0.025)
    raise AssertionError(f"process {pid} still runs")


def test_output_is_logged_and_read_line_by_line(run: Run, tmp_path: Path) -> None:
    lines: list[str] = []
    code = run(
        r"""
        import sys
        sys.stdout.write("one\n\rbar 1\rbar 2\r"); sys.stdout.flush()
        sys.stderr.write("to the errors\n")
        sys.stderr.flush()
        sys.stdout.write("\u00e9 without an end")
        sys.exit(3)
        """,
        on_line=lines.append,
    )
    assert code == 3
    assert lines == ["one", "bar 1", "bar 2", "to the errors", "é without an end"]
    assert (tmp_path / "tool.log").read_bytes().startswith(b"one\n\rbar 1\r")


def test_bytes_that_are_no_text_do_not_stop_it(run: Run) -> None:
    lines: list[str] = []
    assert run('import sys; sys.stdout.buffer.write(b"\\xff\\xfe here\\n")', on_line=lines.append) == 0
    assert lines == ["\ufffd\ufffd here"]


def test_a_tool_that_dies_by_a_signal(run: Run) -> None:
    assert run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)") == -signal.SIGKILL


FAMILY = """
    import signal, subprocess, sys, time
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    print(child.pid, flush=True)
"""


def test_nothing_that_the_tool_started_outlives_it(run: Run) -> None:
    """Not even a process that holds the pipe open after the tool is gone."""
    lines: list[str] = []
    assert run(FAMILY, on_line=lines.append) == 0
    wait_until_dead(int(lines[0]))


def test_an_error_of_the_reader_stops_the_whole_group(run: Run) -> None:
    pids: list[int] = []

    def read(line: str) -> None:
        pids.append(int(line))
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        run(FAMILY + "    time.sleep(300)\n", on_line=read)
    wait_until_dead(pids[0])


@pytest.mark.parametrize("deaf", [(), ("SIGINT",), ("SIGINT", "SIGTERM")])
def test_ctrl_c_stops_the_group_even_when_it_is_deaf(run: Run, deaf: tuple[str, ...]) -> None:
    pids: list[int] = []

    def read(line: str) -> None:
        if line.isdigit():
            pids.append(int(line))
            raise KeyboardInterrupt

    ignore = "".join(f"    signal.signal(signal.{name}, signal.SIG_IGN)\n" for name in deaf)
    script = "    import os, signal, subprocess, sys, time\n" + ignore
    script += '    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])\n'
    script += "    print(os.getpid(), flush=True)\n    time.sleep(300)\n"
    with pytest.raises(KeyboardInterrupt):
        run(script, on_line=read, grace=0.5)
    wait_until_dead(pids[0])


def test_the_tool_may_tidy_up_on_ctrl_c(run: Run, tmp_path: Path) -> None:
    def read(line: str) -> None:
        if line == "ready":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(
            """
            import pathlib, time
            try:
                print("ready", flush=True)
                time.sleep(300)
            except KeyboardInterrupt:
                pathlib.Path("tidied").touch()
            """,
            on_line=read,
        )
    assert (tmp_path / "tidied").exists()


def test_a_real_signal_to_the_parent(tmp_path: Path) -> None:
    """As a terminal sends it: the tool is in a group of its own, so the parent must pass it on."""
    tool = tmp_path / "tool.py"
    tool.write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(300)\n")
    parent = tmp_path / "parent.py"
    parent.write_text(
        textwrap.dedent(
            f"""
            import os, signal, sys
            from pathlib import Path
            from edgespec.build.process import run_tool
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                run_tool([sys.executable, {str(tool)!r}], folder=Path({str(tmp_path)!r}), environment=dict(os.environ),
                         log=Path({str(tmp_path / "log")!r}), on_line=lambda line: print(line, flush=True))
            except KeyboardInterrupt:
                print("stopped", flush=True)
            """
        )
    )
    process = subprocess.Popen([sys.executable, str(parent)], stdout=subprocess.PIPE, text=True)
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline().strip() == "stopped"
        assert process.wait() == 0
    finally:
        watchdog.cancel()
        process.kill()
        process.stdout.close()
    wait_until_dead(pid)
