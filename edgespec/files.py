"""Where a project's files are read from: a folder on disk, or whatever else answers the same two questions. And how
files that people keep are written."""

from __future__ import annotations

import contextlib
import glob
import shutil
from pathlib import Path
from typing import Protocol

from msgspec import Struct


class Files(Protocol):
    """The files of one project. Names are relative to edgespec.yaml, with slashes."""

    def glob(self, pattern: str) -> list[str]:
        """The names of the files that match, sorted; `**` matches any number of folders."""
        ...

    def read(self, path: str) -> bytes:
        """A file's content; raises OSError where it cannot be read."""
        ...


class DiskFiles(Struct, frozen=True):
    """The files below a folder, as they are now."""

    root: Path

    def glob(self, pattern: str) -> list[str]:
        found = glob.glob(pattern, root_dir=self.root, recursive=True)  # noqa: PTH207  # relative names are wanted
        return sorted(Path(name).as_posix() for name in found)

    def read(self, path: str) -> bytes:
        return (self.root / path).read_bytes()


def write_whole(path: Path, data: bytes, *, keep_mode: bool = False) -> None:
    """The file has its old content or the new one, also where writing it fails: raises OSError. `keep_mode`: with the
    permissions that it had."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_bytes(data)
        if keep_mode:
            shutil.copymode(path, temporary)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
