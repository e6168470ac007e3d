"""A build cache that machines share: what a colleague has built, CI does not build again.

    build-cache/v1/blobs/<sha256>                bytes
    build-cache/v1/stages/<stage>/<key>.json     which blobs, with notes; as in the local cache

Entries are written after their blobs and never replaced, so a reader finds whole results or none. What comes in is
verified before it is kept. Nothing here fails a build: a store that cannot be used, or an entry that is damaged, is a
warning, and the stage runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Final, Protocol, TypeVar

from edgespec.build.cache import Cache
from edgespec.build.entries import Blob, Entry, decode_entry, encode_entry
from edgespec.build.problems import caution
from edgespec.diagnostics import Diagnostic
from edgespec.spec.units import format_size
from edgespec.threads import spread

PREFIX: Final = "build-cache/v1/"
ENTRY_LIMIT: Final = 4 * 2**20
"""Bytes; notes are small."""
_AT_ONCE: Final = 8
T = TypeVar("T")
R = TypeVar("R")
Say = Callable[[str], None]


class RemoteError(Exception):
    """A store that cannot be used: why and what to do, as sentences without credentials."""


class RemoteStore(Protocol):
    """Objects by key. Safe for use by several threads. Everything raises RemoteError where the store cannot be used."""

    @property
    def name(self) -> str:
        """For people: `the bucket shop-build-cache`."""

    def size(self, key: str) -> int | None:
        """Bytes of an object; None when it is not there."""

    def read(self, key: str, limit: int) -> bytes | None:
        """The first `limit` bytes of a small object; None when it is not there."""

    def download(self, key: str, limit: int, out: IO[bytes], going_on: Callable[[], None]) -> bool:
        """Streams at most `limit` bytes into `out`; False when the object is not there. `going_on` is called between
        parts and raises when the build was stopped."""

    def upload(self, key: str, path: Path, sha256: str, going_on: Callable[[], None]) -> None:
        """Streams a file, which the store verifies against the digest; replaces what is there."""

    def create(self, key: str, data: bytes, *, replace: bool) -> bool:
        """Writes a small object; False, with nothing written, when one is there already and `replace` is False."""


class RemoteCache:
    """`warn` hears of each kind of trouble once."""

    def __init__(self, store: RemoteStore, warn: Callable[[Diagnostic], None]) -> None:
        self._store = store
        self._warn = warn
        self._lock = threading.Lock()
        self._unusable = False
        self._damaged: set[str] = set()
        """Keys of objects to write anew."""

    @property
    def name(self) -> str:
        return self._store.name

    def has(self, steps: Sequence[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        """Which of these (stage, key) have an entry: one small question for each, all at once. What the entry holds is
        not looked at."""

        def there(step: tuple[str, str]) -> bool:
            return not self._unusable and self._store.size(_entry_key(*step)) is not None

        found = self._usable(lambda: list(_each(there, steps)))
        return frozenset(step for step, yes in zip(steps, found or (), strict=False) if yes)

    def get(self, cache: Cache, stage: str, key: str, say: Say) -> Entry | None:
        """The stage's result, now in the local cache too; None when it is not there or not whole."""
        return self._usable(lambda: self._get(cache, stage, key, say))

    def _get(self, cache: Cache, stage: str, key: str, say: Say) -> Entry | None:
        where = _entry_key(stage, key)
        raw = self._store.read(where, ENTRY_LIMIT)
        if raw is None:
            return None
        try:
            entry = decode_entry(raw)
        except ValueError:
            self._note_damage(where, "The entry is not as it was written.")
            return None
        missing = [b for b in dict.fromkeys(entry.outputs.values()) if not cache.holds(b)]
        if missing:
            say(f"downloading {format_size(sum(b.size for b in missing))} from {self.name}")
        stop = _Stop()
        with stop:
            whole = list(_each(lambda b: self._download(cache, b, stop), missing))
        if not all(whole):
            return None
        cache.commit(stage, key, entry)
        return entry

    def _download(self, cache: Cache, blob: Blob, stop: _Stop) -> bool:
        where = _blob_key(blob.sha256)
        try:
            with cache.receive(blob) as out:
                if not self._store.download(where, blob.size, out, stop.check):
                    raise ValueError("it is not there")
        except ValueError as why:
            self._note_damage(where, f"Of a result's data {blob.sha256[:12]} is not whole: {why}.")
            return False
        return True

    def fetch(self, cache: Cache, blob: Blob) -> bool:
        """Whether a blob that some result has is here, and so in the local cache now."""
        return bool(self._usable(lambda: self._fetch(cache, blob)))

    def _fetch(self, cache: Cache, blob: Blob) -> bool:
        if self._store.size(_blob_key(blob.sha256)) is None:
            return False
        stop = _Stop()
        with stop:
            return self._download(cache, blob, stop)

    def put(self, cache: Cache, stage: str, key: str, entry: Entry, say: Say) -> None:
        """Shares a result that is in the local cache: its blobs first."""
        self._usable(lambda: self._put(cache, stage, key, entry, say))

    def _put(self, cache: Cache, stage: str, key: str, entry: Entry, say: Say) -> None:
        blobs = list(dict.fromkeys(entry.outputs.values()))
        there = list(_each(lambda b: self._holds(b), blobs))
        missing = [b for b, yes in zip(blobs, there, strict=True) if not yes]
        if missing:
            say(f"uploading {format_size(sum(b.size for b in missing))} to {self.name}")
        stop = _Stop()
        with stop:
            if not all(_each(lambda b: self._upload(cache, b, stop), missing)):
                return  # the local cache has lost one: the next build makes it again
        where, data = _entry_key(stage, key), encode_entry(entry)
        if self._store.create(where, data, replace=where in self._damaged):
            self._damaged.discard(where)
            return
        other = self._store.read(where, ENTRY_LIMIT)
        if other is not None and other != data and not _same_outputs(other, entry):
            say(f"{self.name} keeps another result under this key: the stage does not give the same bytes everywhere")

    def _holds(self, blob: Blob) -> bool:
        where = _blob_key(blob.sha256)
        return where not in self._damaged and self._store.size(where) == blob.size

    def _upload(self, cache: Cache, blob: Blob, stop: _Stop) -> bool:
        path = cache.path(blob.sha256)
        if path is None:
            return False
        where = _blob_key(blob.sha256)
        self._store.upload(where, path, blob.sha256, stop.check)
        self._damaged.discard(where)
        return True

    def _usable(self, ask: Callable[[], T]) -> T | None:
        """The answer; None once the store has proved to be of no use."""
        if self._unusable:
            return None
        try:
            return ask()
        except RemoteError as why:
            with self._lock:
                first, self._unusable = not self._unusable, True
            if first:
                self._warn(caution("ES585", f"{self.name}: {why} The build goes on without it."))
            return None

    def _note_damage(self, where: str, why: str) -> None:
        with self._lock:
            known = where in self._damaged
            self._damaged.add(where)
        if not known:
            detail = f"{self.name}: {where}: {why} The stage runs, and its result is put there instead."
            self._warn(caution("ES586", detail))


def _entry_key(stage: str, key: str) -> str:
    return f"{PREFIX}stages/{stage}/{key}.json"


def _blob_key(sha256: str) -> str:
    return f"{PREFIX}blobs/{sha256}"


def _same_outputs(raw: bytes, entry: Entry) -> bool:
    try:
        return decode_entry(raw).digest == entry.digest
    except ValueError:
        return False


class _Stop:
    """Makes transfers in other threads end when the thread that waits for them is interrupted."""

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._stopped.set()

    def check(self) -> None:
        if self._stopped.is_set():
            raise RemoteError("it was stopped.")


def _each(work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Results in order, several at once."""
    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        yield from list(spread(pool, work, items))
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
