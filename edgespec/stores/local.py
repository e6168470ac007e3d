"""State in a local file: locked by the operating system, written to a temporary file, synced, renamed.

A crash at any moment leaves the old file or the new one, never half of either. The version before the last apply is
kept beside it as `<name>.backup`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from edgespec.diagnostics import EdgespecError, error
from edgespec.state.codec import check_format, decode, encode
from edgespec.state.model import State


class LocalStore:
    """`validate(document)` returns what is wrong with it by its JSON Schema, or nothing."""

    def __init__(self, path: Path, validate: Callable[[Any], str | None]) -> None:
        self.path = path
        self._validate = validate
        self._backed_up = False

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Held until the block ends, or the process does. Another holder is an error at once."""
        path = self._beside(".lock")
        with self._open_lock(path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                holder = file.read().strip() or "another process"
                detail = f"{holder} is applying to this environment ({path}). Wait for it to end and run again."
                raise EdgespecError(error("ES304", "State is locked", detail)) from None
            file.seek(0)
            file.truncate()
            file.write(f"process {os.getpid()}")
            file.flush()
            self._backed_up = False
            yield

    def load(self) -> State | None:
        """None when nothing was ever applied; raises when the file cannot be trusted."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as e:
            raise EdgespecError(error("ES301", "State cannot be read", f"{self.path}: {e}.")) from e
        try:
            document = json.loads(text)
        except json.JSONDecodeError as e:
            detail = (
                f"{self.path}:{e.lineno}:{e.colno}: {e.msg}. Restore it from {self.path.name}.backup or from version "
                "control; nothing was changed."
            )
            raise EdgespecError(error("ES301", "State cannot be read", detail)) from e
        check_format(document, str(self.path))
        if (wrong := self._validate(document)) is not None:
            raise EdgespecError(error("ES301", "State cannot be read", f"{self.path}: {wrong}."))
        return decode(document)

    def _open_lock(self, path: Path) -> IO[str]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return path.open("a+", encoding="utf-8")
        except OSError as e:
            raise _unwritable(path, e) from e

    def save(self, state: State) -> State:
        """Write `state` under the next serial; raises, with the old file untouched, when the disk refuses.

        The caller holds the lock."""
        written = replace(state, serial=state.serial + 1)
        try:
            self._write(encode(written))
        except OSError as e:
            self._beside(".tmp").unlink(missing_ok=True)
            raise _unwritable(self.path, e) from e
        return written

    def _write(self, text: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self._backed_up and self.path.exists():
            shutil.copy2(self.path, self._beside(".backup.tmp"))
            self._beside(".backup.tmp").replace(self._beside(".backup"))
        self._backed_up = True  # what this run writes from here on is no version before it
        temporary = self._beside(".tmp")
        temporary.unlink(missing_ok=True)  # of a killed run
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)


def _unwritable(path: Path, e: OSError) -> EdgespecError:
    detail = f"{path}: {e.strerror or e}. Make room or give the folder to this user, then run again."
    return EdgespecError(error("ES308", "State cannot be written", detail))
