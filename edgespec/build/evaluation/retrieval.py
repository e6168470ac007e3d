"""Finding a text again among others by its embedding. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]


def retrieval_ranks(
    queries: Doubles, texts: Doubles, pairs: Sequence[tuple[int, int]], positive: Sequence[bool]
) -> list[int | None]:
    """For each pair (row of `queries`, row of `texts`) that is positive, the place of its text among all texts by
    cosine similarity to its query; None for the others.

    Other texts that are positive for the same query are passed over. Of equally similar texts the wanted one comes
    last: a model that finds everything alike finds nothing.
    """
    unit_q, unit_t = _unit(queries), _unit(texts)
    friends: dict[int, set[int]] = {}
    for (query, text), good in zip(pairs, positive, strict=True):
        if good:
            friends.setdefault(query, set()).add(text)
    similar: dict[int, Doubles] = {query: unit_t @ unit_q[query] for query in friends}
    found: list[int | None] = []
    for (query, text), good in zip(pairs, positive, strict=True):
        if not good:
            found.append(None)
            continue
        row = similar[query]
        rivals = np.delete(row, sorted(friends[query]))
        found.append(1 + int((rivals >= row[text] - 1e-12).sum()))
    return found


def _unit(rows: Doubles) -> Doubles:
    length = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    unit: Doubles = rows / np.where(length > 0, length, 1)
    return unit
