"""What there is to say of ranked lists and of similarities. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Rank correlation, ties at their mean rank; 0 where either side does not vary."""
    return pearson(_ranks(a), _ranks(b))


def pearson(a: Sequence[float], b: Sequence[float]) -> float:
    """Linear correlation; 0 where either side does not vary."""
    mean_a, mean_b = math.fsum(a) / len(a), math.fsum(b) / len(b)
    over = math.fsum((p - mean_a) * (q - mean_b) for p, q in zip(a, b, strict=True))
    spread = math.fsum((p - mean_a) ** 2 for p in a) * math.fsum((q - mean_b) ** 2 for q in b)
    return max(-1.0, min(1.0, over / math.sqrt(spread))) if spread else 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for i in order[start:end]:
            ranks[i] = (start + 1 + end) / 2
        start = end
    return ranks


def reciprocal_rank(found: Sequence[str], wanted: frozenset[str]) -> float:
    """One by the place of the first that is wanted, 0 where none is."""
    return next((1 / place for place, one in enumerate(found, start=1) if one in wanted), 0.0)


def ndcg(found: Sequence[str], wanted: frozenset[str], k: int) -> float:
    """Gain of the first `k` found, each wanted one worth 1, discounted by log2 of its place, against the best order;
    1 where nothing is wanted and nothing found."""
    if not wanted:
        return float(not found)
    gain = sum(1 / math.log2(place + 1) for place, one in enumerate(found[:k], start=1) if one in wanted)
    best = sum(1 / math.log2(place + 1) for place in range(1, min(k, len(wanted)) + 1))
    return gain / best
