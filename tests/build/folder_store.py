"""The shared cache in a folder: a store that processes can open by its path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import IO

from edgespec.build.remote import RemoteCache, RemoteError
from edgespec.diagnostics import Diagnostic


class FolderStore:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.name = f"the folder {root}"

    def size(self, key: str) -> int | None:
        path = self.root / key
        return path.stat().st_size if path.is_file() else None

    def read(self, key: str, limit: int) -> bytes | None:
        path = self.root / key
        return path.read_bytes()[:limit] if path.is_file() else None

    def download(self, key: str, limit: int, out: IO[bytes], going_on: Callable[[], None]) -> bool:
        data = self.read(key, limit)
        if data is not None:
            out.write(data)
        return data is not None

    def upload(self, key: str, path: Path, sha256: str, going_on: Callable[[], None]) -> None:
        self.create(key, path.read_bytes(), replace=True)

    def create(self, key: str, data: bytes, *, replace: bool) -> bool:
        path = self.root / key
        if path.exists() and not replace:
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return True


def open_folder(root: str) -> RemoteCache:
    return RemoteCache(FolderStore(Path(root)), _refuse)


def _refuse(found: Diagnostic) -> None:
    raise RemoteError(str(found))
