"""Added tokens, and the post-processor's frame of special tokens. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from edgespec.engine.tokenizer.layout import Op, Writer
from edgespec.engine.tokenizer.models import Vocabulary, trie_section
from edgespec.engine.tokenizer.normalizers import Json, Normalizer, NotCoveredError

LEFT, RIGHT, WORD = 1, 2, 4
"""Flags: takes the spaces before it, those after it, must stand alone as a word."""
RAW, NORMALIZED = 0, 1


@dataclass(frozen=True)
class _Added:
    content: str
    id: int
    flags: int
    normalized: bool


def write_added_tokens(
    writer: Writer, tokens: Iterable[Json], vocabulary: Vocabulary, normalizer: Normalizer
) -> tuple[bool, bool]:
    """Write up to two records. Answers whether texts may still be cut before a space, and before a Han character."""
    sliceable = han = True
    found = _numbered(tokens, vocabulary)
    for stage in (RAW, NORMALIZED):
        patterns: dict[str, _Added] = {}
        for added in found:
            if added.normalized is (stage == NORMALIZED):
                content = normalizer.apply(added.content) if added.normalized else added.content
                if content in patterns or not content:
                    raise NotCoveredError("added tokens of one content")
                patterns[content] = added
        if patterns:
            _record(writer, stage, patterns)
        sliceable &= not any(_spans_cut(content, added) for content, added in patterns.items())
        han &= all(content.isascii() and not added.flags & WORD for content, added in patterns.items())
    return sliceable, sliceable and han


def _spans_cut(content: str, added: _Added) -> bool:
    inside = content[1:] if added.normalized else "".join(re.findall(r"[A-Za-z0-9] ", content))
    spaced = any(c.isspace() or c == "\u2581" for c in inside)
    reaches = bool(added.flags & RIGHT) and re.search(r"[A-Za-z0-9]$", content) is not None
    return spaced or reaches or (bool(added.flags & WORD) and not content[0].strip())


def _numbered(tokens: Iterable[Json], vocabulary: Vocabulary) -> list[_Added]:
    """As the library numbers them: the vocabulary's id, or the next one that is free."""
    by_id: dict[int, _Added] = {}
    by_content: dict[str, int] = {}
    for token in tokens:
        content = token["content"]
        if not content:
            continue
        known = by_content.get(content, vocabulary.ids.get(content))
        if known is None:
            top = max(by_id, default=-1)
            known = max(top + 1, vocabulary.size) if by_id else vocabulary.size
        by_content[content] = known
        flags = LEFT * token["lstrip"] | RIGHT * token["rstrip"] | WORD * token["single_word"]
        by_id[known] = _Added(content, known, flags, token["normalized"])
    return sorted(by_id.values(), key=lambda added: added.id)


def _record(writer: Writer, stage: int, patterns: Mapping[str, _Added]) -> None:
    entries = sorted(patterns.items())
    try:
        items = {content.encode(): at for at, (content, _) in enumerate(entries)}
    except UnicodeEncodeError as error:
        raise NotCoveredError("added tokens with lone surrogates") from error
    firsts = [0] * 5
    for content in patterns:
        code = ord(content[0])
        firsts[min(code >> 5, 4)] |= 1 << (code & 31) if code < 128 else 1
    table = writer.words(number for _, added in entries for number in (added.id, added.flags))
    writer.record(Op.ADDED, stage, trie_section(writer, items, "added tokens"), table, *firsts)


def write_frame(writer: Writer, component: Json | None) -> None:
    """Write what goes before and after the text's tokens. Raises NotCoveredError."""
    before, after, body = _frame(component) if component is not None else ([], [], 0)
    flat = [number for token in (*before, *after) for number in token]
    writer.record(Op.FRAME, len(before), len(after), body, *flat)


Frame = tuple[list[tuple[int, int]], list[tuple[int, int]], int]


def _frame(component: Json) -> Frame:
    """Special tokens with their type before and after the text, and the text's type."""
    kind = component.get("type")
    if kind == "ByteLevel":
        return [], [], 0
    if kind in ("BertProcessing", "RobertaProcessing"):
        return [(component["cls"][1], 0)], [(component["sep"][1], 0)], 0
    if kind == "TemplateProcessing":
        return _template(component)
    if kind == "Sequence":
        framing = [part for part in component["processors"] if part.get("type") != "ByteLevel"]
        if len(framing) <= 1:
            return _frame(framing[0]) if framing else ([], [], 0)
    raise NotCoveredError(f"post_processor {kind}")


def _template(component: Json) -> Frame:
    before: list[tuple[int, int]] = []
    after: list[tuple[int, int]] = []
    body: int | None = None
    for piece in component["single"]:
        if "Sequence" in piece:
            if body is not None or piece["Sequence"]["id"] != "A":
                raise NotCoveredError("post_processor TemplateProcessing with the text more than once")
            body = piece["Sequence"]["type_id"]
            continue
        special: Mapping[str, Any] = piece["SpecialToken"]
        ids = component["special_tokens"][special["id"]]["ids"]
        (before if body is None else after).extend((token, special["type_id"]) for token in ids)
    if body is None:
        raise NotCoveredError("post_processor TemplateProcessing without the text")
    return before, after, body
