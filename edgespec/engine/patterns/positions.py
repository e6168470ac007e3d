"""Absolute positions: a row of a table for each place in the text, added to what the tokens gave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from edgespec.engine.patterns import evaluate as ev
from edgespec.engine.patterns import layout
from edgespec.engine.patterns.draft import AddPositions, Affine, Matrix
from edgespec.engine.patterns.graph import Array, Step
from edgespec.engine.patterns.layout import Slice, View
from edgespec.engine.patterns.recogniser import Recogniser, Region
from edgespec.engine.patterns.values import PADDED, Positional


def positions(r: Recogniser, region: Region, factor: Array) -> View | None:
    """x + table[place + offset] (+ one constant row), the table being made of constants of the graph."""
    if not np.allclose(factor, 1, atol=1e-9):
        return None
    added = _added(r, region)
    if added is None:
        return None
    for table in _tables(r, region, added[0].shape[-1]):
        found = _place(r, added, dense(table))
        if found is None:
            continue
        offset, row = found
        view = r.view(region.base)
        x = layout.rows(view)
        if np.abs(row).max() > 1e-9:
            biased = r.emit(Affine, x.width, per_text=False, x=x, bias=row.astype(np.float32))
            x = Slice(biased, 0, x.width)
        at = {"table": table, "offset": offset, "step": region.steps[-1]}
        out = r.emit(AddPositions, x.width, per_text=False, x=x, **at)
        r.draft.limit(table.rows - offset)
        return layout.moved(view, out)
    return None


def dense(table: Matrix) -> Array:
    if table.scales is None:
        return table.values
    return np.asarray(table.values.astype(np.float32) * table.scales[:, None])


def _added(r: Recogniser, region: Region) -> list[Array] | None:
    """What is added to each token, in each sample."""
    added: list[Array] = []
    for sample in range(r.facts.samples.count):
        value = region.compute(np.zeros(region.shape(sample)), sample)
        if value is None:
            return None
        added.append(value.reshape(-1, value.shape[-1]))
    return added


def _place(r: Recogniser, added: Sequence[Array], table: Array) -> tuple[int, Array] | None:
    """(offset, constant row) when that table is what is added."""
    offset = _offset(table, added[0])
    if offset is None or offset + r.facts.samples.lengths[2] > len(table):
        return None
    row = added[0][0] - table[offset]
    counts = (*r.facts.samples.lengths[:PADDED], r.facts.samples.valid[PADDED])
    for rows, count in zip(added, counts, strict=True):
        if not np.allclose(rows[:count] - row, table[offset : offset + count], rtol=1e-5, atol=1e-6):
            return None
    return offset, row


def _offset(table: Array, rows: Array) -> int | None:
    """Where `rows`, up to one constant row, start in the table."""
    if len(table) < len(rows):
        return None
    step = rows[1] - rows[0]
    differences = np.abs(np.diff(table, axis=0) - step).max(axis=1)
    for hit in np.flatnonzero(differences < 1e-5 * max(1.0, float(np.abs(step).max()))):
        part = table[hit : hit + len(rows)]
        if len(part) == len(rows) and np.allclose(part - part[0], rows - rows[0], rtol=1e-5, atol=1e-6):
            return int(hit)
    return None


def _tables(r: Recogniser, region: Region, width: int) -> Iterator[Matrix]:
    """Tables of that width behind the region's positional values, the largest first."""
    floats: dict[str, Array] = {}
    gathers: dict[str, list[Step]] = {}
    seen: set[str] = set()
    pending = list(region.leaves())
    while pending:
        name = pending.pop()
        maker = r.facts.maker(name)
        if name in seen:
            continue
        seen.add(name)
        const = r.facts.const(name)
        if const is not None:
            if const.ndim >= 2 and const.shape[-1] == width and const.dtype.kind == "f":
                floats[name] = const.reshape(-1, width).astype(np.float32)
        elif maker is not None:
            pending += [n for n in maker.inputs if n]
            if maker.op == "Gather" and isinstance(r.facts.values[maker.inputs[1]], Positional):
                gathers.setdefault(maker.inputs[1], []).append(maker)
    for name in sorted(floats, key=lambda n: (-len(floats[n]), n)):
        yield Matrix(floats[name])
    for index in sorted(gathers):
        for leaf in sorted(set(region.leaves())):
            found = _looked_up(r, leaf, index, gathers[index], width)
            if found is not None:
                yield found


def _looked_up(r: Recogniser, leaf: str, index: str, gathers: Sequence[Step], width: int) -> Matrix | None:
    """A table of integers and scales: what the graph computes when every row is looked up."""
    data = [c for g in gathers if (c := r.facts.const(g.inputs[0])) is not None and c.ndim == 2]
    count = min((len(c) for c in data), default=0)
    if not count:
        return None
    found: dict[str, Array] = {index: np.arange(count)[None]}

    def value(name: str) -> Array | None:
        if name not in found and name and (const := r.facts.const(name)) is not None:
            return const
        maker = r.facts.maker(name)
        if name not in found and maker is not None:
            found.update(zip(maker.outputs, ev.evaluate(maker, [value(n) for n in maker.inputs]), strict=False))
        return found.get(name)

    try:
        rows = value(leaf)
    except (ev.EvaluationError, ev.UnknownOperatorError):
        return None
    if rows is None or rows.size != count * width:
        return None
    table = rows.reshape(count, width).astype(np.float32)
    integers = next((c for c in data if c.dtype.kind in "iu" and c.shape == (count, width)), None)
    return (None if integers is None else _as_integers(integers, table)) or Matrix(table)


def _as_integers(q: Array, table: Array) -> Matrix | None:
    """The table as int8 rows and scales when that gives the same numbers, up to one constant row."""
    wide = q.astype(np.float64)
    across = table.max(axis=1) - table.min(axis=1)
    steps = wide.max(axis=1) - wide.min(axis=1)
    scales = np.where(steps > 0, across / np.where(steps > 0, steps, 1), 1).astype(np.float32)
    zero = np.rint(wide - table / scales[:, None])
    rows = wide - zero[:, :1]
    if not np.allclose(rows * scales[:, None], table, rtol=1e-5, atol=1e-7):
        return None
    if np.abs(rows).max() > 127 and np.allclose(scales, scales[0], rtol=1e-6):
        rows, scales = rows - (rows.min() + 128), np.full_like(scales, np.median(scales))  # what is left is one row
    return Matrix(rows.astype(np.int8), 8, scales) if rows.min() >= -128 and rows.max() <= 127 else None
