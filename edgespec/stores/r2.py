"""State in an R2 bucket, through its S3 API.

    KEY                         the snapshot, replaced only as it was read (If-Match)
    KEY.journal/000000000013    the entry of serial 13, written only if it is not there (If-None-Match)
    KEY.backup/000000000012     the version before an apply, of serial 12; the last five
    KEY.lock                    who applies, renewed while it does

Whoever takes over an expired or broken lock first takes the next serial for an entry without changes. A run that was
thought to be dead and wakes meets it at its next write, which comes before its next call, and stops.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from edgespec.state.codec import unreadable
from edgespec.state.journal import Entry, GapError, encode_entry, read_entries
from edgespec.stores.base import KEPT, Holder, Lease, StoreError
from edgespec.stores.journaled import JournaledStore
from edgespec.stores.lease import TTL_S, BucketLock
from edgespec.stores.objects import Bucket, Reads

_DIGITS: Final = 12


class R2StateStore(JournaledStore):
    """A StateStore in a bucket. `client` gives boto3's S3 client when something is first asked that `reads` cannot
    tell."""

    def __init__(
        self, bucket: str, key: str, client: Callable[[], Any], reads: Reads | None = None, *, ttl_s: float = TTL_S
    ) -> None:
        super().__init__(R2Objects(Bucket(bucket, client, reads), key, ttl_s=ttl_s))


class R2Objects:
    """The Backend of R2StateStore."""

    def __init__(self, bucket: Bucket, key: str, *, ttl_s: float) -> None:
        self._bucket = bucket
        self._key = key
        self._lock = BucketLock(bucket, f"{key}.lock", ttl_s=ttl_s)
        self._etag: str | None = None
        """Of the snapshot as it was read or written last."""
        self._there: set[int] = set()
        """Serials of the journal's objects, as far as is known."""
        self._fences: set[int] = set()
        """Of them, those that this process has put up against another: they stay until another's folding."""

    @property
    def where(self) -> str:
        return f"{self._bucket.name}/{self._key}"

    def acquire(self, operation: str) -> AbstractContextManager[Lease]:
        return self._lock.acquire(operation)

    def holder(self) -> Holder | None:
        return self._lock.holder()

    def unlock(self, holder: Holder) -> None:
        self._lock.take_away(holder)

    def snapshot(self) -> bytes | None:
        found = self._bucket.get(self._key)
        self._etag = found.etag if found is not None else None
        return found.data if found is not None else None

    def journal(self, after: int) -> tuple[Entry, ...]:
        keys = self._bucket.list(f"{self._key}.journal/")
        serials = {int(k.rsplit("/", 1)[1]): k for k in keys if k.rsplit("/", 1)[1].isdigit()}
        self._there = set(serials)
        later = sorted(s for s in serials if s > after)
        entries = []
        for serial, found in zip(later, self._bucket.get_all([serials[s] for s in later]), strict=True):
            if found is None:  # folded since it was listed
                raise GapError(f"entry {serial} is gone")
            read, whole = read_entries(found.data, f"{self._bucket.name}/{serials[serial]}")
            if len(read) != 1 or whole != len(found.data) or read[0].serial != serial:
                raise unreadable(f"{self._bucket.name}/{serials[serial]} is not as it was written.")
            entries.append(read[0])
        return tuple(entries)

    def replace_snapshot(self, data: bytes) -> None:
        self._etag = self._bucket.put(self._key, data, self._etag)

    def append(self, entry: Entry) -> None:
        self._there.add(entry.serial)
        self._bucket.put(self._entry_key(entry.serial), encode_entry(entry), None)
        if not entry.changes:
            self._fences.add(entry.serial)

    def clear_journal(self, serial: int) -> None:
        """From the last to the first: whoever reads meanwhile finds an older version, never one with a gap."""
        doomed = sorted((s for s in self._there - self._fences if s <= serial), reverse=True)
        with contextlib.suppress(StoreError):  # the snapshot holds it all: what stays is passed over
            self._bucket.delete([self._entry_key(s) for s in doomed])
            self._there -= set(doomed)

    def back_up(self, serial: int, data: bytes) -> None:
        prefix = f"{self._key}.backup/"
        self._bucket.put_freely(f"{prefix}{serial:0{_DIGITS}}", data)
        if doomed := [k for k in self._bucket.list(prefix) if k.removeprefix(prefix).isdigit()][:-KEPT]:
            self._bucket.delete(doomed)

    def back_up_damaged(self) -> None:
        found = self._bucket.get(self._key)
        if found is not None:
            self._bucket.put_freely(f"{self._key}.backup/damaged", found.data)
        for key in self._bucket.list(f"{self._key}.journal/"):
            entry = self._bucket.get(key)
            if entry is not None:
                self._bucket.put_freely(f"{self._key}.backup/damaged.{key.rsplit('/', 1)[1]}", entry.data)

    def _entry_key(self, serial: int) -> str:
        return f"{self._key}.journal/{serial:0{_DIGITS}}"
