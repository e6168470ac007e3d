"""Records are frozen: a `msgspec.Struct` where a plan meets them, a dataclass elsewhere (docs/dependencies.md)."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import msgspec

R = TypeVar("R")


def replace(record: R, /, **changes: Any) -> R:
    """A copy with other values in some fields, as `copy.replace` is from Python 3.13 on."""
    if isinstance(record, msgspec.Struct):
        return msgspec.structs.replace(record, **changes)
    return dataclasses.replace(record, **changes)  # type: ignore[type-var]  # else a dataclass


def as_dict(record: Any) -> dict[str, Any]:
    """Field by field; a record within becomes a dict too."""
    fields = record.__struct_fields__ if _is_struct(record) else [f.name for f in dataclasses.fields(record)]
    return {name: as_dict(v) if _is_record(v := getattr(record, name)) else v for name in fields}


def _is_struct(value: Any) -> bool:
    return isinstance(value, msgspec.Struct)


def _is_record(value: Any) -> bool:
    return _is_struct(value) or dataclasses.is_dataclass(value)
