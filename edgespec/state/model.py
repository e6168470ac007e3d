"""State and records. A record's status says what an interrupted run may have left.

`ready`: the last call ended well. `creating`, `updating`, `deleting`: the intent was written and the outcome is not
known. A record that a create-first replacement has pushed aside is *deposed*: it still exists and awaits deletion.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct, field

from edgespec.address import Address
from edgespec.records import replace
from edgespec.values import Inputs, Outputs


class Status(StrEnum):
    READY = "ready"
    CREATING = "creating"
    UPDATING = "updating"
    DELETING = "deleting"


class Key(NamedTuple):
    """A record's place in state: its address, and for a deposed one the id that tells it from the current one."""

    address: Address
    deposed: str = ""

    def __str__(self) -> str:
        return f"{self.address} (deposed {self.deposed})" if self.deposed else str(self.address)


class ResourceRecord(Struct, frozen=True):
    address: Address
    inputs: Inputs
    outputs: Outputs = field(default_factory=dict)
    depends_on: frozenset[Address] = frozenset()
    owners: tuple[str, ...] = ()
    status: Status = Status.READY
    protected: bool = False
    """`prevent_destroy`, as it was when the resource was last applied: deleting the spec does not lift it."""
    nonce: str = ""
    """Drawn for the create that made the object, and carried by the object itself where the API has a place for it:
    what an interrupted run made is told from another's. Empty for what was adopted or made before nonces."""


class State(Struct, frozen=True):
    """`lineage` names one history of one environment; `serial` counts its writes."""

    lineage: str
    project: str
    environment: str
    serial: int = 0
    records: Mapping[Key, ResourceRecord] = field(default_factory=dict)
    account: str = ""
    """The id of the Cloudflare account that holds all this, or `local`; empty until the first apply that records it."""

    def get(self, address: Address) -> ResourceRecord | None:
        return self.records.get(Key(address))

    def put(self, record: ResourceRecord, deposed: str = "") -> State:
        return replace(self, records={**self.records, Key(record.address, deposed): record})

    def same_records(self, other: State) -> bool:
        return dict(self.records) == dict(other.records)
