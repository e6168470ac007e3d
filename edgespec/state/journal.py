"""Changes of state, one after another, as lines that follow a snapshot.

A line is `LENGTH DIGEST JSON`: the bytes of the JSON and the first 16 digits of their SHA-256. The last line may be
torn: the process was killed as it wrote it, so nothing that it says was relied upon. Any other fault is damage.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, Literal, Self, TypeAlias

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from edgespec.address import Address
from edgespec.records import replace
from edgespec.secret import MARK, unsealed
from edgespec.state.codec import (
    AddressText,
    RecordDocument,
    decode_record,
    first_fault,
    record_document,
    to_json,
    unreadable,
)
from edgespec.state.model import Key, ResourceRecord, State
from edgespec.values import sha256_hex

FORMAT: Final = "edgespec.state-journal/v1"
_DIGITS: Final = 16


class Put(Struct, frozen=True):
    """The record is this from now on."""

    record: ResourceRecord
    deposed: str = ""

    @property
    def key(self) -> Key:
        return Key(self.record.address, self.deposed)


class Drop(Struct, frozen=True):
    """There is no such record any more."""

    key: Key


Mutation: TypeAlias = Put | Drop


class Entry(Struct, frozen=True):
    """What becomes true together, under one serial. Without changes it only takes the serial (a fence)."""

    lineage: str
    serial: int
    changes: tuple[Mutation, ...]
    lease: str = ""
    """Whose writing it is: two runs never write the same bytes."""


class KeyDocument(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)
    address: AddressText
    deposed: str


class ChangeDocument(BaseModel):
    """Exactly one of the two."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)
    put: RecordDocument | None = None
    drop: KeyDocument | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.put is None) == (self.drop is None):
            raise ValueError("exactly one of put and drop")
        return self


class EntryDocument(BaseModel):
    """One line of a journal."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)
    format: Literal["edgespec.state-journal/v1"]
    lineage: str = Field(min_length=1)
    serial: int = Field(ge=1)
    lease: str
    changes: list[ChangeDocument]


class GapError(Exception):
    """Entries that do not follow the snapshot: it was replaced between the two readings, or one of them is lost."""


def encode_entry(entry: Entry) -> bytes:
    """The line, with its end."""
    document = {
        "format": FORMAT,
        "lineage": entry.lineage,
        "serial": entry.serial,
        "lease": entry.lease,
        "changes": [_change_document(c) for c in entry.changes],
    }
    body = to_json(document).encode()
    return b"%d %s %s\n" % (len(body), sha256_hex(body)[:_DIGITS].encode(), body)


def _change_document(change: Mutation) -> dict[str, Any]:
    if isinstance(change, Drop):
        return {"drop": {"address": str(change.key.address), "deposed": change.key.deposed}}
    return {"put": record_document(change.key, change.record)}


def read_entries(data: bytes, where: str) -> tuple[tuple[Entry, ...], int]:
    """The whole lines of a journal, and how many bytes they are; what follows is a torn line. Raises on damage."""
    entries: list[Entry] = []
    good = 0
    while good < len(data):
        end = data.find(b"\n", good)
        body = None if end < 0 else _body(data[good:end])
        if body is None:
            if 0 <= end < len(data) - 1:
                raise unreadable(f"{where}: line {len(entries) + 1} is damaged, and lines follow it.")
            break
        entries.append(_decode(body, f"{where}: line {len(entries) + 1}"))
        good = end + 1
    return tuple(entries), good


def _body(line: bytes) -> bytes | None:
    """A line's JSON; None when it is not as it was written."""
    length, _, rest = line.partition(b" ")
    digest, _, body = rest.partition(b" ")
    whole = length.isdigit() and int(length) == len(body) and digest.decode("latin-1") == sha256_hex(body)[:_DIGITS]
    return body if whole else None


def _decode(body: bytes, where: str) -> Entry:
    document = json.loads(body)
    found = document.get("format") if isinstance(document, dict) else None
    if found != FORMAT:
        raise unreadable(f"{where} is in format {found}, which this edgespec does not read. Upgrade edgespec.")
    try:
        EntryDocument.model_validate(document)
    except ValidationError as e:
        raise unreadable(f"{where}: {first_fault(e)}.") from e
    if MARK.encode() in body:
        document = unsealed(document)
    changes = tuple(_decode_change(c) for c in document["changes"])
    return Entry(document["lineage"], document["serial"], changes, document["lease"])


def _decode_change(document: dict[str, Any]) -> Mutation:
    if (dropped := document.get("drop")) is not None:
        return Drop(Key(Address.parse(dropped["address"]), dropped["deposed"]))
    key, record = decode_record(document["put"])
    return Put(record, key.deposed)


def replay(state: State, entries: Iterable[Entry]) -> State:
    """`state` after the entries that came later than it; raises GapError when they do not follow it."""
    records = dict(state.records)
    serial = state.serial
    for entry in entries:
        if entry.serial <= state.serial:  # the snapshot has it: a crash came before the journal was cleared
            continue
        if entry.serial != serial + 1 or entry.lineage != state.lineage:
            raise GapError(f"after serial {serial} of {state.lineage} comes {entry.serial} of {entry.lineage}")
        serial = entry.serial
        for change in entry.changes:
            if isinstance(change, Put):
                records[change.key] = change.record
            else:
                records.pop(change.key, None)
    return replace(state, serial=serial, records=records)
