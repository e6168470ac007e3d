"""Where the bytes of an artifact come from when they must be uploaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

Blobs: TypeAlias = Callable[[str, str], Callable[[str], Path]]
"""(spec name, artifact digest) -> (SHA-256 -> file). Builds the artifact again when the cache no longer has it."""
StatementOf: TypeAlias = Callable[[str, str], bytes | None]
"""(spec name, artifact digest) -> the envelope with its provenance statement; None where there is none."""


def no_statement(name: str, artifact: str) -> bytes | None:
    return None
