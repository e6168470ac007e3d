"""Locks between processes on files, kept by the operating system: a holder that dies, even by SIGKILL, lets go."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

Waiting = Callable[[str], None]
"""Told once who holds the lock, before waiting for it."""

_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EROFS, errno.EACCES, errno.EPERM})
"""What a file system says that has no locks, or that cannot be written: work goes on without, for writes are atomic."""


@contextlib.contextmanager
def exclusive(path: Path, who: str, waiting: Waiting) -> Iterator[None]:
    """Alone until the block ends. The file is gone afterwards; one that a killed process left is taken over."""
    handle = _take(path, fcntl.LOCK_EX, waiting)
    try:
        if handle is not None:
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()} ({who})".encode(), 0)
        yield
    finally:
        if handle is not None:
            with contextlib.suppress(OSError):
                path.unlink()  # while it is still held: whoever waits sees that the file is another and opens it anew
            os.close(handle)


@contextlib.contextmanager
def shared(path: Path, waiting: Waiting) -> Iterator[None]:
    """Together with other sharers, never with an exclusive holder."""
    handle = _take(path, fcntl.LOCK_SH, waiting)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def try_exclusive(path: Path) -> int | None:
    """A handle to close when done, or None at once where another holds the lock. The file stays."""
    handle = _open(path)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except BaseException:
        os.close(handle)
        raise
    return handle


def _take(path: Path, kind: int, waiting: Waiting) -> int | None:
    """The handle; None where locks cannot be had."""
    told = False
    while True:
        try:
            handle = _open(path)
        except OSError as why:
            if why.errno in _NO_LOCKS:
                return None
            raise
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if not told:
                waiting(_holder(handle))
                told = True
            _wait(handle, kind)
        except OSError as why:
            os.close(handle)
            if why.errno in _NO_LOCKS:
                return None
            raise
        except BaseException:
            os.close(handle)
            raise
        if _is_still(path, handle):
            return handle
        os.close(handle)


def _wait(handle: int, kind: int) -> None:
    try:
        fcntl.flock(handle, kind)
    except BaseException:
        os.close(handle)
        raise


def _open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)  # Python's handles are not inherited by a stage's tools


def _is_still(path: Path, handle: int) -> bool:
    """Whether the locked file is the one at `path`: the last holder may have removed it."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _holder(handle: int) -> str:
    text = os.pread(handle, 500, 0).decode("utf-8", "replace").strip()
    return text or "another process"
