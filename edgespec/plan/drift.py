"""What is live against what state says: nobody's specs are asked."""

from __future__ import annotations

from collections.abc import Iterator

from edgespec.plan.model import Drift, DriftKind
from edgespec.resources.base import FieldChange
from edgespec.resources.compile import TYPES
from edgespec.state.model import ResourceRecord, State, Status

INCOMPLETE = "incomplete"


def drift_of(previous: State, live: State) -> tuple[Drift, ...]:
    """Every record that is live in another way than state says. What an interrupted apply was making or deleting, and
    is not there, is no drift: nobody else has touched it."""
    found = []
    for key in sorted(previous.records):
        was, now = previous.records[key], live.records.get(key)
        if now is None:
            if was.status in (Status.READY, Status.UPDATING):
                found.append(Drift(key, DriftKind.GONE))
        elif now != was and (fields := tuple(_fields(was, now))):
            found.append(Drift(key, DriftKind.CHANGED, fields))
    return tuple(found)


def _fields(was: ResourceRecord, now: ResourceRecord) -> Iterator[FieldChange]:
    yield from TYPES[was.address.type].diff(was.inputs, now.inputs).fields
    for name in sorted({*was.outputs, *now.outputs}):
        before, after = was.outputs.get(name), now.outputs.get(name)
        if was.status is Status.READY and before != after:
            yield FieldChange(f"outputs.{name}", before, after)
    if was.status is Status.READY and now.status is not Status.READY:
        yield FieldChange("status", "complete", INCOMPLETE)
