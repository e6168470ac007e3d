"""A state that one run changes in place: each change costs the same however many records there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import overload

from edgespec.address import Address
from edgespec.records import replace
from edgespec.resources.base import family
from edgespec.state.journal import Mutation, Put
from edgespec.state.model import Key, ResourceRecord, State


class WorkingState:
    """Starts as a copy of `state`. Only `advance` changes it; reads from other threads see whole changes."""

    def __init__(self, state: State) -> None:
        self._head = replace(state, records={})
        self.serial = state.serial
        self._records: dict[Key, ResourceRecord] = dict(state.records)
        self._of_family: dict[str, dict[Key, ResourceRecord]] = {}
        for key, record in self._records.items():
            self._of_family.setdefault(family(key.address.type), {})[key] = record

    @property
    def lineage(self) -> str:
        return self._head.lineage

    @property
    def records(self) -> Mapping[Key, ResourceRecord]:
        """As they are at each moment, in no order."""
        return MappingProxyType(self._records)

    def get(self, address: Address) -> ResourceRecord | None:
        return self._records.get(Key(address))

    def advance(self, serial: int, changes: Iterable[Mutation]) -> None:
        for change in changes:
            key = change.key
            related = self._of_family.setdefault(family(key.address.type), {})
            if isinstance(change, Put):
                self._records[key] = related[key] = change.record
            else:
                self._records.pop(key, None)
                related.pop(key, None)
        self.serial = serial

    def free_key(self, address: Address) -> Key:
        """Under which the address's current record can be pushed aside: no deposed one has it."""
        number = 1
        while Key(address, f"d{number}") in self._records:
            number += 1
        return Key(address, f"d{number}")

    def others(self, key: Key) -> Sequence[ResourceRecord]:
        """Every other record of the same type, or of one that may name the same objects, gathered when it is first
        looked at."""
        return _Others(self._of_family.get(family(key.address.type), {}), key)

    def freeze(self) -> State:
        return replace(self._head, serial=self.serial, records=dict(self._records))


class _Others(Sequence[ResourceRecord]):
    def __init__(self, of_type: Mapping[Key, ResourceRecord], key: Key) -> None:
        self._of_type = of_type
        self._key = key
        self._found: tuple[ResourceRecord, ...] | None = None

    def _all(self) -> tuple[ResourceRecord, ...]:
        if self._found is None:
            self._found = tuple(r for k, r in sorted(self._of_type.items()) if k != self._key)
        return self._found

    def __len__(self) -> int:
        return len(self._all())

    def __iter__(self) -> Iterator[ResourceRecord]:
        return iter(self._all())

    @overload
    def __getitem__(self, index: int) -> ResourceRecord: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[ResourceRecord, ...]: ...
    def __getitem__(self, index: int | slice) -> ResourceRecord | tuple[ResourceRecord, ...]:
        return self._all()[index]
