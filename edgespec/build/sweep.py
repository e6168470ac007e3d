"""What is in the cache, and making it smaller.

A result is an entry with its blobs; blobs are shared between entries. What came from a hub or a package index is a
folder. Both are used or not: their time of change is when they were last used. Nothing is removed while a build runs.
A sweep that is killed leaves blobs that nothing names, and the next one removes them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from edgespec.build.cache import WRITING, Cache
from edgespec.build.entries import Entry, decode_entry
from edgespec.build.locks import try_exclusive
from edgespec.build.problems import fail

UNUSED: Final = "unreferenced"
"""Blobs that no entry names, and files of builds that were killed."""
_FRESH_S: Final = 3600
"""A file that is being written and is younger than this may be a plan's, which does not hold the cache."""
_DOWNLOADS: Final = {"packages": "packages/*/*", "hubs": "hubs/*/*/*/*"}


@dataclass(frozen=True, slots=True)
class Kept:
    """A result or a downloaded model."""

    kind: str
    """The stage; `packages` or `hubs`."""
    path: Path
    used: float
    """Seconds since the epoch."""
    blobs: tuple[str, ...] = ()
    size: int = 0
    """Bytes of a download; a result's are its blobs'."""


@dataclass(frozen=True, slots=True)
class Row:
    """One stage's share. Blobs that two entries of it name are counted once."""

    stage: str
    entries: int
    bytes: int
    oldest: float | None
    newest: float | None


@dataclass(slots=True)
class Contents:
    kept: list[Kept] = field(default_factory=list)
    blobs: dict[str, tuple[Path, int]] = field(default_factory=dict)
    """SHA-256 -> where, and bytes."""
    litter: dict[Path, int] = field(default_factory=dict)
    """What is of no use to anyone, with its bytes."""

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.blobs.values()) + sum(k.size for k in self.kept) + sum(self.litter.values())

    def rows(self) -> list[Row]:
        """By stage; what nothing uses comes last."""
        rows = []
        for kind in sorted({k.kind for k in self.kept}):
            of = [k for k in self.kept if k.kind == kind]
            named = {sha for k in of for sha in k.blobs}
            size = sum(self.blobs[sha][1] for sha in named) + sum(k.size for k in of)
            rows.append(Row(kind, len(of), size, min(k.used for k in of), max(k.used for k in of)))
        unused = self.unused()
        if unused or self.litter:
            size = sum(self.blobs[sha][1] for sha in unused) + sum(self.litter.values())
            rows.append(Row(UNUSED, len(unused) + len(self.litter), size, None, None))
        return rows

    def unused(self) -> set[str]:
        return set(self.blobs) - {sha for k in self.kept for sha in k.blobs}


@dataclass(frozen=True, slots=True)
class Swept:
    """What was removed, or with `dry_run` would be, and what is left."""

    entries: int
    downloads: int
    blobs: int
    bytes: int
    left: int
    """Bytes."""


def contents(cache: Cache, now: float) -> Contents:
    """All that the cache's folder holds of results and models; reads, and removes nothing. `now`: seconds since the
    epoch. An entry that is damaged, or that has lost a blob, is litter: no build would take it."""
    found = Contents()
    home = cache.root / "v1"
    for path in sorted(home.glob("blobs/*/*")):
        size = _size(path)
        if size is None:
            continue
        if path.name.startswith(WRITING):
            _note_unfinished(found, path, size, now)
        else:
            found.blobs[path.name] = (path, size)
    for path in sorted(home.glob("stages/*/*")):
        _note_entry(found, path, now)
    for kind, pattern in _DOWNLOADS.items():
        for folder in sorted(p for p in cache.root.glob(pattern) if p.is_dir()):
            if folder.name.startswith("."):
                found.litter[folder] = _tree_size(folder)
            else:
                found.kept.append(Kept(kind, folder, folder.stat().st_mtime, size=_tree_size(folder)))
    return found


def _note_unfinished(found: Contents, path: Path, size: int, now: float) -> None:
    with contextlib.suppress(OSError):
        if now - path.stat().st_mtime > _FRESH_S:
            found.litter[path] = size


def _note_entry(found: Contents, path: Path, now: float) -> None:
    size = _size(path)
    if size is None:
        return
    if path.name.startswith(WRITING):
        _note_unfinished(found, path, size, now)
        return
    entry = _entry(path)
    if entry is None or any(b.sha256 not in found.blobs for b in entry.outputs.values()):
        found.litter[path] = size
        return
    blobs = tuple(sorted({b.sha256 for b in entry.outputs.values()}))
    found.kept.append(Kept(path.parent.name, path, path.stat().st_mtime, blobs))


def sweep(
    cache: Cache, now: float, *, older_than: float | None = None, max_size: int | None = None, dry_run: bool = False
) -> Swept:
    """Removes what nothing names, what was not used for `older_than` seconds and, the least recently used first, what
    is beyond `max_size` bytes. Raises EdgespecError (ES536) when a build uses the cache."""
    with contextlib.ExitStack() as stack:
        if not dry_run:
            stack.enter_context(_alone(cache))
        found = contents(cache, now)
        doomed = _choose(found, now, older_than, max_size)
        before = found.bytes
        found.kept = [k for k in found.kept if k not in doomed]
        unused = found.unused()
        freed = sum(found.blobs[s][1] for s in unused) + sum(k.size for k in doomed) + sum(found.litter.values())
        if not dry_run:
            _remove(cache, [k.path for k in doomed] + list(found.litter), [found.blobs[s][0] for s in unused])
    downloads = sum(1 for k in doomed if k.kind in _DOWNLOADS)
    return Swept(len(doomed) - downloads, downloads, len(unused), freed, before - freed)


def _choose(found: Contents, now: float, older_than: float | None, max_size: int | None) -> set[Kept]:
    """What to give up of what is kept."""
    oldest_first = sorted(found.kept, key=lambda k: (k.used, str(k.path)))
    doomed = {k for k in oldest_first if older_than is not None and now - k.used > older_than}
    if max_size is None:
        return doomed
    named = Counter(sha for k in oldest_first if k not in doomed for sha in k.blobs)
    size = sum(found.blobs[sha][1] for sha in named) + sum(k.size for k in oldest_first if k not in doomed)
    for kept in oldest_first:
        if size <= max_size:
            break
        if kept in doomed:
            continue
        doomed.add(kept)
        named.subtract(kept.blobs)
        size -= kept.size + sum(found.blobs[sha][1] for sha in kept.blobs if named[sha] == 0)
    return doomed


@contextlib.contextmanager
def _alone(cache: Cache) -> Iterator[None]:
    try:
        handle = try_exclusive(cache.use_lock)
    except OSError as why:
        raise fail(
            "ES532", f"{cache.root}: {why.strerror or why}. Make it writable and run the command again."
        ) from None
    if handle is None:
        raise fail(
            "ES536", f"A build is using {cache.root}. Nothing was removed; run the command again when it is done."
        )
    try:
        yield
    finally:
        os.close(handle)


def _remove(cache: Cache, first: list[Path], blobs: list[Path]) -> None:
    """Entries before their blobs, so that a sweep that is killed leaves no entry without its blobs."""
    for path in first:
        if path.is_dir():
            hidden = path.with_name(f".removing-{path.name}")
            with contextlib.suppress(OSError):
                path.rename(hidden)
            shutil.rmtree(hidden, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()
    for path in blobs:
        with contextlib.suppress(OSError):
            path.unlink()
    for lock in (cache.root / "v1" / "locks").glob("*"):
        if lock != cache.use_lock:  # no build is running: what is left was a killed one's
            with contextlib.suppress(OSError):
                lock.unlink()


def _entry(path: Path) -> Entry | None:
    try:
        return decode_entry(path.read_bytes())
    except (OSError, ValueError):
        return None


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size if path.is_file() else None
    except OSError:
        return None


def _tree_size(folder: Path) -> int:
    return sum(_size(p) or 0 for p in folder.rglob("*") if not p.is_symlink())
