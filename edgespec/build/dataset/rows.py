"""A row of a data file, whatever the format: its values by column, and where each of them stands."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final, Protocol

from edgespec.build.problems import problem
from edgespec.diagnostics import Diagnostic, SourceRange

EXCERPT: Final = 200
"""Characters of a line that are kept for its excerpt."""
FORMATS: Final = (".jsonl", ".csv", ".parquet", ".txt")


class Row(Protocol):
    """One row. `values` is empty when the row could not be read."""

    @property
    def number(self) -> int:
        """From 1: the line that it starts on, the row in a Parquet file."""

    @property
    def values(self) -> Mapping[str, Any]: ...

    def at(self, key: str | None = None, value: str | None = None) -> SourceRange:
        """Where the row, a column's value in it, or a string in that value is."""


@dataclass(slots=True)
class Rows:
    """A file's rows and what is wrong with the file itself. `columns` are those of its header, None where each row
    has its own."""

    suffix: str
    rows: list[Row] = field(default_factory=list)
    problems: list[Diagnostic] = field(default_factory=list)
    columns: tuple[str, ...] | None = None
    header: Row | None = None
    """Where the columns are named."""
    broken: bool = False
    """Whether the header itself is wrong, so that no row can be read."""

    @property
    def noun(self) -> str:
        return "row" if self.suffix == ".parquet" else "line"


def suffix_of(path: str) -> str:
    """The format of a file by its name; JSON Lines where the name does not tell."""
    suffix = PurePosixPath(path).suffix.casefold()
    return suffix if suffix in FORMATS else ".jsonl"


def foreign(path: str) -> str | None:
    """What to do about a file in a format that is known not to be read; None for any other."""
    suffix = PurePosixPath(path).suffix.casefold()
    if suffix in (".xlsx", ".xls", ".ods", ".tsv", ".arrow", ".feather", ".zip", ".gz"):
        return f"{path}: data files are JSON Lines (.jsonl), CSV (.csv) or Parquet (.parquet). Save it as one of them."
    return None


def decode_text(data: bytes, path: str) -> str | Diagnostic:
    """A text file's content, or where it is no UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as why:
        line = data.count(b"\n", 0, why.start) + 1
        column = why.start - (data.rfind(b"\n", 0, why.start) + 1) + 1
        detail = f"byte 0x{data[why.start]:02x} is not UTF-8. Save the file as UTF-8."
        return problem("ES529", detail, SourceRange(path, line, column))


def parse_json(text: str) -> Any:
    """JSON as the standard has it: no NaN. Raises ValueError (json.JSONDecodeError) or RecursionError."""
    return json.loads(text, parse_constant=no_constant)


def no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def kind_of(value: object) -> str:
    """A value's kind in words."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    names = {int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)


def listed(words: Sequence[str]) -> str:
    return " and ".join(repr(w) for w in words)
