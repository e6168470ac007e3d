"""A lock that is an object in a bucket: whoever holds it renews it, and where the renewals stop it expires.

Every write of it is conditional on what was there, so of two runs that want it one gets it. It is let go by writing
that it is free, on the same condition: deleting an object cannot be conditional in R2. How old the last renewal is,
the bucket's own clock says; how long this process may go on, its own, from before it asked for the renewal: whatever
the network does, it stops before others may begin.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from edgespec.diagnostics import EdgespecError, error
from edgespec.stores.base import ConflictError, Holder, LeaseLostError, Owner, StoreError, held, this_process
from edgespec.stores.objects import Bucket, Object

FORMAT: Final = "edgespec.lock/v1"
TTL_S: Final = 60.0
"""After so long without a renewal others may take over."""
_BEATS: Final = 4
"""Renewals in that time."""
_GRACE_S: Final = 2.0
"""`Last-Modified` and `Date` are whole seconds."""


def _elapsed() -> float:
    """Seconds that go on while the machine sleeps, where it tells them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class BucketLock:
    """The lock at one key."""

    def __init__(
        self, bucket: Bucket, key: str, *, ttl_s: float = TTL_S, clock: Callable[[], float] = _elapsed
    ) -> None:
        self._bucket = bucket
        self._key = key
        self._ttl = ttl_s
        self._clock = clock

    @property
    def where(self) -> str:
        return f"{self._bucket.name}/{self._key}"

    @contextlib.contextmanager
    def acquire(self, operation: str) -> Iterator[BucketLease]:
        lease = self._take(this_process(operation))
        keeper = threading.Thread(target=lease.keep, name="state lease", daemon=False)
        keeper.start()
        try:
            yield lease
        finally:  # the thread lets it go: a second Ctrl-C reaches only this one
            lease.end()
            keeper.join()

    def _take(self, owner: Owner) -> BucketLease:
        found = self._bucket.get(self._key)
        robbed: Owner | None = None
        if found is not None:
            document = _document(found, self.where)
            holder = self._holder(found, document)
            if holder is not None:
                if holder.expires_in_s is None or holder.expires_in_s > 0:
                    raise held(self.where, holder)
                robbed = holder.owner
            else:
                robbed = Owner.of(document.get("robbed"))
        lease = BucketLease(self, owner, robbed, found.etag if found is not None else None)
        try:
            lease.renew()
        except LeaseLostError:
            raise held(self.where, self.holder()) from None
        except StoreError:
            lease.release()
            raise
        return lease

    def holder(self) -> Holder | None:
        found = self._bucket.get(self._key)
        return self._holder(found, _document(found, self.where)) if found is not None else None

    def _holder(self, found: Object, document: dict[str, Any]) -> Holder | None:
        if document["free"]:
            return None
        return Holder(Owner.of(document), found.age_s, float(document["ttl_s"]) + _GRACE_S - found.age_s)

    def take_away(self, holder: Holder) -> None:
        """Free the lock if `holder` has it still, and note whom it was taken from."""
        found = self._bucket.get(self._key)
        now = self._holder(found, _document(found, self.where)) if found is not None else None
        if found is None or now is None or now.owner != holder.owner:
            raise EdgespecError(error("ES314", "The lock is not broken", f"{self.where} has changed hands meanwhile."))
        by = this_process("state unlock")
        robbed = holder.owner.document() if holder.owner is not None else None
        try:
            self._bucket.put(self._key, _encode(by, self._ttl, 0, free=True, robbed=robbed), found.etag)
        except ConflictError:  # it was renewed in between
            self.take_away(holder)


class BucketLease:
    """The lock while this process has it. Safe for use by several threads."""

    def __init__(self, lock: BucketLock, owner: Owner, robbed: Owner | None, etag: str | None) -> None:
        self.owner = owner
        self.robbed = robbed
        self._lock = lock
        self._etag = etag
        self._beat = 0
        self._deadline = float("-inf")
        self._lost: LeaseLostError | None = None
        self._mutex = threading.Lock()
        self._ended = threading.Event()

    def check(self) -> None:
        """A renewal in time is enough; when it is due, it is asked for here and now."""
        if self._lost is None and self._lock._clock() < self._deadline - self._lock._ttl / _BEATS:
            return
        try:
            self.renew()
        except LeaseLostError:
            raise
        except StoreError as e:
            if self._lock._clock() >= self._deadline:
                raise self._gone("it could not be renewed in time") from e
        else:
            if self._lock._clock() >= self._deadline:
                raise self._gone("the renewal took too long")

    def renew(self) -> None:
        with self._mutex:
            if self._lost is not None:
                raise self._lost
            asked, self._beat = self._lock._clock(), self._beat + 1
            data = _encode(self.owner, self._lock._ttl, self._beat, free=False)
            try:
                self._write(data)
            except ConflictError:
                self._lost = self._gone(self._taker())
                raise self._lost from None
            self._deadline = asked + self._lock._ttl

    def _write(self, data: bytes) -> None:
        """On the condition that nobody else has written; an own renewal whose answer was lost is recognised."""
        bucket, key = self._lock._bucket, self._lock._key
        try:
            self._etag = bucket.put(key, data, self._etag)
        except ConflictError:
            found = bucket.get(key)
            if found is None or not self._is_ours(found):
                raise
            self._etag = bucket.put(key, data, found.etag)

    def _is_ours(self, found: Object) -> bool:
        document = _document(found, self._lock.where)
        return not document["free"] and document.get("lease") == self.owner.lease

    def _taker(self) -> str:
        with contextlib.suppress(EdgespecError):
            holder = self._lock.holder()
            if holder is not None and holder.owner is not None:
                return f"{holder.owner} has it now"
            found = self._lock._bucket.get(self._lock._key)
            by = Owner.of(json.loads(found.data)) if found is not None else None
            if by is not None:
                return f"{by} has broken it"
        return "somebody has it now"

    def _gone(self, why: str) -> LeaseLostError:
        detail = (
            f"{self._lock.where}: {why}. Nothing is changed from here on; what was done is in state. Run again when "
            "the lock is free."
        )
        return LeaseLostError(error("ES311", "The lock is lost", detail))

    def keep(self) -> None:
        """Renew until `end`, then let go."""
        while not self._ended.wait(self._lock._ttl / _BEATS):
            with contextlib.suppress(StoreError):  # the next beat tries again, and `check` says when it is too late
                self.renew()
            if self._lost is not None:
                return
        self.release()

    def end(self) -> None:
        self._ended.set()

    def release(self) -> None:
        """Say that it is free, if it is ours; where that cannot be said it expires."""
        with contextlib.suppress(EdgespecError), self._mutex:
            if self._lost is None:
                data = _encode(self.owner, self._lock._ttl, self._beat + 1, free=True)
                self._write(data)


def _encode(owner: Owner, ttl_s: float, beat: int, *, free: bool, robbed: dict[str, Any] | None = None) -> bytes:
    """No two writes are the same bytes: the lease is drawn anew for each, the beat counts."""
    document = {"format": FORMAT, **owner.document(), "ttl_s": ttl_s, "beat": beat, "free": free, "robbed": robbed}
    return (json.dumps(document) + "\n").encode()


def _document(found: Object, where: str) -> dict[str, Any]:
    try:
        document = json.loads(found.data)
    except ValueError:
        document = None
    known = isinstance(document, dict) and document.get("format") == FORMAT
    if not known or not isinstance(document.get("free"), bool) or not isinstance(document.get("ttl_s"), (int, float)):
        detail = f"{where} is not a lock that this edgespec writes. Upgrade edgespec, or delete the object."
        raise EdgespecError(error("ES304", "State is locked", detail))
    return dict(document)
