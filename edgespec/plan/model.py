"""Plan, Change (for people) and Step (for the applier)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from edgespec.address import Address
from edgespec.resources.base import DesiredState, FieldChange
from edgespec.resources.facts import BuildFacts
from edgespec.state.model import Key, State
from edgespec.values import Inputs, Outputs


class Action(StrEnum):
    NOOP = "no-op"
    CREATE = "create"
    ADOPT = "adopt"
    UPDATE = "update"
    REPLACE = "replace"
    DELETE = "delete"


class Reason(StrEnum):
    """Why, where the fields alone do not say it."""

    NONE = "none"
    CANNOT_UPDATE = "cannot-update"
    NOT_IN_SPEC = "not-in-spec"
    DRIFTED = "drifted"
    MISSING_REMOTELY = "missing-remotely"
    INTERRUPTED = "interrupted"
    DEPOSED = "deposed"
    EXISTS = "exists-unmanaged"
    DESTROY = "destroy"


@dataclass(frozen=True, slots=True)
class Change:
    key: Key
    action: Action
    before: Inputs | None
    after: Inputs | None
    fields: tuple[FieldChange, ...] = ()
    reason: Reason = Reason.NONE
    owners: tuple[str, ...] = ()

    @property
    def address(self) -> Address:
        return self.key.address


class StepKind(StrEnum):
    CREATE = "create"
    ADOPT = "adopt"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, order=True)
class StepId:
    kind: StepKind
    key: Key

    def __str__(self) -> str:
        return f"{self.kind}:{self.key}"


@dataclass(frozen=True, slots=True)
class Step:
    id: StepId
    needs: frozenset[StepId]


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What is live. `state` has every record that still exists, as observed.

    `unmanaged` are objects that carry the name of a desired resource but are not in state.
    """

    state: State
    unmanaged: Mapping[Address, tuple[Inputs, Outputs]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """`steps` are in an order that keeps every need; the applier follows them and decides nothing."""

    spec_digest: str
    refreshed: State
    desired: DesiredState
    changes: tuple[Change, ...]
    steps: tuple[Step, ...]
    builds: Mapping[Address, BuildFacts] = field(default_factory=dict)
    """For each model: its pipeline, what of it is in the cache, which engine and why."""

    @property
    def is_empty(self) -> bool:
        return not self.steps

    def count(self, *actions: Action) -> int:
        return sum(c.action in actions for c in self.changes)
