"""Which columns a data file of each kind has, and how to show one."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from edgespec.build.dataset.examples import Task
from edgespec.spec.models import KeywordExtraction, TextClassification

KNOWN: Final = ("text", "label", "labels", "keywords", "text_a", "text_b", "score", "messages", "language")
"""Every column that a data file may have."""


@dataclass(frozen=True, slots=True)
class Form:
    """`wanted` columns must be there; `messages` may stand in for `text`."""

    name: str
    """What the rows are, for messages."""
    wanted: tuple[str, ...]
    optional: tuple[str, ...]
    sample: dict[str, Any]

    def wanted_of(self, columns: Collection[str]) -> tuple[str, ...]:
        """The columns that a row with these must have."""
        if "messages" in columns and "text" not in columns:
            return tuple("messages" if w == "text" else w for w in self.wanted)
        return self.wanted

    def allowed_of(self, columns: Collection[str]) -> tuple[str, ...]:
        return (*self.wanted_of(columns), *self.optional, "language")

    def shown(self, suffix: str) -> str:
        """A sentence that says how a file of this suffix is written."""
        if suffix == ".csv":
            cells = ("|".join(v) if isinstance(v, list) else str(v) for v in self.sample.values())
            return f"The first line names the columns, such as `{','.join(self.sample)}`; then `{','.join(cells)}`."
        if suffix == ".parquet":
            return f"The file has the columns {' and '.join(self.sample)}."
        return f"Every line is an object such as {json.dumps(self.sample, ensure_ascii=False)}."


def form_of(task: Task, *, labels_optional: bool = False) -> Form:
    if isinstance(task, TextClassification):
        key = "labels" if task.multi_label else "label"
        name = f"{task.type} with multi_label" if task.multi_label else task.type
        sample = {"text": "...", key: list(task.labels[:1]) if task.multi_label else task.labels[0]}
        return Form(name, ("text",), (key,), sample) if labels_optional else Form(name, ("text", key), (), sample)
    if isinstance(task, KeywordExtraction):
        return Form(task.type, ("text", "keywords"), (), {"text": "...", "keywords": ["..."]})
    return Form(task.type, ("text_a", "text_b", "score"), (), {"text_a": "...", "text_b": "...", "score": 0.8})


CONVERSATIONS: Final = Form(
    "conversations",
    ("messages",),
    (),
    {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]},
)


def texts_form(columns: Collection[str]) -> Form:
    """A file of which only the texts are read: whatever else it may have is passed over."""
    pair = "text" not in columns and bool({"text_a", "text_b"} & set(columns))
    wanted = ("text_a", "text_b") if pair else ("text",)
    return Form("texts", wanted, tuple(k for k in KNOWN if k not in wanted), {"text": "..."})
