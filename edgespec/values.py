"""Plain data: JSON values, the not-yet-known marker, canonical text and digests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from enum import Enum
from typing import Final, TypeAlias, Union

from edgespec.secret import Secret, written


class Unknown(Enum):
    """A value that only an apply can tell."""

    UNKNOWN = "(known after apply)"

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown.UNKNOWN
Scalar: TypeAlias = bool | int | float | str | Secret | Unknown | None
Value: TypeAlias = Union[Scalar, "list[Value]", "dict[str, Value]"]
_CANONICAL: Final = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=written
)
Inputs: TypeAlias = Mapping[str, Value]
Outputs: TypeAlias = Mapping[str, Value]


def is_known(value: object) -> bool:
    """Whether no part of `value` is UNKNOWN."""
    if isinstance(value, Unknown):
        return False
    if isinstance(value, (list, tuple)):
        return all(is_known(v) for v in value)
    if isinstance(value, Mapping):
        return all(is_known(v) for v in value.values())
    return True


def canonical_json(value: object) -> str:
    """One text for one value: sorted keys, no spaces, UTF-8, no NaN; a secret by its digest. Raises TypeError on
    UNKNOWN."""
    return _CANONICAL.encode(value)


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def digest(value: object) -> str:
    """SHA-256, in hex, of the value's canonical text."""
    return sha256_hex(canonical_json(value).encode())
