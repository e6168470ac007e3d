"""tokenizer.json to `tokenizer.bin`, the tables that the Worker tokenises with: see docs/tokenizers.md. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from edgespec.engine.tokenizer.added_tokens import write_added_tokens, write_frame
from edgespec.engine.tokenizer.layout import Op, Writer
from edgespec.engine.tokenizer.models import Vocabulary, write_model
from edgespec.engine.tokenizer.normalizers import Normalizer, NotCoveredError, write_normalizer
from edgespec.engine.tokenizer.pre_tokenizers import PreTokenizer, runtime_flags, write_pre_tokenizer

T = TypeVar("T")

FILE = "tokenizer.bin"
CUT_SPACE, CUT_HAN = 1, 2
"""Where a long text may be cut and encoded in parts: between a letter or digit of ASCII and a space; before Han."""


@dataclass(frozen=True)
class Compiled:
    data: bytes | None
    """The file, or None when something is not covered."""
    uncovered: tuple[str, ...]
    """Components that the tables cannot stand for, by name; keep tokenizer.json for the library then."""


def compile_tokenizer(tokenizer: Mapping[str, Any]) -> Compiled:
    """Tables that give the ids of Python's `tokenizers`; the same tokenizer gives the same bytes.

    The file's own truncation and padding are not kept: the Worker truncates to the artifact's max_tokens, on the right.
    """
    writer = Writer()
    uncovered: list[str] = []

    def attempt(write: Callable[[], T], instead: T) -> T:
        try:
            return write()
        except NotCoveredError as error:
            uncovered.append(str(error))
            return instead

    normalizer = attempt(lambda: write_normalizer(writer, tokenizer.get("normalizer")), Normalizer())
    pre = attempt(lambda: write_pre_tokenizer(writer, tokenizer.get("pre_tokenizer")), PreTokenizer())
    if pre.first_only and normalizer.loses_start:
        uncovered.append("pre_tokenizer Metaspace (first) after a normalizer that drops what another one made")
    flags = runtime_flags(writer)
    model = tokenizer["model"]
    vocabulary = attempt(lambda: write_model(writer, model, byte_level=pre.byte_level), Vocabulary({}, 0))
    added = tokenizer.get("added_tokens") or []
    cuts = attempt(lambda: write_added_tokens(writer, added, vocabulary, normalizer), (False, False))
    attempt(lambda: write_frame(writer, tokenizer.get("post_processor")), None)
    sliceable = cuts[0] and normalizer.sliceable and pre.splits_spaces
    han = sliceable and cuts[1] and normalizer.pads_han and pre.splits_han
    writer.record(Op.SLICES, flags, CUT_SPACE * sliceable | CUT_HAN * han)
    return Compiled(None if uncovered else writer.encode(), tuple(uncovered))
