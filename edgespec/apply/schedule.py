"""Which step may start next: one whose needs are done, within how many may run at once.

Steps start in the plan's order as far as their needs allow, so that one at a time is exactly the plan's order. Some
types have limits of their own: models are built one at a time, since a build may take most of a machine; and a delete
of a type whose records may name the same content (weights, pinned chunks, versions of one script) runs alone among its
type, and among those that may name the same objects. It keeps what other records name, and a create takes what it
finds: at the same time, each could rely on what the other is taking away, and two deletes could each leave the same
object to the other.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from edgespec.plan.events import Outcome
from edgespec.plan.model import Step, StepId, StepKind
from edgespec.resources.base import family

LIMITS: Final[Mapping[str, int]] = {"model": 1}
"""Steps of a type at once."""
INDEPENDENT: Final = frozenset({"model", "r2_bucket", "kv_namespace", "deployment"})
"""Types whose records share nothing: their deletes need not be alone."""
_BAD: Final = frozenset({Outcome.FAILED, Outcome.SKIPPED, Outcome.LEFT})


class Schedule:
    """Not safe for threads: one of them asks and tells."""

    def __init__(self, steps: Sequence[Step], parallelism: int) -> None:
        self._parallelism = parallelism
        self._steps = [s.id for s in steps]
        self._index = {s.id: i for i, s in enumerate(steps)}
        self._missing = {s.id: len(s.needs) for s in steps}
        self._users: dict[StepId, list[StepId]] = {}
        self._waiting: dict[str, list[int]] = {}
        self._running: dict[str, set[StepId]] = {}
        self._count = 0
        self._skipped: set[StepId] = set()
        for step in steps:
            for need in step.needs:
                self._users.setdefault(need, []).append(step.id)
            if not step.needs:
                self._add(step.id)

    @property
    def running(self) -> int:
        return self._count

    def start(self) -> Iterator[StepId]:
        """The steps that start now; each counts as running until it is `finished`."""
        while self._count < self._parallelism:
            free = [(queue[0], type_) for type_, queue in self._waiting.items() if queue and self._has_room(type_)]
            if not free:
                return
            index, type_ = min(free)
            heapq.heappop(self._waiting[type_])
            step = self._steps[index]
            self._running.setdefault(family(type_), set()).add(step)
            self._count += 1
            yield step

    def finished(self, step: StepId, outcome: Outcome) -> tuple[StepId, ...]:
        """What is skipped since this step did not end well: all that needs it, in the plan's order."""
        self._running[family(step.key.address.type)].discard(step)
        self._count -= 1
        if outcome in _BAD:
            return self._skip(step)
        for user in self._users.get(step, ()):
            self._missing[user] -= 1
            if not self._missing[user] and user not in self._skipped:
                self._add(user)
        return ()

    def _skip(self, step: StepId) -> tuple[StepId, ...]:
        found: set[StepId] = set()
        pending = [step]
        while pending:
            for user in self._users.get(pending.pop(), ()):
                if user not in self._skipped:
                    self._skipped.add(user)
                    found.add(user)
                    pending.append(user)
        return tuple(sorted(found, key=self._index.__getitem__))

    def _add(self, step: StepId) -> None:
        heapq.heappush(self._waiting.setdefault(step.key.address.type, []), self._index[step])

    def _has_room(self, type_: str) -> bool:
        running = self._running.get(family(type_))
        if not running:
            return True
        if len(running) >= LIMITS.get(type_, self._parallelism):
            return False
        if type_ in INDEPENDENT:
            return True
        alone = {StepKind.DELETE}
        return self._steps[self._waiting[type_][0]].kind not in alone and not any(s.kind in alone for s in running)
