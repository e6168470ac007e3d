"""Examples as ms-swift reads them: JSON Lines of `messages`, with labels as numbers. The map of labels to numbers is
the order of the task's labels, and stays with edgespec."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from edgespec.build.cache import InputFile
from edgespec.build.data import Conversation, Labelled, Pair, read_conversations, read_examples, read_texts
from edgespec.build.problems import fail
from edgespec.build.sources import ModelFiles
from edgespec.diagnostics import Checked
from edgespec.spec.models import Embedding, TextClassification

Row = Mapping[str, Any]
SAME: Final = 1e-9
"""Scores that differ by less are one score."""
MARKS: Final = 5
"""Tokens around a message: its start, who says it, its end."""


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def labelled_rows(examples: Iterable[Labelled], task: TextClassification) -> list[Row]:
    index = {label: i for i, label in enumerate(task.labels)}
    rows: list[Row] = []
    for example in examples:
        numbers = sorted(index[label] for label in example.labels)
        rows.append({"messages": said(example.text), "label": numbers if task.multi_label else numbers[0]})
    return rows


def pair_rows(pairs: Iterable[Pair]) -> list[Row]:
    return [
        {"messages": said(p.text_a), "positive_messages": [said(p.text_b)], "label": p.score} for p in pairs
    ]  # fmt: skip


def conversation_rows(conversations: Iterable[Conversation]) -> list[Row]:
    return [{"messages": [{"role": m.role, "content": m.content} for m in c.messages]} for c in conversations]


def pair_loss(pairs: Sequence[Pair], name: str) -> Literal["infonce", "cosine_similarity"]:
    """What trains on these pairs. One score for all says only that they belong together: the others of a batch are
    what each is told from. Scores that differ are cosines to come near to."""
    scores = [p.score for p in pairs]
    if max(scores) - min(scores) < SAME:
        if max(scores) > 0:
            return "infonce"
        raise fail("ES556", f"every pair of {name} has the score {scores[0]:g}: nothing in it is alike.")
    bad = next((s for s in scores if not -1 <= s <= 1), None)
    if bad is not None:
        raise fail(
            "ES556",
            f"{name} has the score {bad:g}; training takes scores as cosines, from -1 to 1. Divide them, or give "
            "every pair that belongs together the score 1 and leave the others out.",
        )
    return "cosine_similarity"


def read_task_rows(
    file: InputFile, task: TextClassification | Embedding, *, training: bool
) -> tuple[list[Row], Checked[Any]]:
    """The rows of a data file of the task's shape, and what its reader said. Raises ES52x."""
    checked: Checked[Any] = read_examples(file.read(), file.name, task, training=training)
    examples = checked.unwrap()
    if isinstance(task, TextClassification):
        return labelled_rows([e for e in examples if isinstance(e, Labelled)], task), checked
    return pair_rows([e for e in examples if isinstance(e, Pair)]), checked


def read_conversation_rows(file: InputFile) -> tuple[list[Row], Checked[Any]]:
    checked: Checked[Any] = read_conversations(file.read(), file.name)
    return conversation_rows(checked.unwrap()), checked


def read_text_rows(file: InputFile, count: int) -> list[Row]:
    """The first so many texts of a file of any kind."""
    return [{"messages": said(text)} for text in read_texts(file.read(), file.name).unwrap()[:count]]


def count_long(files: ModelFiles, rows: Sequence[Row], most: int) -> int:
    """How many conversations have more tokens than that, with MARKS for what a template writes around a message."""
    from edgespec.build.embed import read_tokenizer

    tokenizer = read_tokenizer(files.tokenizer.read(), None)

    def size(row: Row) -> int:
        texts = [m["content"] for m in row["messages"]]
        return sum(len(e.ids) + MARKS for e in tokenizer.encode_batch(texts, add_special_tokens=False))

    return sum(size(row) > most for row in rows)


def write_rows(path: Path, rows: Iterable[Row]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path
