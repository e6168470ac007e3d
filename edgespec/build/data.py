"""Examples and texts in data files, checked completely before anything is built or measured (docs/build.md, "Data").

    {"text": "...", "label": "refund"}                       text-classification
    {"text": "...", "labels": ["spam", "insult"]}            text-classification, multi_label
    {"text": "...", "keywords": ["battery life"]}            keyword-extraction
    {"text_a": "...", "text_b": "...", "score": 0.8}         embedding
    {"messages": [{"role": "user", "content": "..."}, ...]}  conversations; with a label beside them an example

JSON Lines, CSV with a header, or Parquet, by the file's suffix. Each row may say its `language`; any other column is
an error. What reads and checks them is in `edgespec.build.dataset`.
"""

from __future__ import annotations

from edgespec.build.dataset.examples import (
    AnyExample,
    Conversation,
    Example,
    Keyworded,
    Labelled,
    Message,
    Pair,
    Task,
    Unlabelled,
    texts_of,
)
from edgespec.build.dataset.facts import describe, label_counts, leaks, normal_form
from edgespec.build.dataset.read import (
    MAX_REPORTED,
    read_conversations,
    read_examples,
    read_partly_labelled,
    read_texts,
)

__all__ = [
    "MAX_REPORTED",
    "AnyExample",
    "Conversation",
    "Example",
    "Keyworded",
    "Labelled",
    "Message",
    "Pair",
    "Task",
    "Unlabelled",
    "describe",
    "label_counts",
    "leaks",
    "normal_form",
    "read_conversations",
    "read_examples",
    "read_partly_labelled",
    "read_texts",
    "texts_of",
]
