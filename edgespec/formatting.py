"""`fmt`, wired: which files a project's layout is about, and how one of them is written anew."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgespec.diagnostics import EdgespecError, error
from edgespec.files import DiskFiles, write_whole
from edgespec.spec.document import Source, parse
from edgespec.spec.format import format_text
from edgespec.workspace import PROJECT_FILE

_SPECS: Final = ["specs/*.yaml"]
_RELEASES: Final = "releases/*.yaml"
_ENDINGS: Final = frozenset({".yaml", ".yml"})


@dataclass(frozen=True, slots=True)
class Formatted:
    """A file as it is and as it should be."""

    path: Path
    before: str
    after: str

    @property
    def changed(self) -> bool:
        return self.before != self.after


def project_files(root: Path) -> list[Path]:
    """edgespec.yaml, the specs that it names and the releases, whether they are valid or not."""
    files = DiskFiles(root)
    names = [PROJECT_FILE]
    for pattern in (*_patterns(root / PROJECT_FILE), _RELEASES):
        names += [n for n in files.glob(pattern) if n not in names]
    return [root / name for name in names]


def _patterns(path: Path) -> list[str]:
    found = parse(Source(path.name, read(path))).value
    specs = found[0].child("specs") if found else None
    if specs is None:
        return _SPECS
    return [item.value for item in specs.items if item.value is not None]


def files_below(folder: Path) -> list[Path]:
    """Every YAML file of a folder that no hidden folder holds."""
    found = []
    for at, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        found += [Path(at, n) for n in sorted(names) if Path(n).suffix in _ENDINGS]
    return found


def read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as e:
        raise EdgespecError(error("ES161", "File cannot be read", f"{path}: {e.strerror}.")) from e
    except UnicodeDecodeError as e:
        raise EdgespecError(error("ES162", "Not UTF-8", f"{path}: byte {e.start} is not UTF-8.")) from e


def formatted(path: Path) -> Formatted:
    before = read(path)
    return Formatted(path, before, format_text(Source(str(path), before)))


def write(found: Formatted) -> None:
    """The file in its new layout, whole or not at all, with the permissions that it had; a link stays one."""
    path = found.path.resolve()
    try:
        write_whole(path, found.after.encode(), keep_mode=True)
    except OSError as e:
        raise EdgespecError(error("ES751", "File cannot be written", f"{found.path}: {e.strerror}.")) from e
