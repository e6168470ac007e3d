"""Steps as tasks of a Ray cluster, with the CPUs, memory and GPUs that each stage asks for.

Workers need edgespec, the project's folder and, for results, either the build cache's folder (a file system that all
share) or the shared cache of `build: {cache: ...}`. RAY_ADDRESS says which cluster; without it Ray is started on this
machine for as long as the build takes. Ray itself retries nothing: a step that fails once fails again.
"""

from __future__ import annotations

import os
import secrets
import socket
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from edgespec.build.cache import Cache, default_cache_dir, write_atomically
from edgespec.build.events import BuildEvent
from edgespec.build.executor import Finished, Happening, Request, Said, Task, perform
from edgespec.build.problems import fail, problem
from edgespec.build.remote import RemoteCache
from edgespec.build.worker import decode_problems, encode_problems
from edgespec.diagnostics import EdgespecError
from edgespec.records import as_dict, replace
from edgespec.spec.units import format_size

POLL: Final = 0.2
"""Seconds between two looks at what the steps say."""
CONNECT_TIMEOUT: Final = 15.0
"""Seconds."""
OpenRemote = Callable[[], RemoteCache]
"""Opens the shared cache on a worker. It travels by pickle: a function of a module, or a partial, without secrets."""


class RayExecutor:
    """`shared` is the cache's folder of this machine, which workers may see too; `open_remote` is for those that do
    not. `address` is a cluster's, as RAY_ADDRESS would say it."""

    slots: int | None = None

    def __init__(self, address: str | None, shared: Cache, open_remote: OpenRemote | None = None) -> None:
        self._ray: Any = None
        self._address = address
        self._open_remote = open_remote
        self._started = False
        self._running: dict[Any, Task] = {}
        self._said: deque[Happening] = deque()
        self._events: Any = None
        self._mark = shared.root / "v1" / "locks" / f"shared-{uuid.uuid4().hex}"

    def _connect(self) -> None:
        if self._address is None:
            _close_to_others()
        self._ray = _import_ray()
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if self._ray.is_initialized():
            return
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
        if self._address is None:
            options["include_dashboard"] = False
        try:
            _check_reachable(self._address)
            # "local": an address of a cluster that is long gone may lie in Ray's folder of temporary files.
            self._ray.init(address=self._address or "local", **options)
        except (ConnectionError, OSError, ValueError, RuntimeError) as why:
            where = f"the Ray cluster at {self._address}" if self._address else "Ray on this machine"
            advice = "Check RAY_ADDRESS, or build with --executor local."
            raise fail("ES587", f"{where} cannot be reached: {_first_line(why)}. {advice}") from None
        self._started = True

    def __enter__(self) -> Self:
        self._connect()
        from ray.util.queue import Queue

        self._events = Queue(actor_options={"num_cpus": 0})
        write_atomically(self._mark, b"")
        return self

    def __exit__(self, *_: object) -> None:
        for ref in self._running:
            self._ray.cancel(ref, force=True)
        if self._running:
            self._ray.wait(list(self._running), num_returns=len(self._running), timeout=30)
        self._running.clear()
        if self._events is not None:
            self._events.shutdown(force=True)
        self._mark.unlink(missing_ok=True)
        if self._started:
            self._ray.shutdown()

    def check(self, tasks: Sequence[Task]) -> None:
        """Ray would leave a task that no node can take waiting for ever."""
        nodes = [n["Resources"] for n in self._ray.nodes() if n["Alive"]]
        for task in tasks:
            wanted = {"CPU": task.needs.cpus, "GPU": task.needs.gpus, "memory": float(task.needs.memory)}
            if any(all(node.get(k, 0.0) >= v for k, v in wanted.items()) for node in nodes):
                continue
            most = {k: max((n.get(k, 0.0) for n in nodes), default=0.0) for k in wanted}
            raise fail(
                "ES587",
                f"{task.title} needs {_resources(wanted)} on one node, and the cluster's nodes have at most "
                f"{_resources(most)}. Add such a node to the cluster, or build with --executor local.",
            )

    def submit(self, task: Task) -> None:
        needs = task.needs
        options = {"num_cpus": needs.cpus, "num_gpus": needs.gpus, "memory": needs.memory, "max_retries": 0}
        remote = self._ray.remote(run_on_worker).options(name=task.title, **options)
        ref = remote.remote(task.id, task.request.encode(), str(self._mark), self._events, self._open_remote)
        self._running[ref] = task

    def next(self) -> Happening:
        while not self._said:
            done, _ = self._ray.wait(list(self._running), num_returns=1, timeout=POLL)
            self._listen()  # after a task's end all that it said is in the queue
            for ref in done:
                self._said.append(self._end(self._running.pop(ref), ref))
        return self._said.popleft()

    def _listen(self) -> None:
        for id_, event in self._events.get_nowait_batch(self._events.qsize()):
            self._said.append(Said(id_, BuildEvent(**event)))

    def _end(self, task: Task, ref: Any) -> Finished:
        errors = self._ray.exceptions
        try:
            return Finished(task.id, decode_problems(self._ray.get(ref)))
        except errors.OutOfMemoryError:
            what = (
                f"was ended by Ray because the memory of its node ran out; the stage asks for "
                f"{format_size(task.needs.memory)}. Use a node with more, or fewer at once"
            )
        except errors.RayTaskError as why:
            what = f"failed on its worker: {_first_line(why.cause if why.cause is not None else why)}"
            if isinstance(why.cause, (ModuleNotFoundError, ImportError)):
                what += ". Install the same edgespec, with its extras, on every node"
        except errors.WorkerCrashedError:
            what = "lost its worker: the process died, most likely because memory ran out or the node went away"
        except errors.RayError as why:
            what = f"could not be run by Ray: {_first_line(why)}"
        return Finished(task.id, (problem("ES588", f"{task.title} {what}. Nothing of it was kept."),))


def run_on_worker(
    id_: str, request: str, mark: str, events: Any, open_remote: OpenRemote | None
) -> list[dict[str, Any]]:
    """Runs on a worker: the problems of one task."""

    def tell(event: BuildEvent) -> None:
        events.put((id_, as_dict(event)))

    try:
        found = Request.decode(request)
        if Path(mark).is_file():
            perform(found, tell)
            return []
        if not Path(found.root).is_dir():
            raise fail("ES587", f"{os.uname().nodename} does not see the project's folder {found.root}.")
        if open_remote is None:
            raise fail(
                "ES587",
                f"{os.uname().nodename} does not see the build cache's folder {found.cache}. Put it where all nodes "
                "see it (EDGESPEC_CACHE_DIR), or give the project a shared cache: `build: {cache: {bucket: NAME}}`.",
            )
        own = replace(found, cache=str(default_cache_dir(os.environ)))
        perform(own, tell, open_remote())
    except EdgespecError as e:
        return encode_problems(e.diagnostics)
    return []


def _close_to_others() -> None:
    """A cluster of this build alone has a token of its own, which Ray would otherwise leave in the home folder. Ray
    reads these when it is imported."""
    if "RAY_AUTH_MODE" not in os.environ:
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))


def _check_reachable(address: str | None) -> None:
    """Ray itself would try for minutes, and then end the process. Raises OSError."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT).close()


def _resources(wanted: Mapping[str, float]) -> str:
    parts = [f"{wanted['CPU']:g} CPU", f"{format_size(int(wanted['memory']))} of memory"]
    if wanted["GPU"] or "GPU" not in wanted:
        parts.append(f"{wanted['GPU']:g} GPU")
    return ", ".join(parts)


def _first_line(why: BaseException) -> str:
    return (str(why).strip().splitlines() or [type(why).__name__])[0].rstrip(".")


def _import_ray() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise fail("ES531", "ray is not installed. Run `pip install 'edgespec[ray]'`.") from None
    return ray
