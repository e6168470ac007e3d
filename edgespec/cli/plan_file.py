"""Plan files, written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgespec.diagnostics import EdgespecError, error
from edgespec.files import write_whole


def write_plan(path: Path, document: Mapping[str, Any]) -> None:
    """Whole or not at all."""
    try:
        write_whole(path, (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode())
    except OSError as e:
        raise _cannot(path, e) from e


def plan_folder(path: Path) -> None:
    """Make sure that it is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise _cannot(path, e) from e


def _cannot(path: Path, e: OSError) -> EdgespecError:
    return EdgespecError(error("ES206", "The plan cannot be written", f"{path}: {e.strerror}."))
