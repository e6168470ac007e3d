"""A store of the shared cache in memory, which notes every call and can be down."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import IO

from edgespec.build.remote import RemoteError


class MemoryStore:
    name = "the bucket memory"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.calls: list[str] = []
        self.down: str | None = None

    def _call(self, what: str) -> None:
        self.calls.append(what)
        if self.down is not None:
            raise RemoteError(self.down)

    def size(self, key: str) -> int | None:
        self._call(f"size {key}")
        return len(self.objects[key]) if key in self.objects else None

    def read(self, key: str, limit: int) -> bytes | None:
        self._call(f"read {key}")
        return self.objects[key][:limit] if key in self.objects else None

    def download(self, key: str, limit: int, out: IO[bytes], going_on: Callable[[], None]) -> bool:
        self._call(f"download {key}")
        if key not in self.objects:
            return False
        for i in range(0, min(limit, len(self.objects[key])), 3):
            out.write(self.objects[key][:limit][i : i + 3])
            going_on()
        return True

    def upload(self, key: str, path: Path, sha256: str, going_on: Callable[[], None]) -> None:
        self._call(f"upload {key}")
        going_on()
        self.objects[key] = path.read_bytes()

    def create(self, key: str, data: bytes, *, replace: bool) -> bool:
        self._call(f"create {key}")
        if key in self.objects and not replace:
            return False
        self.objects[key] = data
        return True
