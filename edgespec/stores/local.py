"""State in a local file, locked by the operating system.

    NAME                    the snapshot: written to a temporary file, synced, renamed
    NAME.journal            a line a change since then, each synced; gone when nothing is being applied
    NAME.000000000012.backup    the version before an apply, of serial 12; the last five
    NAME.lock               who applies

A crash at any moment leaves the old snapshot or the new one, and whole lines but for the last.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from edgespec.diagnostics import EdgespecError, error
from edgespec.state.codec import unreadable
from edgespec.state.journal import Entry, encode_entry, read_entries
from edgespec.stores.base import KEPT, Holder, Lease, Owner, StoreError, held, this_process
from edgespec.stores.journaled import JournaledStore


class LocalStore(JournaledStore):
    """A StateStore in a file."""

    def __init__(self, path: Path) -> None:
        super().__init__(LocalFiles(path))
        self.path = path


class LocalLease:
    """The operating system takes the lock away with the process, and never before."""

    robbed: Owner | None = None

    def __init__(self, owner: Owner) -> None:
        self.owner = owner

    def check(self) -> None:
        pass


class LocalFiles:
    """The Backend of LocalStore."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._journal: int | None = None
        """The journal's descriptor while this process appends to it."""

    @property
    def where(self) -> str:
        return str(self.path)

    # --- the lock ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def acquire(self, operation: str) -> Iterator[Lease]:
        with self._open_lock() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise held(str(self._beside(".lock")), Holder(_owner_in(file))) from None
            owner = this_process(operation)
            file.seek(0)
            file.truncate()
            file.write(json.dumps(owner.document()) + "\n")
            file.flush()
            try:
                yield LocalLease(owner)
            finally:
                self._close_journal()

    def holder(self) -> Holder | None:
        try:
            file = self._beside(".lock").open(encoding="utf-8")
        except FileNotFoundError:
            return None
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return Holder(_owner_in(file))
        return None

    def unlock(self, holder: Holder) -> None:
        who = holder.owner or "another process"
        detail = f"{who} runs and holds {self._beside('.lock')}. The lock ends with that process: stop it, or wait."
        raise EdgespecError(error("ES314", "The lock is not broken", detail))

    def _open_lock(self) -> IO[str]:
        path = self._beside(".lock")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return path.open("a+", encoding="utf-8")
        except OSError as e:
            raise _unwritable(path, e) from e

    # --- reading -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes | None:
        return self._read(self.path)

    def journal(self, after: int) -> tuple[Entry, ...]:
        path = self._beside(".journal")
        return read_entries(self._read(path) or b"", str(path))[0]

    def _read(self, path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as e:
            raise unreadable(f"{path}: {e.strerror or e}.") from e

    # --- writing -----------------------------------------------------------------------------------------------------

    def replace_snapshot(self, data: bytes) -> None:
        self._replace(self.path, data)

    def _replace(self, path: Path, data: bytes) -> None:
        """Whole or not at all, and durable when it returns."""
        temporary = path.with_name(path.name + ".tmp")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            temporary.unlink(missing_ok=True)  # of a killed run
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                _write_all(descriptor, data)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            temporary.replace(path)
            self._sync_folder()
        except OSError as e:
            temporary.unlink(missing_ok=True)
            raise _unwritable(path, e) from e

    def append(self, entry: Entry) -> None:
        line = encode_entry(entry)
        try:
            journal = self._journal = self._open_journal() if self._journal is None else self._journal
            _write_all(journal, line)
            os.fdatasync(journal)
        except OSError as e:
            self._close_journal()  # the next append cuts off what was written of this line
            raise _unwritable(self._beside(".journal"), e) from e
        except BaseException:
            self._close_journal()
            raise

    def _open_journal(self) -> int:
        """Its descriptor, behind its last whole line."""
        path = self._beside(".journal")
        new = not path.exists()
        whole = 0 if new else read_entries(path.read_bytes(), str(path))[1]
        journal = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.ftruncate(journal, whole)
            os.lseek(journal, whole, os.SEEK_SET)
            if new:
                self._sync_folder()
        except BaseException:
            os.close(journal)
            raise
        return journal

    def _close_journal(self) -> None:
        descriptor, self._journal = self._journal, None
        if descriptor is not None:
            os.close(descriptor)

    def clear_journal(self, serial: int) -> None:
        self._close_journal()
        with contextlib.suppress(OSError):  # the snapshot holds it all: what stays is passed over
            self._beside(".journal").unlink(missing_ok=True)

    # --- back-ups ----------------------------------------------------------------------------------------------------

    def back_up(self, serial: int, data: bytes) -> None:
        self._replace(self._beside(f".{serial:012}.backup"), data)
        for path in sorted(self.path.parent.glob(f"{_literal(self.path.name)}.*.backup"))[:-KEPT]:
            path.unlink(missing_ok=True)

    def back_up_damaged(self) -> None:
        for path in (self.path, self._beside(".journal")):
            data = self._read(path)
            if data is not None:
                self._replace(path.with_name(path.name + ".damaged"), data)

    def _sync_folder(self) -> None:
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _literal(name: str) -> str:
    """For a glob pattern."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _owner_in(file: IO[str]) -> Owner | None:
    try:
        file.seek(0)
        return Owner.of(json.loads(file.read(4096)))
    except ValueError:
        return None


def _unwritable(path: Path, e: OSError) -> StoreError:
    detail = f"{path}: {e.strerror or e}. Make room or give the folder to this user, then run again."
    return StoreError(error("ES308", "State cannot be written", detail))
