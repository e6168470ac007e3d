"""Read every recorded object, and look for objects that carry the name of something not yet recorded."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar, cast

from edgespec.address import Address
from edgespec.plan.model import Refreshed
from edgespec.providers.base import Provider
from edgespec.records import replace
from edgespec.resources.base import DesiredState, Ref
from edgespec.state.model import Key, ResourceRecord, State, Status
from edgespec.threads import spread
from edgespec.values import UNKNOWN, Inputs, Outputs, Value, is_known

T = TypeVar("T")
R = TypeVar("R")
WORKERS: Final = 8
"""Reads in flight at once."""


def refresh(previous: State, desired: DesiredState, providers: Mapping[str, Provider]) -> Refreshed:
    """State as it is live. What is gone is dropped; what an interrupted run made is kept, `ready` once it is whole."""
    keys = sorted(previous.records)
    with _pool() as pool:
        seen = _spread(pool, lambda k: _observe(k, previous.records[k], providers), keys)
        records = {k: r for k, r in zip(keys, seen, strict=True) if r is not None}
        state = replace(previous, records=records)
        missing = [r for a, r in desired.resources.items() if Key(a) not in records]
        found = _spread(pool, lambda r: _look_up(r.address, _inputs(r.address, desired, state), providers), missing)
    unmanaged = {r.address: f for r, f in zip(missing, found, strict=True) if f is not None}
    return Refreshed(state, unmanaged)


@contextlib.contextmanager
def _pool() -> Iterator[ThreadPoolExecutor]:
    """Ctrl-C, or a read that failed, waits for no answer from the other side."""
    pool = ThreadPoolExecutor(WORKERS)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _spread(pool: ThreadPoolExecutor, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """The results in order. Each thread takes every eighth item: lists answer most reads from memory, and a future for
    each of thousands would cost several times the read."""
    given_up = threading.Event()

    def part(start: int) -> list[R]:
        return [function(item) for item in items[start::WORKERS] if not given_up.is_set()]

    found: list[R | None] = [None] * len(items)
    try:
        for start, results in enumerate(spread(pool, part, range(WORKERS))):
            found[start::WORKERS] = results
    except BaseException:  # the others do not go on reading what nobody waits for
        given_up.set()
        raise
    return cast("list[R]", found)


def _observe(key: Key, record: ResourceRecord, providers: Mapping[str, Provider]) -> ResourceRecord | None:
    found = providers[key.address.type].read(record)
    if found is None:
        return None
    unfinished = Status.UPDATING if record.status is Status.READY else record.status
    status = Status.READY if found.complete else unfinished
    return replace(record, inputs=found.inputs, outputs=found.outputs, status=status)


def _inputs(address: Address, desired: DesiredState, state: State) -> Inputs:
    """A desired resource's inputs as far as they are known now."""
    resource = desired.resources[address]

    def resolver(ref: Ref) -> Value:
        target = desired.resources[ref.address]
        known = target.type.known_outputs({k: v for k, v in target.inputs.items() if not isinstance(v, Ref)})
        record = state.get(ref.address)
        return known.get(ref.output, record.outputs.get(ref.output, UNKNOWN) if record else UNKNOWN)

    try:
        return resource.resolve(resolver)
    except KeyError:  # a type's known outputs need inputs that are themselves references
        return {}


def _look_up(address: Address, inputs: Inputs, providers: Mapping[str, Provider]) -> tuple[Inputs, Outputs] | None:
    known = {k: v for k, v in inputs.items() if is_known(v)}
    found = providers[address.type].find(address, known) if known else None
    return None if found is None else (found.inputs, found.outputs)
