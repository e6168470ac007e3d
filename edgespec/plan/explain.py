"""Why each step waits, read from the very steps that an apply follows: an explanation cannot say anything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgespec.plan.content import PLACES
from edgespec.plan.model import Step, StepId, StepKind
from edgespec.resources.base import family


@dataclass(frozen=True, slots=True)
class Wait:
    step: StepId
    why: str


@dataclass(frozen=True, slots=True)
class Explained:
    """One step, and whom it waits for; others that these wait for themselves are not repeated."""

    number: int
    step: StepId
    waits: tuple[Wait, ...]


def explain(steps: Sequence[Step]) -> tuple[Explained, ...]:
    """The steps in their order, numbered from 1."""
    before: dict[StepId, frozenset[StepId]] = {}
    found = []
    for number, step in enumerate(steps, 1):
        implied: frozenset[StepId] = frozenset().union(*(before.get(n, frozenset()) for n in step.needs))
        before[step.id] = step.needs | implied
        direct = sorted(step.needs - implied)
        found.append(Explained(number, step.id, tuple(Wait(n, why(step.id, n)) for n in direct)))
    return tuple(found)


def why(step: StepId, need: StepId) -> str:
    """Why `step` is not done before `need` is."""
    if step.key.address == need.key.address:
        if step.kind is StepKind.DELETE:
            return "the new one comes first"
        return "the old one has to go first"
    if step.kind is StepKind.DELETE:
        if need.kind is StepKind.DELETE:
            return "it was used by this"
        types = step.key.address.type, need.key.address.type
        takes_over = types[0] in PLACES and family(types[0]) == family(types[1])
        return "what both have is to stay" if takes_over else "this has to move away from it first"
    return "it needs this"


def numbers(explained: Sequence[Explained]) -> Mapping[StepId, int]:
    return {e.step: e.number for e in explained}
