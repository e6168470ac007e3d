"""State as JSON, with a version: an older format is upgraded as it is read, a newer one is refused."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgespec.address import Address
from edgespec.diagnostics import EdgespecError, error
from edgespec.secret import MARK, unsealed, written
from edgespec.state.model import Key, ResourceRecord, State, Status

FORMAT: Final = "edgespec.state/v3"
_FAMILY: Final = re.compile(r"edgespec\.state/v([1-9][0-9]*)")
AddressText = Annotated[str, Field(pattern=r"^[a-z0-9_]+/.+$")]


class RecordDocument(BaseModel):
    """One record as it is written."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)
    address: AddressText
    deposed: str = ""
    status: Literal["ready", "creating", "updating", "deleting"]
    protected: bool
    """Deleting or replacing it is refused, whether or not a spec still says so."""
    nonce: str
    """Drawn for the create that made the object; empty for what was adopted."""
    owners: list[str]
    depends_on: list[AddressText]
    inputs: dict[str, Any]
    outputs: dict[str, Any]


class StateDocument(BaseModel):
    """The state of one environment of one project."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)
    format: Literal["edgespec.state/v3"]
    lineage: str = Field(min_length=1)
    serial: int = Field(ge=0)
    project: str
    environment: str
    account: str
    """The id of the Cloudflare account that holds the resources, or `local`; empty where an older edgespec wrote it."""
    resources: list[RecordDocument]


_Address = Annotated[str, Meta(pattern=r"^[a-z0-9_]+/.+\Z")]


class _Record(Struct, frozen=True, forbid_unknown_fields=True):
    """A RecordDocument as msgspec reads it, which parses and checks in one pass. Pydantic is asked where that fails,
    since its words say what is wrong."""

    address: _Address
    status: Status
    protected: bool
    nonce: str
    owners: tuple[str, ...]
    depends_on: list[_Address]
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    deposed: str = ""


class _Document(Struct, frozen=True, forbid_unknown_fields=True):
    """A StateDocument, likewise: a test holds that both accept the same."""

    format: Literal["edgespec.state/v3"]
    lineage: Annotated[str, Meta(min_length=1)]
    serial: Annotated[int, Meta(ge=0)]
    project: str
    environment: str
    account: str
    resources: list[_Record]


_READER: Final = msgspec.json.Decoder(_Document)


def encode(state: State) -> str:
    """JSON in a fixed order, a line a record, so that two versions of it are read as a difference."""
    head = {
        "format": FORMAT,
        "lineage": state.lineage,
        "serial": state.serial,
        "project": state.project,
        "environment": state.environment,
        "account": state.account,
    }
    records = ",\n".join(to_json(record_document(k, r)) for k, r in sorted(state.records.items()))
    return f'{to_json(head)[:-1]}, "resources": [\n{records}\n]}}\n'


def to_json(value: Any) -> str:
    """Raises on what JSON cannot hold; of a secret it holds the name and the digest."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=written)


def record_document(key: Key, record: ResourceRecord) -> dict[str, Any]:
    return {
        "address": str(key.address),
        "deposed": key.deposed,
        "status": record.status.value,
        "protected": record.protected,
        "nonce": record.nonce,
        "owners": list(record.owners),
        "depends_on": sorted(str(a) for a in record.depends_on),
        "inputs": record.inputs,
        "outputs": record.outputs,
    }


def parse(data: bytes | str, where: str) -> State:
    """The state that `data` holds; raises, naming `where`, when it cannot be trusted."""
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        if MARK not in text:
            with contextlib.suppress(msgspec.MsgspecError):
                return _state(_READER.decode(text), where)
        document = json.loads(text)
    except json.JSONDecodeError as e:
        raise unreadable(f"{where}:{e.lineno}:{e.colno}: {e.msg}.") from e
    except UnicodeDecodeError as e:
        raise unreadable(f"{where}: {e}.") from e
    document = upgrade(document, where)
    try:
        StateDocument.model_validate(document)
    except ValidationError as e:
        raise unreadable(f"{where}: {first_fault(e)}.") from e
    return decode(unsealed(document) if MARK in text else document, where)


def unreadable(detail: str) -> EdgespecError:
    advice = "Nothing was changed. Back-ups are kept beside it; `edgespec state push` puts one in its place."
    return EdgespecError(error("ES301", "State cannot be read", f"{detail} {advice}"))


def first_fault(e: ValidationError) -> str:
    """Where and what, for people; never the value, which may be long."""
    fault = e.errors()[0]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"])
    return f"at ${place}: {fault['msg'][0].lower()}{fault['msg'][1:]}"


def check_format(document: Any, where: str) -> int:
    """The version of `document`; raises unless it is one that this edgespec reads."""
    found = document.get("format") if isinstance(document, dict) else None
    match = _FAMILY.fullmatch(found) if isinstance(found, str) else None
    if match is None:
        detail = f"{where} is not a state file of edgespec. Nothing was changed."
        raise EdgespecError(error("ES301", "State cannot be read", detail))
    version = int(match[1])
    if version > _current():
        detail = f"{where} is in format {found}, which a newer edgespec wrote. Upgrade edgespec; nothing was changed."
        raise EdgespecError(error("ES301", "State cannot be read", detail))
    return version


def _current() -> int:
    return 1 + max(_UPGRADES)


def upgrade(document: Any, where: str) -> Any:
    """`document` in today's format, a step a version. Its content is not checked: that comes after."""
    for version in range(check_format(document, where), _current()):
        document = {**document, **_UPGRADES[version](document), "format": f"edgespec.state/v{version + 1}"}
    return document


def _from_1(document: dict[str, Any]) -> dict[str, Any]:
    """v2: a record says whether it is protected, and which create made the object."""
    resources = document.get("resources")
    if not isinstance(resources, list):
        return {}
    new = {"protected": False, "nonce": ""}
    return {"resources": [{**new, **r} if isinstance(r, dict) else r for r in resources]}


def _from_2(_: dict[str, Any]) -> dict[str, Any]:
    """v3: state says whose account holds it, from the next apply on."""
    return {"account": ""}


_UPGRADES: Final[dict[int, Callable[[dict[str, Any]], dict[str, Any]]]] = {1: _from_1, 2: _from_2}
"""From each version to the next: the fields that change."""


def decode(document: dict[str, Any], where: str) -> State:
    """`document` is in today's format and has passed its schema."""
    return _state(msgspec.convert(document, _Document), where)


def _state(read: _Document, where: str) -> State:
    records: dict[Key, ResourceRecord] = {}
    parse_address = cache(Address.parse)  # what one record is named, others depend on
    for r in read.resources:
        key, record = _record(r, parse_address)
        if key in records:
            raise unreadable(f"{where} has {key} twice.")
        records[key] = record
    return State(read.lineage, read.project, read.environment, read.serial, records, read.account)


def decode_record(document: dict[str, Any]) -> tuple[Key, ResourceRecord]:
    """`document` has passed its schema."""
    return _record(msgspec.convert(document, _Record), Address.parse)


def _record(r: _Record, parse_address: Callable[[str], Address]) -> tuple[Key, ResourceRecord]:
    address = parse_address(r.address)
    needs = frozenset([parse_address(a) for a in r.depends_on])
    record = ResourceRecord(
        address, r.inputs, r.outputs, needs, r.owners, r.status, protected=r.protected, nonce=r.nonce
    )
    return Key(address, r.deposed), record
