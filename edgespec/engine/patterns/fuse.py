"""Operations melted into each other: biases, activations and residuals into products, three products into one.

Each pass takes a draft whose registers are written once, and leaves one that computes the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from edgespec.engine.format import Act, Pool
from edgespec.engine.patterns.draft import (
    Activate,
    Add,
    AddPositions,
    Affine,
    Attention,
    Concat,
    Draft,
    Embed,
    Glu,
    L2Norm,
    Linear,
    Mul,
    Norm,
    Op,
    PoolTokens,
    Rope,
    reads,
    stack,
    with_operands,
)
from edgespec.engine.patterns.layout import Slice
from edgespec.engine.patterns.values import UncoveredError


def fuse(draft: Draft) -> None:
    """Raises UncoveredError for positions that are added to anything but the tokens' own rows."""
    for rule in (_into_embed, _glu, _into_linear, _scale_into_attention):
        _rewrite(draft, rule)
    _pool_early(draft)
    _rewrite(draft, _residual)
    drop_unused(draft)
    _one_product(draft)
    drop_unused(draft)
    _mark_head(draft)
    for op in draft.ops:
        if isinstance(op, AddPositions):
            raise UncoveredError(op.step, "positions are added to something other than the rows of the token table")


class Uses:
    """Who writes and who reads each register."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.writer = {op.out: op for op in draft.ops}
        self.count = dict.fromkeys(range(len(draft.widths)), 0)
        for op in draft.ops:
            for _, operand in reads(op):
                self.count[operand.register] += 1
        if draft.output >= 0:
            self.count[draft.output] += 1

    def only(self, x: Slice | None) -> Op | None:
        """What writes that whole register, when nothing else reads it."""
        if x is None or not self.is_whole(x) or self.count[x.register] != 1:
            return None
        return self.writer.get(x.register)

    def is_whole(self, x: Slice) -> bool:
        return x.offset == 0 and x.width == self.draft.widths[x.register]


HEAD_LIMIT: Final = 1024
"""Outputs: a wider last product is no classifier, and is quantised as any other."""
Rule = Callable[[Op, Uses], Op | None]


def _rewrite(draft: Draft, rule: Rule) -> None:
    """Each operation replaced by what the rule makes of it, which writes the same register."""
    drop_unused(draft)
    uses = Uses(draft)
    for i, op in enumerate(draft.ops):
        found = rule(op, uses)
        if found is None:
            continue
        for _, operand in reads(op):
            uses.count[operand.register] -= 1
        for _, operand in reads(found):
            uses.count[operand.register] += 1
        draft.ops[i] = found
        uses.writer[found.out] = found
        again = rule(found, uses)
        if again is not None:
            draft.ops[i] = again
            uses = Uses(draft)
    drop_unused(draft)


def drop_unused(draft: Draft) -> None:
    needed, kept = {draft.output}, list[Op]()
    for op in reversed(draft.ops):
        if op.out in needed:
            kept.append(op)
            needed.update(operand.register for _, operand in reads(op))
    draft.ops[:] = reversed(kept)


def _into_embed(op: Op, uses: Uses) -> Op | None:
    if isinstance(op, AddPositions):
        table = uses.only(op.x)
        if isinstance(table, Embed) and table.positions is None:
            return replace(table, out=op.out, positions=op.table, position_offset=op.offset)
    if isinstance(op, Affine) and op.weight is None:
        table = uses.only(op.x)
        if isinstance(table, Embed) and op.factor == 1 and op.bias is not None:
            return replace(table, out=op.out, types=op.bias if table.types is None else table.types + op.bias)
        if isinstance(table, Embed) and op.bias is None and table.types is None and table.positions is None:
            return replace(table, out=op.out, scale=table.scale * op.factor)
    return None


def _glu(op: Op, uses: Uses) -> Op | None:
    if not isinstance(op, Mul):
        return None
    for gate, other in ((op.a, op.b), (op.b, op.a)):
        writer = uses.only(gate)
        if isinstance(writer, Activate):
            return Glu(out=op.out, a=writer.x, b=other, act=writer.act)
    if not (uses.is_whole(op.a) and uses.is_whole(op.b)):
        return Glu(out=op.out, a=op.a, b=op.b, act=Act.NONE)
    return None


def _into_linear(op: Op, uses: Uses) -> Op | None:
    if isinstance(op, Affine) and op.factor == 1 and op.weight is None:
        product = uses.only(op.x)
        if isinstance(product, Linear) and product.bias is None and product.act == Act.NONE:
            return replace(product, out=op.out, bias=op.bias)
    if isinstance(op, Activate):
        product = uses.only(op.x)
        if isinstance(product, Linear) and product.act == Act.NONE:
            return replace(product, out=op.out, act=op.act)
    return None


def _scale_into_attention(op: Op, uses: Uses) -> Op | None:
    """Numbers that multiply queries or keys become part of the attention's scale, past rotations and slices."""
    if not isinstance(op, Attention):
        return None
    for side in ("query", "key"):
        operand: Slice = getattr(op, side)
        writer = uses.writer.get(operand.register)
        if isinstance(writer, Affine) and writer.weight is None and writer.bias is None and uses.is_whole(operand):
            return with_operands(replace(op, scale=op.scale * writer.factor), {side: writer.x})
    return None


def _residual(op: Op, uses: Uses) -> Op | None:
    if not isinstance(op, Add):
        return None
    for mine, other in ((op.b, op.a), (op.a, op.b)):
        product = uses.only(mine)
        if (
            isinstance(product, Linear)
            and product.residual is None
            and product.act == Act.NONE
            and uses.is_whole(other)
        ):
            return replace(product, out=op.out, residual=other)
    return None


_ROWWISE = (Linear, Norm, Add, Mul, Affine, Activate, Glu, Concat, L2Norm)


def _pool_early(draft: Draft) -> None:
    """One row of each text is taken as early as possible: what comes after works on texts, not on tokens.

    The first or the last token may be taken before anything that works on rows and that nothing else needs of all
    tokens; the mean only before the product of a classifier.
    """
    pools = [op for op in draft.ops if isinstance(op, PoolTokens)]
    if len(pools) != 1 or pools[0].mode not in (Pool.MEAN, Pool.CLS, Pool.LAST):
        return
    (pooled,) = pools
    uses = Uses(draft)
    if not uses.is_whole(pooled.x):
        return
    late = _after_pool(draft, pooled)
    if not late:
        return
    rows: dict[int, int] = {}
    ops: list[Op] = []

    def one_row(register: int) -> int:
        """The register's row for each text, taken from its tokens when it is no late one."""
        if register not in rows:
            rows[register] = draft.register(draft.widths[register], per_text=True)
            if register not in late:
                ops.append(replace(pooled, out=rows[register], x=Slice(register, 0, draft.widths[register])))
        return rows[register]

    for op in draft.ops:
        if op is pooled:
            continue
        if op.out in late:
            operands = {name: replace(x, register=one_row(x.register)) for name, x in reads(op)}
            ops.append(replace(with_operands(op, operands), out=one_row(op.out)))
            continue
        after = {n: replace(x, register=rows[pooled.x.register]) for n, x in reads(op) if x.register == pooled.out}
        ops.append(with_operands(op, after))
    draft.output = rows[pooled.x.register] if draft.output == pooled.out else draft.output
    draft.ops[:] = ops


def _after_pool(draft: Draft, pooled: PoolTokens) -> set[int]:
    """Registers that only the pooled row depends on."""
    readers: dict[int, set[int]] = {draft.output: {-1}}
    for op in draft.ops:
        for _, x in reads(op):
            readers.setdefault(x.register, set()).add(op.out)
    late: set[int] = set()
    for op in reversed(draft.ops[: draft.ops.index(pooled)]):
        if pooled.mode == Pool.MEAN:
            early = isinstance(op, Linear) and op.act == Act.NONE and op.weight.rows < op.weight.columns
        else:
            early = isinstance(op, _ROWWISE)
        if early and readers.get(op.out, set()) <= late | {pooled.out} and (pooled.mode != Pool.MEAN or not late):
            late.add(op.out)
    return late


def _one_product(draft: Draft) -> None:
    """Products of one source, whose readers take slices, become one: queries, keys and values; gate and up."""
    readers: dict[int, list[Op]] = {}
    for op in draft.ops:
        for _, x in reads(op):
            readers.setdefault(x.register, []).append(op)
    groups: dict[tuple[object, ...], list[Linear]] = {}
    for op in draft.ops:
        if not isinstance(op, Linear) or op.act != Act.NONE or op.residual is not None or op.head:
            continue
        if op.out == draft.output or not all(_takes_slices(one, draft) for one in readers.get(op.out, [])):
            continue
        key = (op.x, op.weight.kind, any(isinstance(one, Glu) for one in readers.get(op.out, [])))
        groups.setdefault(key, []).append(op)
    for group in groups.values():
        if len(group) > 1:
            _join(draft, group)


def _takes_slices(op: Op, draft: Draft) -> bool:
    return isinstance(op, Attention | Glu | Rope) or (isinstance(op, Norm) and not op.centred and op.beta is None and (
        op.head != draft.widths[op.x.register] or op.x.width != op.head
    ))  # fmt: skip


def _join(draft: Draft, group: list[Linear]) -> None:
    width = sum(op.weight.rows for op in group)
    draft.widths.append(width)
    draft.per_text.append(draft.per_text[group[0].out])
    register = len(draft.widths) - 1
    places: dict[int, int] = {}
    at = 0
    for op in group:
        places[op.out] = at
        at += op.weight.rows
    bias = None
    if any(op.bias is not None for op in group):
        zero = [np.zeros(op.weight.rows, np.float32) if op.bias is None else op.bias for op in group]
        bias = np.concatenate(zero)
    joined = Linear(out=register, x=group[0].x, weight=stack([op.weight for op in group]), bias=bias)
    first = min(draft.ops.index(op) for op in group)
    ops: list[Op] = []
    for i, one in enumerate(draft.ops):
        if i == first:
            ops.append(joined)
        if one.out in places:
            continue
        moved = {
            n: Slice(register, places[x.register] + x.offset, x.width) for n, x in reads(one) if x.register in places
        }
        ops.append(with_operands(one, moved))
    draft.ops[:] = ops


def _mark_head(draft: Draft) -> None:
    """The last product before the output is a head when nothing but pooling and activations follows it."""
    uses = Uses(draft)
    register = draft.output
    while True:
        op = uses.writer[register]
        if isinstance(op, PoolTokens | Activate | Affine) and not isinstance(op, Embed):
            register = op.x.register
            continue
        if isinstance(op, Linear) and op.residual is None and draft.widths[op.out] <= HEAD_LIMIT and not op.weight.bits:
            draft.ops[draft.ops.index(op)] = replace(op, head=True)
        return
