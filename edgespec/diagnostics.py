"""What went wrong, where, and what to do about it: values, not control flow.

Pure stages gather `Diagnostic` values and return them beside their result (`Checked`);
edges raise `EdgespecError`, which carries them. The command line prints both in one place.

Codes are stable and grouped by the hundred:
ES1xx spec files, ES2xx plan, ES3xx state and apply, ES4xx provider and API, ES5xx build, ES6xx local edge,
ES7xx releases, provenance, editing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


class SourceRange(Struct, frozen=True, eq=False):
    """A place in a text file. `line` and `column` count from 1; `length` is in characters on that line. Two that begin
    at one place are equal."""

    path: str
    line: int
    column: int
    length: int = 1
    text: str = ""
    """The whole line, for the excerpt; empty when it is not at hand."""

    @property
    def _start(self) -> tuple[str, int, int]:
        return self.path, self.line, self.column

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SourceRange) and self._start == other._start

    def __hash__(self) -> int:
        return hash(self._start)

    def __lt__(self, other: SourceRange) -> bool:
        return self._start < other._start

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """`summary` is fixed for a code; `detail` says in sentences what, why and what to do."""

    severity: Severity
    code: str
    summary: str
    detail: str = ""
    source: SourceRange | None = None
    address: str | None = None
    at: tuple[str | int, ...] = field(default=(), compare=False)
    """The field of a spec that it is about, where who found it has no document to point into."""

    def __str__(self) -> str:
        place = f"{self.source}: " if self.source else ""
        detail = f": {self.detail}" if self.detail else ""
        return f"{place}{self.severity} {self.code}: {self.summary}{detail}"


def error(
    code: str, summary: str, detail: str = "", *, source: SourceRange | None = None, address: str | None = None
) -> Diagnostic:
    return Diagnostic(Severity.ERROR, code, summary, detail, source, address)


def warning(
    code: str, summary: str, detail: str = "", *, source: SourceRange | None = None, address: str | None = None
) -> Diagnostic:
    return Diagnostic(Severity.WARNING, code, summary, detail, source, address)


def some(words: Sequence[str], most: int, between: str = ", ") -> str:
    """`a, b and 3 more`: at most `most` of them. Words that hold commas are kept apart by `; `."""
    left = len(words) - most
    more = f"{'' if between == ', ' else between.rstrip()} and {left} more" if left > 0 else ""
    return between.join(words[:most]) + more


class Diagnostics(Struct, frozen=True):
    """An ordered collection of diagnostics."""

    items: tuple[Diagnostic, ...] = ()

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __add__(self, more: Iterable[Diagnostic]) -> Diagnostics:
        return Diagnostics((*self.items, *more))

    @property
    def has_errors(self) -> bool:
        return any(d.severity is Severity.ERROR for d in self.items)

    @classmethod
    def of(cls, *items: Diagnostic) -> Diagnostics:
        return cls(items)


class EdgespecError(Exception):
    """An operation that cannot go on; carries every diagnostic found so far."""

    def __init__(self, *diagnostics: Diagnostic | Diagnostics) -> None:
        flat: list[Diagnostic] = []
        for d in diagnostics:
            flat.extend([d] if isinstance(d, Diagnostic) else d)
        self.diagnostics = Diagnostics(tuple(flat))
        super().__init__("; ".join(str(d) for d in flat))


class RefusedError(EdgespecError):
    """A plan that a budget, a limit or a policy refuses: exit code 4."""


class Checked(Struct, Generic[T], frozen=True):
    """A stage's result: the value (None when there were errors) and all diagnostics, warnings included."""

    value: T | None
    diagnostics: Diagnostics = Diagnostics()

    def unwrap(self) -> T:
        """The value; raises `EdgespecError` with every diagnostic when there is none."""
        if self.value is None or self.diagnostics.has_errors:
            raise EdgespecError(self.diagnostics)
        return self.value
