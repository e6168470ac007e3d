"""What an import finds: objects that exist and that state does not have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgespec.address import Address
from edgespec.resources.base import FieldChange
from edgespec.state.model import ResourceRecord


@dataclass(frozen=True, slots=True)
class Import:
    """One object that can be taken into state: `fields` go from what is live to what the spec asks for."""

    record: ResourceRecord
    fields: tuple[FieldChange, ...]


@dataclass(frozen=True, slots=True)
class Deployed:
    """One live object under the project's names."""

    address: Address
    note: str = ""
    """What a person has to know: that it carries no ownership tag, or that its configuration cannot be read."""
    spec: Mapping[str, Any] | None = None
    """Of a Worker: the EdgeModel that it was made from, as far as it tells."""


@dataclass(frozen=True, slots=True)
class Discovered:
    deployed: tuple[Deployed, ...]
    in_state: frozenset[Address]
    written: tuple[str, ...]
    """Files of reconstructed specs, relative to the project."""
    kept: tuple[str, ...]
    """Files that were there already and stay as they are."""
