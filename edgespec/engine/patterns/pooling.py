"""From tokens to one row for each text: the mean, the first token, the last token; and whole static embeddings."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from edgespec.engine.format import Pool
from edgespec.engine.patterns import layout
from edgespec.engine.patterns.draft import Embed, Matrix, PoolTokens
from edgespec.engine.patterns.graph import Array, Step
from edgespec.engine.patterns.layout import Slice, View
from edgespec.engine.patterns.recogniser import Recogniser, Region, close, find_regions, noise
from edgespec.engine.patterns.values import PADDED, Tokens


def pool(r: Recogniser, name: str, step: Step) -> View | None:
    lengths = r.facts.samples.lengths
    if lengths in r.facts.shape(name):
        return None
    for region in r.regions(name):
        shape = r.facts.shape(region.base)
        if shape.count(lengths) != 1 or shape[-1] == lengths:
            continue
        mode = _mode(r, region, shape.index(lengths))
        if mode is None:
            continue
        view = r.view(region.base)
        x = layout.rows(view)
        if r.is_per_text(view):
            continue
        out = r.emit(PoolTokens, x.width, per_text=True, x=x, mode=mode)
        return r.whole(out, name)
    return None


def _mode(r: Recogniser, region: Region, axis: int) -> Pool | None:
    """How the region pools, the same in every sample; padding must either not count, or count as any token."""
    modes = {Pool.MEAN, Pool.CLS, Pool.LAST}
    for sample, (length, valid) in enumerate(zip(r.facts.samples.lengths, r.facts.samples.valid, strict=True)):
        shape = region.shape(sample)
        if int(np.prod(shape)) != length * shape[-1]:
            return None
        x = noise(shape, sample + 1)
        y = region.compute(x, sample)
        if y is None or y.size != shape[-1]:
            return None
        tokens = np.moveaxis(x, axis, 0).reshape(length, shape[-1])
        flat = y.reshape(-1)
        modes = {m for m in modes if any(close(flat, w, 1e-5) for w in _pooled(tokens, m, {valid, length}))}
        if not modes:
            return None
    return min(modes)


def _pooled(tokens: Array, mode: Pool, counts: set[int]) -> Iterator[Array]:
    for count in sorted(counts):
        if mode == Pool.MEAN:
            yield tokens[:count].mean(0)
        else:
            yield tokens[0 if mode == Pool.CLS else count - 1]


def static(r: Recogniser, name: str, step: Step) -> View | None:
    """A value that is nothing but rows of tables: one row for each token, or their mean, plain or weighted."""
    regions = [
        g
        for g in find_regions(r.facts, name, through_tables=True)
        if isinstance(r.facts.values[g.base], Tokens) and r.facts.maker(g.base) is None
    ]
    if not regions:
        return None
    region = regions[0]
    if r.facts.samples.lengths in r.facts.shape(name):
        return _rows(r, region, name)
    return _counted_mean(r, region, name, step) or _weighted_mean(r, region, name)


def _tables(region: Region) -> list[Array]:
    """Tables that the region looks token ids up in."""
    values = region.facts.values
    lookups = [s for s in region.steps if s.op == "Gather" and isinstance(values.get(s.inputs[1]), Tokens)]
    return [c for s in lookups if (c := region.facts.const(s.inputs[0])) is not None]


def _vocabulary(region: Region) -> int:
    return min((len(table) for table in _tables(region)), default=0)


def _rows(r: Recogniser, region: Region, name: str) -> View | None:
    """One row for each token, whatever is computed with it: the table of all of them."""
    shape = r.facts.shape(name)
    if shape[-1] == r.facts.samples.lengths or region.is_positional:
        return None
    width = layout.constant(shape[-1])
    table = _of_each_token(region, width)
    if table is None:
        return None
    return r.whole(r.emit(Embed, width, per_text=False, table=Matrix(table.astype(np.float32))), name)


def _of_each_token(region: Region, width: int) -> Array | None:
    """What the region makes of each token of the vocabulary, in a text of full length: [tokens, width]."""
    size = _vocabulary(region)
    parts = []
    for start in range(0, size, 12):
        ids = np.arange(start, start + 12)[None] % size
        part = region.compute(ids, 1)
        if part is None or part.size != 12 * width:
            return None
        parts.append(part.reshape(12, width))
    return np.concatenate(parts)[:size] if parts else None


def _weighted_mean(r: Recogniser, region: Region, name: str) -> View | None:
    """sum(weight[id] * row[id]) / (sum of weights, or number of tokens), for tables of the graph."""
    tables = _tables(region)
    size = _vocabulary(region)
    rows = next((t for t in tables if t.ndim == 2 and t.shape[1] > 1 and t.dtype.kind == "f"), None)
    if rows is None:
        return None
    weights = [t.reshape(-1) for t in tables if t.size == t.shape[0] and t.dtype.kind == "f"]
    for weight, mode in [(w, m) for w in weights for m in (Pool.WEIGHTED_BY_SUM, Pool.WEIGHTED_BY_COUNT)]:
        if _is_weighted(r, region, rows.astype(np.float64), weight.astype(np.float64), mode, size):
            width = rows.shape[1]
            table = r.emit(Embed, width, per_text=False, table=Matrix(rows.astype(np.float32)))
            at = {"x": Slice(table, 0, width), "mode": mode, "weights": weight.astype(np.float32)}
            return r.whole(r.emit(PoolTokens, width, per_text=True, **at), name)
    return None


HARDLY = 1e-9
"""The weight of a token that does not count: beside the 1 of any other it is lost, and it keeps 0 / 0 from texts that
have no other."""


def _counted_mean(r: Recogniser, region: Region, name: str, step: Step) -> View | None:
    """sum(row[id]) / sum(count[id]), where a count is 1, or 0 for tokens that are left out; 0 where all are.

    Both sums may be written in any way: what stands in them is computed for each token of the vocabulary. Where the
    second does not depend on the ids, every token counts.
    """
    if step.op != "Div" or _vocabulary(region) == 0:
        return None
    over, under = (_summed(r, n) for n in step.inputs)
    if over is None:
        return None
    width = layout.constant(r.facts.shape(over.root)[-1])
    rows = _of_each_token(over, width)
    counts = np.ones((_vocabulary(region), 1)) if under is None else _of_each_token(under, 1)
    if rows is None or counts is None:
        return None
    kept = counts[:, 0] != 0
    if not (counts[kept] == 1).all() or rows[~kept].any():
        return None
    weight = np.where(kept, 1.0, HARDLY)
    if not _is_weighted(r, region, rows, weight, Pool.WEIGHTED_BY_SUM, len(rows)):
        return None
    table = r.emit(Embed, width, per_text=False, table=Matrix(rows.astype(np.float32)))
    at = {"mode": Pool.MEAN} if kept.all() else {"mode": Pool.WEIGHTED_BY_SUM, "weights": weight.astype(np.float32)}
    return r.whole(r.emit(PoolTokens, width, per_text=True, x=Slice(table, 0, width), **at), name)


def _summed(r: Recogniser, name: str) -> Region | None:
    """The region, from the token ids, of what is added up over the tokens; a least sum may be set, if below 1."""
    step = r.facts.maker(name)
    if step is not None and step.op in ("Max", "Clip"):
        step = r.facts.maker(step.inputs[0])
    if step is None or step.op != "ReduceSum":
        return None
    found = find_regions(r.facts, step.inputs[0], through_tables=True)
    return next((g for g in found if isinstance(r.facts.values[g.base], Tokens)), None)


def _is_weighted(r: Recogniser, region: Region, rows: Array, weight: Array, mode: Pool, size: int) -> bool:
    for sample, length in enumerate(r.facts.samples.lengths):
        ids = np.random.default_rng(sample).integers(0, size, (1, length))
        counts = {length, r.facts.samples.valid[sample]} if sample == PADDED else {length}
        y = region.compute(ids, sample)
        if y is None or y.size != rows.shape[1]:
            return False
        wanted = []
        for count in counts:
            w = weight[ids[0, :count]]
            total = w.sum() if mode == Pool.WEIGHTED_BY_SUM else count
            wanted.append((w[:, None] * rows[ids[0, :count]]).sum(0) / total)
        if not any(close(y.reshape(-1), v, 1e-5) for v in wanted):
            return False
    return True
