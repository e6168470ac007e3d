"""What every place that keeps state can do, and who holds it.

with store.lock("apply") as lease:
    state = store.load()
    state = store.save(state)               whole, under the next serial
    serial = store.record(Put(record))      one change; costs the same however large the state is
"""

from __future__ import annotations

import getpass
import os
import socket
import uuid
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from msgspec import Struct

from edgespec.diagnostics import Diagnostic, EdgespecError, error
from edgespec.records import as_dict
from edgespec.state.journal import Entry, Mutation
from edgespec.state.model import State


class StoreError(EdgespecError):
    """State cannot be written or is not ours any more: whoever applies must stop before its next call."""


class LeaseLostError(StoreError):
    """Another run may have taken over: nothing may be changed under this lock any more."""


class ConflictError(StoreError):
    """Another run has written what this one was about to write."""


class HeldError(EdgespecError):
    """Another run holds the lock."""


class Owner(Struct, frozen=True):
    """Who holds a lock."""

    lease: str
    user: str
    host: str
    pid: int
    operation: str
    since: str
    """ISO 8601, UTC, by the holder's clock."""

    def __str__(self) -> str:
        when = self.since.replace("T", " ").removesuffix("+00:00")
        return f"{self.user}@{self.host} (process {self.pid}, {self.operation} since {when} UTC)"

    def document(self) -> dict[str, Any]:
        return as_dict(self)

    @classmethod
    def of(cls, document: Any) -> Owner | None:
        """None when the document is not an owner's."""
        kinds = {"lease": str, "user": str, "host": str, "pid": int, "operation": str, "since": str}
        if not isinstance(document, dict) or not all(isinstance(document.get(k), t) for k, t in kinds.items()):
            return None
        return cls(**{k: document[k] for k in kinds})


def this_process(operation: str) -> Owner:
    """Facts about whoever runs this."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        user = f"uid-{os.getuid()}"
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Owner(str(uuid.uuid4()), user, socket.gethostname(), os.getpid(), operation, now)


class Lease(Protocol):
    """A lock that is held."""

    owner: Owner
    robbed: Owner | None
    """Whose expired lease was taken over."""

    def check(self) -> None:
        """Raises LeaseLostError when it is not held any more."""


class Holder(Struct, frozen=True):
    """Who holds a store's lock now, as others see it. `owner` is None where the holder left no facts."""

    owner: Owner | None
    silent_s: float | None = None
    """Seconds since its last sign of life, where there are such signs."""
    expires_in_s: float | None = None
    """Until others may take over; not above 0 when they may already."""


class StateStore(Protocol):
    """The state of one environment. Everything raises EdgespecErrors that name the place."""

    @property
    def where(self) -> str:
        """For people: a path, or a bucket and a key."""

    def load(self) -> State | None:
        """The newest state; None when nothing was ever applied. Needs no lock, and then may be overtaken."""

    def lock(self, operation: str) -> AbstractContextManager[Lease]:
        """Held until the block ends, or the process does. Another holder is an error at once (ES304)."""

    def save(self, state: State) -> State:
        """Writes all of `state` under the next serial, whole or not at all. Under the lock."""

    def record(self, *changes: Mutation) -> int:
        """Writes these changes together, whole or not at all, and returns the serial that they got. Under the lock,
        after a `load` or `save` that found or made a state. Safe for use by several threads."""

    def holder(self) -> Holder | None:
        """Who holds the lock; None when nobody does."""

    def unlock(self, holder: Holder) -> None:
        """Takes the lock from `holder`, whose next write of state then fails; raises when it is held by another."""


class Backend(Protocol):
    """A place for a snapshot, the journal that follows it, back-ups and a lock. One process writes at a time: the one
    that holds the lock."""

    @property
    def where(self) -> str: ...

    def acquire(self, operation: str) -> AbstractContextManager[Lease]: ...

    def holder(self) -> Holder | None: ...

    def unlock(self, holder: Holder) -> None: ...

    def snapshot(self) -> bytes | None:
        """None when there is none."""

    def journal(self, after: int) -> tuple[Entry, ...]:
        """The entries, in the order of serials. Those up to `after` may be left out."""

    def replace_snapshot(self, data: bytes) -> None:
        """Whole or not at all."""

    def append(self, entry: Entry) -> None:
        """Durable when it returns; where it raises, the entry may be there or not."""

    def clear_journal(self, serial: int) -> None:
        """Removes what a snapshot of this serial holds."""

    def back_up(self, serial: int, data: bytes) -> None:
        """Keeps `data`, and the KEPT newest by serial of all that was kept."""

    def back_up_damaged(self) -> None:
        """Keeps what cannot be read, as it is."""


KEPT: Final = 5
"""Back-ups of each state."""


def held(where: str, holder: Holder | None) -> HeldError:
    who = holder.owner if holder is not None and holder.owner is not None else "another process"
    detail = f"{who} holds {where}."
    if holder is None or holder.owner is None or holder.silent_s is None:
        detail += " Wait for it to end and run again."
    else:
        left = max(0, round(holder.expires_in_s or 0))
        detail += (
            f" Its last sign of life came {round(holder.silent_s)} s ago. Wait for it to end and run again; if it is "
            f"gone, the lock expires in {left} s, or break it with `edgespec state unlock {holder.owner.lease}`."
        )
    return HeldError(error("ES304", "State is locked", detail))


def overtaken(where: str, now: int, given: int) -> Diagnostic:
    detail = f"{where} is at serial {now}; what was to be written was made from {given}. Run again."
    return error("ES302", "The state has moved", detail)


def no_lock(where: str) -> Diagnostic:
    return error("ES311", "The lock is lost", f"{where} is written without its lock. This is a bug in edgespec.")
