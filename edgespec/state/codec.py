"""State as JSON, with a version. A newer format is refused, never guessed at."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from edgespec.address import Address
from edgespec.diagnostics import EdgespecError, error
from edgespec.state.model import Key, ResourceRecord, State, Status

FORMAT: Final = "edgespec.state/v1"
AddressText = Annotated[str, Field(pattern=r"^[a-z0-9_]+/.+$")]


class RecordDocument(BaseModel):
    """One record as it is written."""

    model_config = ConfigDict(extra="forbid")
    address: AddressText
    deposed: str = ""
    status: Literal["ready", "creating", "updating", "deleting"]
    owners: list[str]
    depends_on: list[AddressText]
    inputs: dict[str, Any]
    outputs: dict[str, Any]


class StateDocument(BaseModel):
    """The state of one environment of one project."""

    model_config = ConfigDict(extra="forbid")
    format: Literal["edgespec.state/v1"]
    lineage: str = Field(min_length=1)
    serial: int = Field(ge=0)
    project: str
    environment: str
    resources: list[RecordDocument]


def encode(state: State) -> str:
    """JSON in a fixed order, a line a record: it is written at every step of an apply, and read as a difference."""
    head = {
        "format": FORMAT,
        "lineage": state.lineage,
        "serial": state.serial,
        "project": state.project,
        "environment": state.environment,
    }
    records = ",\n".join(_json(_record(k, r)) for k, r in sorted(state.records.items()))
    return f'{_json(head)[:-1]}, "resources": [\n{records}\n]}}\n'


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _record(key: Key, record: ResourceRecord) -> dict[str, Any]:
    return {
        "address": str(key.address),
        "deposed": key.deposed,
        "status": record.status.value,
        "owners": list(record.owners),
        "depends_on": sorted(str(a) for a in record.depends_on),
        "inputs": record.inputs,
        "outputs": record.outputs,
    }


def check_format(document: Any, where: str) -> None:
    """Raise unless `document` says that it is of a format that this edgespec reads."""
    found = document.get("format") if isinstance(document, dict) else None
    if found != FORMAT:
        newer = isinstance(found, str) and found.startswith("edgespec.state/")
        detail = (
            f"{where} is in format {found}, which a newer edgespec wrote. Upgrade edgespec; nothing was changed."
            if newer
            else f"{where} is not a state file of edgespec. Nothing was changed."
        )
        raise EdgespecError(error("ES301", "State cannot be read", detail))


def decode(document: dict[str, Any]) -> State:
    """`document` has passed `check_format` and its JSON Schema."""
    records: dict[Key, ResourceRecord] = {}
    for r in document["resources"]:
        address = Address.parse(r["address"])
        depends_on = frozenset(Address.parse(a) for a in r["depends_on"])
        records[Key(address, r["deposed"])] = ResourceRecord(
            address, r["inputs"], r["outputs"], depends_on, tuple(r["owners"]), Status(r["status"])
        )
    return State(document["lineage"], document["project"], document["environment"], document["serial"], records)
