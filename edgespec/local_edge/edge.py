"""One project's local edge: start it, find it, stop it (edge)."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import Struct

from edgespec.diagnostics import Diagnostic, EdgespecError, error
from edgespec.local_edge.install import installed
from edgespec.local_edge.lockfile import locked
from edgespec.local_edge.node import find_node
from edgespec.local_edge.processes import is_running, started_at, stop, wait_gone
from edgespec.secret import Secret

HOST = "127.0.0.1"
LOG_BYTES = 5 * 1024 * 1024
START_S = 60.0
STOP_S = 15.0
_PORT_TAKEN = 98
"""What main.mjs ends with when it cannot have its port."""
_PORTS = 5
"""Tried before giving up, where any will do."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a running edge answers, and what opens it."""

    base_url: str
    account_id: str
    port: int
    api_token: Secret
    access_key_id: str = field(repr=False)
    secret_access_key: Secret

    @property
    def api_base_url(self) -> str:
        """The base URL of Cloudflare's v4 API."""
        return f"{self.base_url}/client/v4"

    @property
    def s3_base_url(self) -> str:
        """Add `/<jurisdiction>` for an S3 endpoint: default, eu, us or fedramp."""
        return f"{self.base_url}/s3"


class EdgeStatus(Struct, frozen=True):
    """What a running edge says about itself."""

    pid: int
    port: int
    version: str
    workerd: str
    uptime_s: int
    scripts: tuple[str, ...]
    buckets: tuple[str, ...]
    namespaces: tuple[str, ...]


class _Running(Struct, frozen=True):
    pid: int
    started: str
    port: int


class LocalEdge:
    """The edge whose state is `state_dir`. Nothing starts until `up` or `ensure`.

    `port` 0 means a free one, chosen once and remembered in the state folder. `sources` is the folder of
    the edge's modules, `cache_dir` takes their Node packages when `sources` has none. `inspector_port` opens
    workerd's inspector on loopback, for profilers: anyone on this machine can then run code in the Workers.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        port: int,
        sources: Path,
        cache_dir: Path,
        progress: Callable[[str], None],
        inspector_port: int | None = None,
    ) -> None:
        self._dir = state_dir.resolve()
        self._port = port
        self._sources = sources
        self._cache_dir = cache_dir
        self._progress = progress
        self._inspector_port = inspector_port

    @property
    def log_path(self) -> Path:
        return self._dir / "edge.log"

    def ensure(self) -> Endpoint:
        """The running edge's endpoint; starts it when it is not running. A few milliseconds when it is."""
        return self._healthy() or self.up()

    def up(self) -> Endpoint:
        """Starts the edge, or finds it running. Two callers at once start one.

        Raises ES605 when the port is taken, ES606 when the process ends or does not answer, and what
        `find_node` and `installed` raise. On failure no process is left.
        """
        _private_folder(self._dir)
        with locked(self._dir / "start.lock"):
            endpoint = self._healthy()
            if endpoint is not None:
                return endpoint
            self._stop_running()
            credentials = self._credentials()
            port = self._free_port()
            node = find_node()
            home = installed(self._sources, self._cache_dir, node, self._progress)
            command = [str(node.path), str(home / "main.mjs"), "--dir", str(self._dir)]
            if self._inspector_port is not None:
                command += ["--inspector-port", str(self._inspector_port)]
            for left in reversed(range(_PORTS)):
                self._progress(f"Starting the local edge on {HOST}:{port} ...")
                try:
                    self._start([*command, "--port", str(port)], port)
                    break
                except _PortTakenError:  # between the look and the start
                    if self._port or not left:
                        raise EdgespecError(_port_taken(port, self._dir)) from None
                    port = self._any_port()
            return _endpoint(credentials, port)

    def down(self) -> bool:
        """Stops the edge and waits until it is gone; its state stays. False when it was not running."""
        if not self._dir.is_dir():
            return False
        with locked(self._dir / "start.lock"):
            return self._stop_running()

    def status(self) -> EdgeStatus | None:
        """What the running edge says, or None when there is none that answers."""
        running = self._running()
        if running is None:
            return None
        answer = self._ask(running)
        if answer is None:
            return None
        return EdgeStatus(
            pid=running.pid,
            port=running.port,
            version=str(answer["version"]),
            workerd=str(answer["workerd"]),
            uptime_s=int(answer["uptime_s"]),
            scripts=tuple(answer["scripts"]),
            buckets=tuple(answer["buckets"]),
            namespaces=tuple(answer["namespaces"]),
        )

    # --- what runs ---------------------------------------------------------------------------------------

    def _running(self) -> _Running | None:
        record = _read_json(self._dir / "edge.json")
        if record is None:
            return None
        try:
            running = _Running(int(record["pid"]), str(record["started"]), int(record["port"]))
        except (KeyError, TypeError, ValueError):
            return None
        return running if is_running(running.pid, running.started) else None

    def _healthy(self) -> Endpoint | None:
        running = self._running()
        credentials = _read_json(self._dir / "credentials.json")
        if running is None or credentials is None or (self._port and running.port != self._port):
            return None
        try:
            # Its record is verified by start time; that it still accepts connections is the rest.
            with socket.create_connection((HOST, running.port), timeout=5):
                return _endpoint(credentials, running.port)
        except OSError:
            return None

    def _ask(self, running: _Running) -> dict[str, Any] | None:
        import httpx  # here: a plan finds an edge that runs without asking it

        from edgespec.web import trust

        credentials = _read_json(self._dir / "credentials.json") or {}
        headers = {"authorization": f"Bearer {credentials.get('api_token', '')}"}
        url = f"http://{HOST}:{running.port}/edge/status"
        try:
            with httpx.Client(trust_env=False, timeout=10, verify=trust(url)) as client:
                answer = client.get(url, headers=headers)
        except httpx.HTTPError:
            return None
        if answer.status_code != httpx.codes.OK:
            return None
        value: dict[str, Any] = answer.json()
        return value if value.get("pid") == running.pid else None

    def _stop_running(self) -> bool:
        running = self._running()
        stopped = running is not None and stop(running.pid, running.started, grace_s=STOP_S)
        (self._dir / "edge.json").unlink(missing_ok=True)
        return stopped

    # --- starting ----------------------------------------------------------------------------------------

    def _credentials(self) -> dict[str, str]:
        path = self._dir / "credentials.json"
        known = _read_json(path)
        if known is not None:
            return {key: str(value) for key, value in known.items()}
        token = secrets.token_urlsafe(30)
        made = {
            "api_token": token,
            "access_key_id": secrets.token_hex(16),
            # As R2 does: the secret is the SHA-256 of the API token, so that one client serves both.
            "secret_access_key": hashlib.sha256(token.encode()).hexdigest(),
            "account_id": secrets.token_hex(16),
        }
        _write_private(path, json.dumps(made))
        return made

    def _free_port(self) -> int:
        remembered = self._dir / "port"
        port = self._port
        if port == 0 and remembered.is_file():
            text = remembered.read_text("utf-8").strip()
            port = int(text) if text.isdigit() and _can_bind(int(text)) else 0
        if port == 0:
            return self._any_port()
        if not _can_bind(port):
            raise EdgespecError(_port_taken(port, self._dir))
        return port

    def _any_port(self) -> int:
        port = _unused_port()
        _write_private(self._dir / "port", str(port))
        return port

    def _start(self, command: list[str], port: int) -> None:
        if self.log_path.is_file() and self.log_path.stat().st_size > LOG_BYTES:
            self.log_path.replace(self.log_path.with_suffix(".log.1"))
        handle = os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        begin = os.fstat(handle).st_size
        try:
            process = subprocess.Popen(
                command,
                cwd=self._dir,
                stdin=subprocess.DEVNULL,
                stdout=handle,
                stderr=handle,
                env=_clean_environment(),
                start_new_session=sys.platform != "win32",
            )
        finally:
            os.close(handle)
        started = started_at(process.pid)
        try:
            self._wait_ready(process, port, begin)
        except BaseException:
            # Also on Ctrl-C: what was started here and is not ready is nobody's.
            process.terminate()
            if not wait_gone(process.pid, started, seconds=STOP_S):
                process.kill()
            process.wait()
            raise
        # The edge outlives this process on purpose; without this, Popen warns about it when collected.
        process.returncode = 0

    def _wait_ready(self, process: subprocess.Popen[bytes], port: int, log_begin: int) -> None:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if process.poll() is not None:
                if process.returncode == _PORT_TAKEN:
                    raise _PortTakenError
                raise EdgespecError(_not_started(f"it ended with code {process.returncode}", self.log_path, log_begin))
            running = self._running()
            if running is not None and running.pid == process.pid and running.port == port and self._ask(running):
                return
            time.sleep(0.03)
        raise EdgespecError(_not_started(f"it did not answer within {START_S:.0f} s", self.log_path, log_begin))


class _PortTakenError(Exception):
    """Somebody else took the port before the edge did."""


def _clean_environment() -> dict[str, str]:
    """The environment without what would change how Node or workerd run, and without anyone's Cloudflare keys."""
    dropped = ("CLOUDFLARE_", "CF_", "AWS_", "MINIFLARE_", "WRANGLER_", "NODE_OPTIONS", "VSCODE_INSPECTOR_OPTIONS")
    wanted = ("MINIFLARE_WORKERD_V8_FLAGS",)
    kept = {n: value for n, value in os.environ.items() if n in wanted or not n.startswith(dropped)}
    return {**kept, "NO_COLOR": "1"}


def _endpoint(credentials: dict[str, Any], port: int) -> Endpoint:
    return Endpoint(
        base_url=f"http://{HOST}:{port}",
        account_id=str(credentials["account_id"]),
        port=port,
        api_token=Secret("of the local edge", str(credentials["api_token"])),
        access_key_id=str(credentials["access_key_id"]),
        secret_access_key=Secret("of the local edge (as R2's key)", str(credentials["secret_access_key"])),
    )


def _private_folder(path: Path) -> None:
    """For its owner's eyes, and kept out of git: it holds credentials, and the project is a repository."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.chmod(0o700)
    ignore = path / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")


def _write_private(path: Path, text: str) -> None:
    """Replaces a file whole, readable by its owner only."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _can_bind(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        if sys.platform != "win32":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError):
            return False
    return True


def _unused_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _port_taken(port: int, state_dir: Path) -> Diagnostic:
    owner = _other_edge(port)
    if owner and owner != str(state_dir):
        who = f"The local edge of another project ({owner}) has it."
    else:
        who = "Another program has it."
    return error(
        "ES605",
        "the local edge's port is in use",
        f"Port {port} of {HOST} cannot be taken. {who} "
        "Choose another with `environments.local.target.port` in edgespec.yaml (0 takes a free one), "
        "or stop the other.",
    )


def _other_edge(port: int) -> str | None:
    """The state folder of the edge on that port; it tells anyone on this machine, without a token."""
    import httpx

    from edgespec.web import trust

    url = f"http://{HOST}:{port}/edge/whoami"
    try:
        with httpx.Client(trust_env=False, timeout=2, verify=trust(url)) as client:
            answer = client.get(url)
            value = answer.json() if answer.status_code == httpx.codes.OK else {}
    except (httpx.HTTPError, ValueError):
        return None
    owner = value.get("dir") if isinstance(value, dict) else None
    return owner if isinstance(owner, str) else None


def _not_started(why: str, log_path: Path, log_begin: int) -> Diagnostic:
    with log_path.open("rb") as log:
        log.seek(log_begin)
        lines = log.read().decode("utf-8", "replace").strip().splitlines()[-10:]
    shown = "\n".join(f"  {line[:400]}" for line in lines) or "  (nothing)"
    return error(
        "ES606", "the local edge did not start", f"After its start {why}. Its log {log_path} ends with:\n{shown}"
    )
