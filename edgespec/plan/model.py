"""Plan, Change (for people) and Step (for the applier)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct, field

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
    MOVE = "move"
    """Only its address changes, in state; nothing live is touched."""


class Reason(StrEnum):
    """Why; the fields say what. `none` is for what stays as it is."""

    NONE = "none"
    NEW = "new"
    CHANGED = "changed"
    RENAMED = "renamed"
    CANNOT_UPDATE = "cannot-update"
    NOT_IN_SPEC = "not-in-spec"
    DRIFTED = "drifted"
    MISSING_REMOTELY = "missing-remotely"
    INTERRUPTED = "interrupted"
    DEPOSED = "deposed"
    EXISTS = "exists-unmanaged"
    DESTROY = "destroy"


class Change(Struct, frozen=True):
    key: Key
    action: Action
    before: Inputs | None
    after: Inputs | None
    fields: tuple[FieldChange, ...] = ()
    reason: Reason = Reason.NONE
    owners: tuple[str, ...] = ()
    protected: bool = False
    """By `prevent_destroy`: of the spec, or for what no spec asks for any more, as state remembers it."""
    moved_from: Address | None = None

    @property
    def address(self) -> Address:
        return self.key.address


class StepKind(StrEnum):
    CREATE = "create"
    ADOPT = "adopt"
    UPDATE = "update"
    DELETE = "delete"


class StepId(Struct, frozen=True, order=True):
    kind: StepKind
    key: Key

    def __str__(self) -> str:
        return f"{self.kind}:{self.key}"


class Step(Struct, frozen=True):
    id: StepId
    needs: frozenset[StepId]


class Refreshed(Struct, frozen=True):
    """What is live. `state` has every record that still exists, as observed.

    `unmanaged` are objects that carry the name of a desired resource but are not in state.
    """

    state: State
    unmanaged: Mapping[Address, tuple[Inputs, Outputs]] = field(default_factory=dict)


class Request(Struct, frozen=True):
    """What a person asked to plan. Two plans are the same only if their requests are."""

    names: tuple[str, ...] = ()
    """Only what these specs own, and all that it needs."""
    destroy: bool = False
    targets: tuple[Address, ...] = ()
    """Only these, and all that they need."""
    excludes: tuple[Address, ...] = ()
    """All but these, and but what cannot be done without them."""
    refresh_only: bool = False
    """Nothing but state is changed: it becomes what is live."""
    allow_destroy: bool = False


EVERYTHING: Final = Request()


class DriftKind(StrEnum):
    CHANGED = "changed"
    GONE = "gone"


class Drift(Struct, frozen=True):
    """What is live differs from what state says; `fields` go from state to live."""

    key: Key
    kind: DriftKind
    fields: tuple[FieldChange, ...] = ()


class Contents(Struct, frozen=True):
    """What a bucket or namespace holds, and so what goes with it."""

    objects: int
    size: int | None
    """Bytes; None where the API does not say."""
    foreign: int = 0
    """Objects that edgespec did not put there."""


class Plan(Struct, frozen=True):
    """`steps` are in an order that keeps every need; the applier follows them and decides nothing."""

    spec_digest: str
    refreshed: State
    desired: DesiredState
    changes: tuple[Change, ...]
    steps: tuple[Step, ...]
    builds: Mapping[Address, BuildFacts] = field(default_factory=dict)
    """For each model: its pipeline, what of it is in the cache, which engine and why."""
    request: Request = EVERYTHING
    drift: tuple[Drift, ...] = ()
    moved: Mapping[Address, Address] = field(default_factory=dict)
    """New address -> old one, of what `renamed_from` moves; `refreshed` has them at the new ones."""
    protections: Mapping[Address, bool] = field(default_factory=dict)
    """What `prevent_destroy` comes to protect, and from what it is lifted: state is told."""
    withheld: tuple[Address, ...] = ()
    """What would change, and is left as it is because of an exclusion."""
    contents: Mapping[Key, Contents] = field(default_factory=dict)
    """What the buckets and namespaces hold that this plan removes."""
    unreleased: tuple[str, ...] = ()
    """Specs that the environment does not deploy, since nothing of them was promoted to it yet."""

    @property
    def is_empty(self) -> bool:
        """Nothing to carry out, and nothing that a person should see before state is told of it."""
        refreshed = self.request.refresh_only and self.drift
        return not self.steps and not self.moved and not self.protections and not refreshed

    def count(self, *actions: Action) -> int:
        return sum(c.action in actions for c in self.changes)
