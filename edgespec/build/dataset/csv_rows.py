"""CSV as RFC 4180 has it: commas, a header row, cells with commas, quotes or line ends in double quotes.

Python's csv module does not tell where a cell stands, and takes a stray quote for text: errors here name the line and
the column. A cell of `labels` or `keywords` is `a|b` or a JSON list, one of `messages` is JSON; an empty cell of
another column than the texts is none.
"""

from __future__ import annotations

import contextlib
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from edgespec.build.dataset.rows import EXCERPT, Rows, parse_json
from edgespec.build.problems import problem
from edgespec.diagnostics import Diagnostic, SourceRange

_CELL: Final = re.compile(r'"(?P<quoted>[^"]*(?:""[^"]*)*)"|(?P<plain>[^",\n]*)')
_LISTS: Final = frozenset({"labels", "keywords"})
_OPTIONAL: Final = frozenset({"label", "language", "score", "messages"})
"""Columns whose empty cells say nothing."""


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    start: int
    """Characters from the start of the file."""
    end: int


class _File:
    """A text with its lines' starts."""

    def __init__(self, text: str, path: str) -> None:
        self.text, self.path = text, path
        self._starts = [0, *(m.end() for m in re.finditer("\n", text))]

    def line(self, offset: int) -> int:
        return bisect_right(self._starts, offset)

    def place(self, offset: int, length: int = 1) -> SourceRange:
        number = self.line(offset)
        start = self._starts[number - 1]
        excerpt = self.text[start : start + EXCERPT].partition("\n")[0]
        return SourceRange(self.path, number, offset - start + 1, max(1, length), excerpt)


@dataclass(slots=True)
class CsvRow:
    file: _File
    number: int
    start: int
    cells: Mapping[str, Cell]
    values: Mapping[str, Any] = field(default_factory=dict)

    def at(self, key: str | None = None, value: str | None = None) -> SourceRange:
        cell = self.cells.get(key) if key is not None else None
        if cell is None:
            return self.file.place(self.start)
        inside = self.file.text.find(value, cell.start, cell.end) if value else -1
        if value and inside >= 0:
            return self.file.place(inside, len(value))
        length = min(cell.end - cell.start, len(self.file.text[cell.start : cell.end].partition("\n")[0]))
        return self.file.place(cell.start, length)


def read_csv(text: str, path: str, shown: str) -> Rows:
    """`shown` says how the file is written, for messages."""
    found = Rows(".csv")
    file = _File(text.replace("\r\n", "\n"), path)
    records = _records(file, found.problems)
    names = next(records, None)
    if names is None:
        return found
    found.columns = tuple(c.text.strip() for c in names)
    found.header = CsvRow(file, file.line(names[0].start), names[0].start, dict(zip(found.columns, names, strict=True)))
    found.problems += _header_problems(found.columns, found.header, shown)
    if found.problems:
        found.broken = True
        return found
    for cells in records:
        row = CsvRow(file, file.line(cells[0].start), cells[0].start, dict(zip(found.columns, cells, strict=False)))
        if len(cells) != len(found.columns):
            detail = (
                f"it has {len(cells)} cells, the header names {len(found.columns)} columns. "
                "Put a text that holds a comma in double quotes."
            )
            found.problems.append(problem("ES521", detail, row.at()))
            continue
        row.values = _values(row.cells)
        found.rows.append(row)
    return found


def _header_problems(columns: tuple[str, ...], header: CsvRow, shown: str) -> Iterator[Diagnostic]:
    for name, count in Counter(columns).items():
        if count > 1:
            yield problem("ES523", f"the column {name!r} is there {count} times.", header.at(name))
    if len(columns) == 1 and (separator := next((s for s in (";", "\t") if s in columns[0]), None)):
        what = "tabs" if separator == "\t" else "semicolons"
        yield problem("ES521", f"the cells are separated by {what}; separate them by commas. {shown}", header.at())


def _records(file: _File, problems: list[Diagnostic]) -> Iterator[list[Cell]]:
    """Rows of cells, blank lines left out; stops at the first place that is no CSV, which is reported."""
    text, position = file.text, 0
    cells: list[Cell] = []
    while position < len(text):
        start = position
        match = _CELL.match(text, position)
        assert match is not None  # noqa: S101  # the second branch matches nothing at all
        position = match.end()
        following = text[position : position + 1]
        if following not in (",", "\n", ""):
            problems.append(problem("ES521", _broken(text, start), file.place(position)))
            return
        quoted = match["quoted"]
        cells.append(Cell(match["plain"] if quoted is None else quoted.replace('""', '"'), start, position))
        position += 1
        if following == ",":
            if position == len(text):
                cells.append(Cell("", position, position))
            continue
        if len(cells) > 1 or quoted is not None or cells[0].text.strip():
            yield cells
        cells = []
    if cells:
        yield cells


def _broken(text: str, start: int) -> str:
    if text[start] != '"':
        return 'a quote stands inside a cell that does not start with one. Quote the whole cell and write "" for ".'
    if text.count('"', start) % 2:
        return "a quoted cell does not end. Close it with a double quote."
    return 'text follows a closing quote. Write "" for a quote inside a quoted cell.'


def _values(cells: Mapping[str, Cell]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, cell in cells.items():
        if cell.text or name not in _OPTIONAL:
            found[name] = _value(name, cell.text)
    return found


def _value(name: str, text: str) -> Any:
    """The cell as JSON Lines would have it; a cell that cannot be is left a string, which its reader then refuses."""
    if name in _LISTS:
        if text.lstrip().startswith("["):
            with contextlib.suppress(ValueError, RecursionError):
                return parse_json(text)
            return text
        return [part.strip() for part in text.split("|")] if text.strip() else []
    if name == "messages":
        with contextlib.suppress(ValueError, RecursionError):
            return parse_json(text)
    if name == "score":
        with contextlib.suppress(ValueError):
            return float(text)
    return text
