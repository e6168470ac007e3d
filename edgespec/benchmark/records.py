"""Measurements of a project, `.edgespec/bench/<artifact digest>.json`: one a deployed artifact, the last one kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from edgespec import assets
from edgespec.diagnostics import Diagnostic, EdgespecError, error, warning
from edgespec.files import write_whole
from edgespec.workspace import STATE_DIR

if TYPE_CHECKING:
    from pydantic import BaseModel

    from edgespec.measurement import BenchDocument


def record_path(root: Path, artifact: str) -> Path:
    return root / STATE_DIR / "bench" / f"{artifact}.json"


def keep(root: Path, document: BenchDocument) -> Path:
    """Writes it whole or not at all; raises ES412 where the folder cannot be written."""
    return write(record_path(root, document.artifact), document)


def write(path: Path, document: BaseModel) -> Path:
    """Likewise, whatever was measured."""
    text = json.dumps(document.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode())
    except OSError as e:
        raise EdgespecError(error("ES412", "The measurement cannot be kept", f"{path}: {e.strerror}.")) from e
    return path


def load(root: Path, artifact: str) -> tuple[BenchDocument | None, list[Diagnostic]]:
    """The artifact's measurement; a file that cannot be used is as good as none, with a warning."""
    path = record_path(root, artifact)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None, []
    except (OSError, ValueError) as e:
        return None, [_unusable(path, str(e))]
    if (wrong := assets.schema_error("bench", document)) is not None:
        return None, [_unusable(path, wrong)]
    from edgespec.measurement import BenchDocument  # here: most plans find no measurement

    return BenchDocument.model_validate(document), []


def _unusable(path: Path, why: str) -> Diagnostic:
    detail = f"{path}: {why}. It counts as not measured; run `edgespec bench` again or delete it."
    return warning("ES219", "A measurement cannot be used", detail)
