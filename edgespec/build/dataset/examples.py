"""What a row of a data file stands for. `line` is where it stands: a line of a text file or a row of a Parquet file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from edgespec.spec.models import Embedding, KeywordExtraction, TextClassification

Task: TypeAlias = TextClassification | KeywordExtraction | Embedding
Role: TypeAlias = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Labelled:
    text: str
    labels: tuple[str, ...]
    """One, unless the task is multi_label."""
    language: str | None = None
    line: int = field(default=0, compare=False, repr=False)

    @property
    def key(self) -> tuple[str, ...]:
        return (self.text,)


@dataclass(frozen=True, slots=True)
class Unlabelled:
    """A text whose labels nobody has said: not the same as one that has none."""

    text: str
    language: str | None = None
    line: int = field(default=0, compare=False, repr=False)

    @property
    def key(self) -> tuple[str, ...]:
        return (self.text,)


@dataclass(frozen=True, slots=True)
class Keyworded:
    text: str
    keywords: tuple[str, ...]
    language: str | None = None
    line: int = field(default=0, compare=False, repr=False)

    @property
    def key(self) -> tuple[str, ...]:
        return (self.text,)


@dataclass(frozen=True, slots=True)
class Pair:
    text_a: str
    text_b: str
    score: float
    language: str | None = None
    line: int = field(default=0, compare=False, repr=False)

    @property
    def key(self) -> tuple[str, ...]:
        return (self.text_a, self.text_b)


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages that a causal language model learns: at most one of the system first, then user and assistant in turn,
    an assistant's last."""

    messages: tuple[Message, ...]
    language: str | None = None
    line: int = field(default=0, compare=False, repr=False)

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(f"{m.role}\n{m.content}" for m in self.messages)


Example: TypeAlias = Labelled | Keyworded | Pair
"""What a task can be trained and measured on."""
AnyExample: TypeAlias = Example | Unlabelled | Conversation


def texts_of(example: AnyExample) -> tuple[str, ...]:
    """Every text of an example, in order."""
    if isinstance(example, Pair):
        return (example.text_a, example.text_b)
    return tuple(m.content for m in example.messages) if isinstance(example, Conversation) else (example.text,)
