"""What happens during an apply, as values: renderers turn them into lines, a live view or JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from edgespec.diagnostics import Diagnostics
from edgespec.plan.model import StepId
from edgespec.state.model import State
from edgespec.values import Outputs


class Outcome(StrEnum):
    DONE = "done"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    SKIPPED = "skipped"
    LEFT = "left"
    """Not started, or given up, since the run was told to stop."""


@dataclass(frozen=True, slots=True)
class StepStarted:
    step: StepId


@dataclass(frozen=True, slots=True)
class StepProgress:
    step: StepId
    message: str
    fraction: float | None = None


@dataclass(frozen=True, slots=True)
class StepFinished:
    step: StepId
    outcome: Outcome
    outputs: Outputs | None = None
    diagnostics: Diagnostics = Diagnostics()


Event: TypeAlias = StepStarted | StepProgress | StepFinished
OnEvent: TypeAlias = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """How an apply ended: the state that it left, and what became of each step."""

    state: State
    outcomes: Mapping[StepId, Outcome]
    diagnostics: Diagnostics = Diagnostics()
    interrupted: bool = False
    """The run was told to stop, and left steps to the next."""

    def count(self, *outcomes: Outcome) -> int:
        return sum(o in outcomes for o in self.outcomes.values())
