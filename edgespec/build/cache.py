"""A folder of results keyed by content: blobs by SHA-256, and for each stage's key the blobs that it gave.

    v1/blobs/<2 hex>/<sha256>        bytes
    v1/stages/<stage>/<key>.json     which blobs, with notes; its time of change is when it was last used
    v1/stat.json                     what a file's digest was when it looked like this (size, times, inode)
    v1/locks/                        who is running which stage; all who read share `in-use` (edgespec.build.locks)
    packages/<name>/<version>/       models that came as Python packages
    hubs/<hub>/<org>/<name>/<commit> models that came from a hub

Everything is written beside its place, flushed to disk and renamed, so a build that is killed leaves nothing half-made
and two builds at once cannot disturb each other: they write equal bytes under equal names, and a stage that another
build is running is waited for. What is read is verified; what is broken is deleted and built again. Deleting the folder
while nothing uses it is always safe.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final

from msgspec import Struct

from edgespec.build import locks
from edgespec.build.entries import Blob as Blob
from edgespec.build.entries import Entry as Entry
from edgespec.build.entries import decode_entry, encode_entry
from edgespec.build.problems import fail
from edgespec.values import canonical_json, sha256_hex

RACY_NS: Final = 2 * 10**9
"""A file changed this recently may change again without looking different: its digest is not remembered (as in git)."""

STATS_KEPT: Final = 10_000
"""Beyond so many files, those that are gone are forgotten."""
TEXT_MARK: Final = "?text"
WRITING: Final = ".writing-"
"""What the names of files begin with that are not whole yet."""


def default_cache_dir(environ: Mapping[str, str]) -> Path:
    """$EDGESPEC_CACHE_DIR, else $XDG_CACHE_HOME/edgespec, else ~/.cache/edgespec."""
    if own := environ.get("EDGESPEC_CACHE_DIR"):
        return Path(own)
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path(environ.get("HOME") or Path.home()) / ".cache") / "edgespec"


class Stamp(Struct, frozen=True):
    """How a file looks from outside."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, path: Path | str) -> Stamp:
        s = os.stat(path)  # noqa: PTH116  # of text too
        return cls(s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino)


class InputFile(Struct, frozen=True):
    """A file as it was when it was hashed. Text is hashed and read with LF line ends, whatever it has on disk."""

    path: Path
    name: str
    """How messages call it, and, in a model, its name in the source digest."""
    sha256: str
    text: bool
    stamp: Stamp

    def read(self) -> bytes:
        """The very bytes that were hashed; raises EdgespecError when the file has changed since."""
        try:
            data = normalise(self.path.read_bytes(), text=self.text)
        except OSError:
            data = b""
        if sha256_hex(data) != self.sha256:
            raise self.changed()
        return data

    def check(self) -> None:
        """Raises EdgespecError when the file does not look as it did."""
        try:
            same = Stamp.of(self.path) == self.stamp
        except OSError:
            same = False
        if not same:
            self.read()

    def changed(self) -> Exception:
        return fail(
            "ES530",
            f"{self.name} was edited or removed while it was being built. "
            "The result was not kept; run the command again when the file is at rest.",
        )


def normalise(data: bytes, *, text: bool) -> bytes:
    return data.replace(b"\r\n", b"\n") if text else data


class Cache:
    """Raises EdgespecError (ES532) where the folder cannot be written."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._home = root / "v1"
        self._blobs = str(self._home / "blobs")
        self._stages = str(self._home / "stages")
        self._stats: dict[str, list[Any]] | None = None
        self._fresh: dict[str, list[Any]] = {}

    # --- digests of files

    def input(self, path: Path, name: str, *, text: bool) -> InputFile:
        """Hashes the file, or remembers its digest. Raises OSError for a file that cannot be read."""
        stamp, sha256 = self._hashed(str(path), text=text)
        return InputFile(path, name, sha256, text, stamp)

    def data_file(self, root: Path, name: str) -> InputFile:
        """A data file that a spec names, relative to `root`; Parquet alone is not text."""
        return self.input(root / name, name, text=not name.endswith(".parquet"))

    def _hashed(self, name: str, *, text: bool) -> tuple[Stamp, str]:
        """`name` is the file's path as text: a plan asks for dozens of files a spec, and paths are slow to make."""
        absolute = name if os.path.isabs(name) else str(Path(name).absolute())  # noqa: PTH117
        where = f"{absolute}{TEXT_MARK if text else ''}"
        stamp = Stamp.of(name)
        looks = [stamp.size, stamp.mtime_ns, stamp.ctime_ns, stamp.inode]
        known = self._fresh.get(where) or self._known().get(where)
        if known and known[:-1] == looks:
            return stamp, str(known[-1])
        path = Path(name)
        if text:
            sha256 = sha256_hex(normalise(path.read_bytes(), text=True))
        else:
            with path.open("rb") as f:
                sha256 = hashlib.file_digest(f, "sha256").hexdigest()
        if time.time_ns() - max(stamp.mtime_ns, stamp.ctime_ns) > RACY_NS and Stamp.of(name) == stamp:
            self._fresh[where] = [*looks, sha256]
        return stamp, sha256

    def _known(self) -> dict[str, list[Any]]:
        if self._stats is None:
            self._stats = self._load_stats()
        return self._stats

    def _load_stats(self) -> dict[str, list[Any]]:
        try:
            data = json.loads((self._home / "stat.json").read_bytes())
            return {k: v for k, v in data["files"].items() if isinstance(v, list) and len(v) == 5}
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            return {}

    def save(self) -> None:
        """Keeps the digests of files for the next process. Only speed depends on it: a full disk is no error here."""
        if not self._fresh:
            return
        merged = self._load_stats() | self._fresh
        if len(merged) > STATS_KEPT:
            merged = {k: v for k, v in merged.items() if Path(k.removesuffix(TEXT_MARK)).exists()}
        with contextlib.suppress(OSError):
            write_atomically(self._home / "stat.json", canonical_json({"files": merged}).encode())
        self._stats, self._fresh = merged, {}

    # --- blobs

    def put(self, data: bytes | memoryview) -> Blob:
        blob = Blob(hashlib.sha256(data).hexdigest(), len(data))
        path = self._blob_path(blob.sha256)
        if not self._is_whole(blob):
            with self._writing():
                write_atomically(path, data)
        return blob

    @contextlib.contextmanager
    def receive(self, blob: Blob) -> Iterator[IO[bytes]]:
        """A file to write a blob's bytes to as they arrive. It is kept when they are all there and are the right ones;
        ValueError otherwise."""
        path = self._blob_path(blob.sha256)
        with self._writing():
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=WRITING)
        try:
            with os.fdopen(handle, "w+b") as f:
                yield f
                f.flush()
                f.seek(0)
                if hashlib.file_digest(f, "sha256").hexdigest() != blob.sha256:
                    raise ValueError(f"the bytes of {blob.sha256[:12]} are others")
                os.fsync(f.fileno())
            with self._writing():
                Path(temporary).replace(path)
        finally:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
        flush_folder(path.parent)

    def holds(self, blob: Blob) -> bool:
        return self._is_whole(blob)

    def read(self, blob: Blob) -> bytes | None:
        """The verified bytes; None when they are not there or were damaged, and then deleted."""
        try:
            with open(self._blob_name(blob.sha256), "rb") as file:  # noqa: PTH123  # as text: see `_hashed`
                data = file.read()
        except OSError:
            return None
        if sha256_hex(data) != blob.sha256:
            self._drop(self._blob_path(blob.sha256))
            return None
        return data

    def path(self, sha256: str) -> Path | None:
        """Where a blob's verified bytes are; None when they are not there or were damaged, and then deleted."""
        if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
            return None
        path = self._blob_path(sha256)
        try:
            with path.open("rb") as f:
                found = hashlib.file_digest(f, "sha256").hexdigest()
        except OSError:
            return None
        if found != sha256:
            self._drop(path)
            return None
        return path

    def _blob_path(self, sha256: str) -> Path:
        return Path(self._blob_name(sha256))

    def _blob_name(self, sha256: str) -> str:
        return f"{self._blobs}{os.sep}{sha256[:2]}{os.sep}{sha256}"

    def _is_whole(self, blob: Blob) -> bool:
        """Cheap for a blob that has not been touched since it was last verified."""
        try:
            return self._hashed(self._blob_name(blob.sha256), text=False)[1] == blob.sha256
        except OSError:
            return False

    def _drop(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink()

    # --- stages

    def entry(self, stage: str, key: str) -> Entry | None:
        """The stage's result when it and every blob of it are whole, now the most recently used; what is broken is
        dropped."""
        path = self._entry_name(stage, key)
        try:
            with open(path, "rb") as file:  # noqa: PTH123  # as text: see `_hashed`
                entry = decode_entry(file.read())
        except OSError:
            return None
        except ValueError:
            self._drop(Path(path))
            return None
        broken = [b for b in entry.outputs.values() if not self._is_whole(b)]
        if broken:
            for blob in broken:
                self._drop(self._blob_path(blob.sha256))
            self._drop(Path(path))
            return None
        touch(path)
        return entry

    def commit(self, stage: str, key: str, entry: Entry) -> None:
        """Remembers the result; its blobs have been `put` before."""
        with self._writing():
            write_atomically(Path(self._entry_name(stage, key)), encode_entry(entry))

    def _entry_name(self, stage: str, key: str) -> str:
        return f"{self._stages}/{stage}/{key}.json"

    # --- together with other processes

    @contextlib.contextmanager
    def claim(self, stage: str, key: str, who: str, waiting: locks.Waiting) -> Iterator[None]:
        """Held while a stage runs, so that no other build runs it too. Look for the entry again inside of it: whoever
        was waited for has most likely made it. `who` is what others are told that they wait for."""
        with self._locked(locks.exclusive(self._home / "locks" / f"{stage}-{key}", who, waiting)):
            yield

    @contextlib.contextmanager
    def in_use(self, waiting: locks.Waiting) -> Iterator[None]:
        """Held while anything reads results: `sweep` removes nothing meanwhile."""
        with self._locked(locks.shared(self.use_lock, waiting)):
            yield

    @property
    def use_lock(self) -> Path:
        return self._home / "locks" / "in-use"

    @contextlib.contextmanager
    def _locked(self, lock: contextlib.AbstractContextManager[None]) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            with self._writing():
                stack.enter_context(lock)
            yield

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as why:
            raise fail(
                "ES532",
                f"{self.root}: {why.strerror or why}. Free some space there or make it writable, "
                "or name another folder in EDGESPEC_CACHE_DIR.",
            ) from None


def touch(path: Path | str) -> None:
    """Marks as used now; a folder that cannot be written remembers no uses."""
    with contextlib.suppress(OSError):
        os.utime(path)


def write_atomically(path: Path, data: bytes | memoryview) -> None:
    """The file has either its old or its new content, also after a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=WRITING)
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Makes renames in a folder durable, where the system has such a thing."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
