"""The texts that are asked: the spec's own, and such of about 8 to 128 tokens, cut or joined from them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Final

from tokenizers import Tokenizer

from edgespec.build.data import Example, Pair, read_examples
from edgespec.diagnostics import EdgespecError, error
from edgespec.measurement import OWN, Texts
from edgespec.spec.models import EdgeModel

LENGTHS: Final = (8, 16, 32, 64, 128)
VARIANTS: Final = 6
"""Different texts of one length, so that nothing is measured on one text alone."""
OWN_TEXTS: Final = 32


@dataclass(frozen=True, slots=True)
class TextRow:
    name: str
    texts: tuple[str, ...]
    tokens: tuple[int, ...]
    """With special tokens, as the model sees them: at most max_tokens."""

    @property
    def document(self) -> Texts:
        return Texts(
            row=self.name,
            texts=len(self.texts),
            tokens_min=min(self.tokens),
            tokens_median=round(statistics.median(self.tokens)),
            tokens_max=max(self.tokens),
        )


def rows_for(spec: EdgeModel, root: Path, tokenizer: Tokenizer) -> tuple[TextRow, ...]:
    """Rows by length, the shortest first, and the spec's own texts last. `tokenizer` neither cuts nor pads.

    Raises EdgespecError where the spec names no data to take texts from.
    """
    texts = _own_texts(spec, root)
    most = spec.task.max_tokens
    lengths = [n for n in LENGTHS if n < most] + (
        [most] if most <= LENGTHS[-1] else [LENGTHS[-1]] * (LENGTHS[-1] < most)
    )
    rows = []
    for length in sorted(set(lengths)):
        made = tuple(text_of(texts[i * len(texts) // VARIANTS :] + texts, length, tokenizer) for i in range(VARIANTS))
        rows.append(_row(str(length), tuple(dict.fromkeys(made)), tokenizer, most))
    step = max(1, len(texts) // OWN_TEXTS)
    rows.append(_row(OWN, tuple(texts[::step][:OWN_TEXTS]), tokenizer, most))
    return tuple(rows)


def text_of(texts: Sequence[str], tokens: int, tokenizer: Tokenizer) -> str:
    """The texts joined, as often as needed, and cut where `tokens` tokens end: near a word's end or within a word."""
    special = len(tokenizer.encode("").ids)
    want = max(1, tokens - special)
    joined = ""
    for text in islice(cycle(texts), 4096):
        joined = f"{joined} {text}".strip()
        encoding = tokenizer.encode(joined, add_special_tokens=False)
        if len(encoding.ids) >= want:
            return joined[: encoding.offsets[want - 1][1]]
    return joined


def _row(name: str, texts: tuple[str, ...], tokenizer: Tokenizer, most: int) -> TextRow:
    return TextRow(name, texts, tuple(min(most, len(tokenizer.encode(t).ids)) for t in texts))


def _own_texts(spec: EdgeModel, root: Path) -> list[str]:
    """The texts of the quality data, else of the training data, each once, in their order."""
    path = spec.quality.data if spec.quality else spec.head.train if spec.head else None
    if path is None:
        detail = f"{spec.name} names neither quality data nor training data. Give it `quality: {{data: ...}}`."
        raise EdgespecError(error("ES410", "No texts to measure with", detail))
    try:
        data = (root / path).read_bytes()
    except OSError as e:
        raise EdgespecError(error("ES161", "File cannot be read", f"{path}: {e.strerror}.")) from e
    examples = read_examples(data, path, spec.task).unwrap()
    return list(dict.fromkeys(t for e in examples for t in _texts(e)))


def _texts(example: Example) -> tuple[str, ...]:
    return (example.text_a, example.text_b) if isinstance(example, Pair) else (example.text,)
