"""A state as a snapshot and the journal that follows it, wherever the two are kept.

`save` writes a snapshot, `record` appends an entry. The journal is folded into a new snapshot when it has grown past
the snapshot, so that n changes cost O(n) altogether, and when the lock is let go. A crash at any moment leaves the old
snapshot with a journal, or the new one with a journal whose entries it already holds.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Final

from edgespec.diagnostics import EdgespecError
from edgespec.records import replace
from edgespec.state.codec import encode, parse, unreadable
from edgespec.state.journal import Entry, GapError, Mutation, replay
from edgespec.state.model import State
from edgespec.state.working import WorkingState
from edgespec.stores.base import (
    Backend,
    ConflictError,
    HeldError,
    Holder,
    Lease,
    LeaseLostError,
    StoreError,
    no_lock,
    overtaken,
)

_READS: Final = 4
"""Attempts at a snapshot and a journal that belong together, while another process replaces them."""
_SMALL: Final = 256
"""A journal of so many entries is not folded before the end."""


class JournaledStore:
    """A StateStore over a Backend."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._mutex = threading.RLock()
        self._lease: Lease | None = None
        self._reset()

    def _reset(self) -> None:
        self._working: WorkingState | None = None
        """What is written, as known under this lock; None until it is read and after a write that was cut short."""
        self._raw: bytes | None = None
        """The snapshot as it was read, until it is backed up."""
        self._entries, self._fold_at = 0, _SMALL
        self._backed_up = False

    @property
    def where(self) -> str:
        return self._backend.where

    def load(self) -> State | None:
        with self._mutex:
            for attempt in range(1, _READS + 1):
                try:
                    return self._read()
                except GapError as gap:
                    if attempt == _READS:
                        raise unreadable(f"{self.where}: its journal does not follow it: {gap}.") from None
        raise AssertionError

    def _read(self) -> State | None:
        data = self._backend.snapshot()
        base = parse(data, self.where) if data is not None else None
        entries = self._backend.journal(base.serial if base else 0)
        if base is None and entries:
            raise GapError("the snapshot is missing")
        state = replay(base, entries) if base is not None else None
        if self._lease is not None:
            self._working = WorkingState(state) if state is not None else None
            self._entries = state.serial - base.serial if state is not None and base is not None else 0
            self._raw = data if not self._entries and not self._backed_up else None
        return state

    @contextlib.contextmanager
    def lock(self, operation: str) -> Iterator[Lease]:
        with self._backend.acquire(operation) as lease:
            self._reset()
            self._lease = lease
            try:
                if lease.robbed is not None:
                    self._fence(lease)
                yield lease
                self._finish(lease)
            except Exception:
                self._finish(lease)
                raise
            finally:  # after an interruption the journal stays as it is: the next run reads it
                self._lease = None
                self._reset()

    def _finish(self, lease: Lease) -> None:
        """Fold the journal; where that cannot be done now, the journal says it all the same."""
        with contextlib.suppress(EdgespecError), self._mutex:
            if self._entries and self._working is not None:
                lease.check()
                self._fold(self._working)

    def save(self, state: State) -> State:
        with self._mutex:
            self._begin()
            if self._working is None:
                with contextlib.suppress(EdgespecError):  # what is damaged may be replaced
                    self.load()
            if self._working is not None and self._working.serial > state.serial:
                raise StoreError(overtaken(self.where, self._working.serial, state.serial))
            written = replace(state, serial=state.serial + 1)
            self._working = None
            self._backend.replace_snapshot(encode(written).encode())
            self._backend.clear_journal(written.serial)
            self._working, self._entries, self._fold_at = WorkingState(written), 0, _SMALL
            return written

    def record(self, *changes: Mutation) -> int:
        with self._mutex:
            lease = self._begin()
            if self._working is None:
                self.load()
            working, self._working = self._working, None
            if working is None:
                raise unreadable(f"{self.where} has vanished while it was in use.")
            entry = Entry(working.lineage, working.serial + 1, changes, lease.owner.lease)
            self._backend.append(entry)
            working.advance(entry.serial, changes)
            self._working = working
            self._entries += 1
            if self._entries >= max(self._fold_at, len(working.records) // 2):
                self._fold_early(working)
            return entry.serial

    def _begin(self) -> Lease:
        """Before anything is written: is the lock ours, and is what was there kept?"""
        lease = self._lease
        if lease is None:
            raise StoreError(no_lock(self.where))
        lease.check()
        if not self._backed_up:
            self._back_up()
            self._backed_up, self._raw = True, None
        return lease

    def _back_up(self) -> None:
        try:
            state = self.load() if self._working is None else self._working.freeze()
        except EdgespecError:
            self._backend.back_up_damaged()
            return
        if state is not None:  # as it is where it can be: of an older format, perhaps
            self._backend.back_up(state.serial, self._raw or encode(state).encode())

    def _fold_early(self, working: WorkingState) -> None:
        try:
            self._fold(working)
        except (LeaseLostError, ConflictError):
            raise
        except StoreError:  # the entry is written; a longer journal does no harm
            self._fold_at = 2 * self._entries

    def _fold(self, working: WorkingState) -> None:
        state = working.freeze()
        self._backend.replace_snapshot(encode(state).encode())
        self._backend.clear_journal(state.serial)
        self._entries, self._fold_at = 0, _SMALL

    def _fence(self, lease: Lease) -> None:
        """Take the next serial, so that whoever held the lock before meets it at its next write, and stops."""
        while True:
            try:
                state = self.load()
            except StoreError:
                raise
            except EdgespecError:  # damaged: nothing can follow it, and it may be replaced
                return
            if state is None:
                return
            try:
                self._backend.append(Entry(state.lineage, state.serial + 1, (), lease.owner.lease))
            except ConflictError:  # it has just written: that belongs to the state too
                continue
            self.load()
            return

    def holder(self) -> Holder | None:
        return self._backend.holder()

    def unlock(self, holder: Holder) -> None:
        self._backend.unlock(holder)
        with contextlib.suppress(HeldError), self.lock("state unlock"):
            pass
