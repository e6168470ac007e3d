"""Code points as Python's `tokenizers` sees them: flags, combining classes, clusters, decompositions, lower case. Pure.

The data were asked of the library itself (scripts/unicode_tables.py); `unicodedata` follows another version of Unicode.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType

from edgespec.engine.tokenizer import unicode_data

LETTER, NUMBER, SPACE, PUNCTUATION, WORD, NUMERIC, DROPPED, NONSPACING, MARK = (1 << bit for bit in range(9))
"""Flags: \\p{L}, \\p{N} and \\s of Oniguruma; BERT's punctuation; \\w of Rust's regex; Rust's is_numeric; what BERT's
clean_text drops; what BERT's strip_accents drops; what StripAccents drops."""

HAN = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
"""BERT's Han characters; extension E starts where the library has it start."""
HANGUL_FIRST, HANGUL_LAST = 0xAC00, 0xD7A3
L_FIRST, V_FIRST, T_FIRST, L_COUNT, V_COUNT, T_COUNT = 0x1100, 0x1161, 0x11A7, 19, 21, 28


def _numbers(text: str) -> Iterator[int]:
    value = shift = 0
    for byte in zlib.decompress(base64.b85decode(text)):
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield value
            value = shift = 0


def _runs(text: str) -> Mapping[int, int]:
    found = {}
    end = 0
    numbers = _numbers(text)
    for gap in numbers:
        length, value = next(numbers) + 1, next(numbers)
        found.update(dict.fromkeys(range(end + gap, end + gap + length), value))
        end += gap + length
    return MappingProxyType(found)


def _mapping(text: str) -> Mapping[int, tuple[int, ...]]:
    found = {}
    code = 0
    numbers = _numbers(text)
    for gap in numbers:
        code += gap
        length = next(numbers)
        steps = [next(numbers) for _ in range(length)]
        found[code] = tuple(code + (step >> 1 if step % 2 == 0 else -(step + 1 >> 1)) for step in steps)
    return MappingProxyType(found)


@cache
def flags() -> Mapping[int, int]:
    return _runs(unicode_data.FLAGS)


@cache
def combining_classes() -> Mapping[int, int]:
    """Canonical combining classes other than 0."""
    return _runs(unicode_data.COMBINING)


@cache
def clusters() -> Mapping[int, int]:
    """Grapheme classes, without Hangul syllables: docs/tokenizers.md has the values."""
    return _runs(unicode_data.CLUSTERS)


@cache
def canonical() -> Mapping[int, tuple[int, ...]]:
    """Full canonical decompositions, without Hangul syllables."""
    return _mapping(unicode_data.CANONICAL)


@cache
def compatible() -> Mapping[int, tuple[int, ...]]:
    """Full compatibility decompositions, without Hangul syllables."""
    return MappingProxyType({**canonical(), **_mapping(unicode_data.COMPATIBLE)})


@cache
def composed() -> Mapping[tuple[int, int], int]:
    """What NFC joins, without Hangul."""
    return MappingProxyType({(a, b): code for code, (a, b) in _mapping(unicode_data.COMPOSED).items()})


@cache
def lower() -> Mapping[int, tuple[int, ...]]:
    """Lower case of single code points."""
    return _mapping(unicode_data.LOWER)


def has(code: int, flag: int) -> bool:
    return bool(flags().get(code, 0) & flag)


def decompose(code: int, *, compatibly: bool) -> tuple[int, ...]:
    if HANGUL_FIRST <= code <= HANGUL_LAST:
        lead, rest = divmod(code - HANGUL_FIRST, V_COUNT * T_COUNT)
        vowel, tail = divmod(rest, T_COUNT)
        return (L_FIRST + lead, V_FIRST + vowel, *((T_FIRST + tail,) if tail else ()))
    return (compatible() if compatibly else canonical()).get(code, (code,))


def _compose(a: int, b: int) -> int | None:
    if 0 <= a - L_FIRST < L_COUNT and 0 <= b - V_FIRST < V_COUNT:
        return HANGUL_FIRST + ((a - L_FIRST) * V_COUNT + b - V_FIRST) * T_COUNT
    if HANGUL_FIRST <= a <= HANGUL_LAST and (a - HANGUL_FIRST) % T_COUNT == 0 and 0 < b - T_FIRST < T_COUNT:
        return a + b - T_FIRST
    return composed().get((a, b))


def normalize(text: str, form: str) -> str:
    """NFC, NFD, NFKC or NFKD as the library has it."""
    classes = combining_classes()
    codes = [part for c in text for part in decompose(ord(c), compatibly="K" in form)]
    at = 0
    while at < len(codes):
        end = at + 1
        while end < len(codes) and classes.get(codes[end], 0):
            end += 1
        start = at if classes.get(codes[at], 0) else at + 1
        codes[start:end] = sorted(codes[start:end], key=lambda code: classes.get(code, 0))
        at = end
    return "".join(map(chr, _join(codes) if form.endswith("C") else codes))


def _join(codes: list[int]) -> list[int]:
    """Canonical composition of ordered code points."""
    classes = combining_classes()
    out: list[int] = []
    starter, last = -1, -1
    for code in codes:
        value = classes.get(code, 0)
        joined = _compose(out[starter], code) if starter >= 0 and last < value else None
        if joined is not None:
            out[starter] = joined
            continue
        out.append(code)
        if value == 0:
            starter, last = len(out) - 1, -1
        else:
            last = value
    return out
