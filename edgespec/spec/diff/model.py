"""What a comparison says: one note a thing that differs, each with its risk."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class Risk(StrEnum):
    """What can go wrong for users: nothing that is not easily undone, something, or something that is lost."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


_ORDER: Final = tuple(Risk)


def worst(risks: Iterable[Risk]) -> Risk:
    """LOW where there is none."""
    return max(risks, key=_ORDER.index, default=Risk.LOW)


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that differs. `before` and `after` are JSON values, None where there is none."""

    facet: str
    """build, task, quality, regions, ...: what it is about."""
    path: str
    """Of the field, dotted; empty where it is about more than one."""
    said: str
    """For people, on one line."""
    risk: Risk = Risk.LOW
    why: str = ""
    """Why the risk is not low, as a sentence without a full stop."""
    before: Any = None
    after: Any = None
