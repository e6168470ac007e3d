"""The plan files that a change request's plan kept: which commit's, and what may be unpacked of them."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path, PurePosixPath
from typing import Final

from edgespec.ci.api import LARGEST
from edgespec.diagnostics import EdgespecError, error

SUFFIX: Final = ".plan.json"
REPLAN: Final = (
    "Plan the branch as it is now and apply that: run the plan workflow by hand, read its plan, and give its number to "
    "the apply workflow (docs/ci.md)."
)


def nothing_merged(commit: str, branch: str) -> EdgespecError:
    detail = f"Commit {commit[:12]} came to {branch} without a change request, so nobody has reviewed a plan. {REPLAN}"
    return EdgespecError(error("ES744", "No reviewed plan", detail))


def none_kept(artifact: str, where: str) -> EdgespecError:
    detail = f"The change request kept no `{artifact}` ({where}): its plan failed, or was kept too long ago. {REPLAN}"
    return EdgespecError(error("ES744", "No reviewed plan", detail))


def unpack(data: bytes, folder: Path) -> list[Path]:
    """The plan files of a ZIP file into `folder`, by their own names whatever folder they were in; everything else in
    it is left. Raises where it is not whole, too large, or has two of a name."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            names = [i for i in packed.infolist() if not i.is_dir() and i.filename.endswith(SUFFIX)]
            if sum(i.file_size for i in names) > LARGEST:
                raise _damaged(f"more than {LARGEST >> 20} MiB when unpacked")
            texts = {_name(i.filename): packed.read(i) for i in names}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as e:
        raise _damaged(str(e)) from e
    if len(texts) < len(names):
        raise _damaged("two plan files have the same name")
    if not texts:
        raise _damaged("it holds no plan file")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_bytes(text)
    return [folder / name for name in sorted(texts)]


def _name(path: str) -> str:
    name = PurePosixPath(path.replace("\\", "/")).name
    if name == SUFFIX or "\0" in name:
        raise _damaged(f"{name!r} is no name of a plan file")
    return name


def _damaged(why: str) -> EdgespecError:
    return EdgespecError(error("ES745", "The kept plans are damaged", f"{why}. {REPLAN}"))
