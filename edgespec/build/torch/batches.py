"""Texts as batches of token ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

ALIKE: Final = 16
"""Batches are filled from so many batches' worth of texts, shuffled and then sorted by length: little padding."""


def tokenise(folder: Path, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
    """Token ids with special tokens, cut at `max_tokens`, by the tokenizer.json in `folder`."""
    from edgespec.build.embed import read_tokenizer

    tokenizer = read_tokenizer((folder / "tokenizer.json").read_bytes(), max_tokens)
    return [list(e.ids) for e in tokenizer.encode_batch(list(texts))]


def pad(rows: Sequence[Sequence[int]], filler: int | None, where: torch.device) -> dict[str, Any]:
    """`input_ids` and `attention_mask`, [texts, longest]. `filler` is the id of padding, which RoBERTa counts by."""
    import torch

    longest = max(1, *map(len, rows))
    ids = torch.full((len(rows), longest), filler or 0, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row, dtype=torch.long)
        mask[i, : len(row)] = 1
    return {"input_ids": ids.to(where), "attention_mask": mask.to(where)}


def by_length(rows: Sequence[Sequence[int]], size: int) -> Iterator[list[int]]:
    """Places of all rows in batches of like length, the shortest first."""
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    for start in range(0, len(order), size):
        yield order[start : start + size]


def shuffled(rows: Sequence[Sequence[int]], size: int, generator: torch.Generator) -> list[list[int]]:
    """Places of all rows in random batches of like length, in random order."""
    import torch

    places = torch.randperm(len(rows), generator=generator).tolist()
    batches: list[list[int]] = []
    for start in range(0, len(places), size * ALIKE):
        some = sorted(places[start : start + size * ALIKE], key=lambda i: len(rows[i]))
        batches += [some[i : i + size] for i in range(0, len(some), size)]
    return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]
