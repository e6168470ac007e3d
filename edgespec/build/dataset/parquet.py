"""Parquet, by pyarrow: rows are counted from 1, a place's column is the table's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from edgespec.build.dataset.rows import EXCERPT, Rows
from edgespec.build.problems import fail, problem
from edgespec.diagnostics import SourceRange

_INDEX: Final = "__index_level_"
"""How pandas names a table's index, which is no column of its data."""


@dataclass(slots=True)
class TableRow:
    path: str
    number: int
    columns: tuple[str, ...]
    values: Mapping[str, Any] = field(default_factory=dict)

    def at(self, key: str | None = None, value: str | None = None) -> SourceRange:
        column = self.columns.index(key) + 1 if key in self.columns else 1
        shown = ", ".join(f"{k}: {v!r}" for k, v in self.values.items())
        return SourceRange(self.path, self.number, column, 1, "" if key is None else shown[:EXCERPT])


def read_parquet(data: bytes, path: str) -> Rows:
    """Nulls are columns that the row does not have. Raises EdgespecError (ES531) without pyarrow."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        detail = f"pyarrow is not installed, which reads {path}. Run `pip install 'edgespec[build]'`"
        raise fail("ES531", f"{detail}, or save the file as JSON Lines.") from None

    found = Rows(".parquet")
    try:
        table = pq.read_table(pa.BufferReader(data), use_threads=False)
    except (pa.ArrowException, OSError) as why:
        detail = f"it is no Parquet file that pyarrow reads: {str(why).strip(' .')}. Save it anew."
        found.problems.append(problem("ES529", detail, SourceRange(path, 1, 1)))
        return found
    found.columns = tuple(n for n in table.column_names if not n.startswith(_INDEX))
    found.header = TableRow(path, 1, found.columns)
    for number, values in enumerate(table.select(list(found.columns)).to_pylist(), start=1):
        kept = {k: v for k, v in values.items() if v is not None}
        found.rows.append(TableRow(path, number, found.columns, kept))
    return found
