"""What a build says while it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct


class BuildEvent(Struct, frozen=True):
    stage: str
    message: str
    fraction: float | None = None
    """How much of the stage is done, 0 to 1, where that can be told."""
    cached: bool = False
    """The stage's result was in the cache: nothing ran."""


Progress: TypeAlias = Callable[[BuildEvent], None]
