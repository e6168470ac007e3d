"""`tokenizer.bin`: sections of integers behind a header, and the program that names them. Pure.

docs/tokenizers.md describes the format; worker_runtime/src/tokenizers/file.ts reads it.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum

MAGIC = b"EDGT"
VERSION = 1
HEADER = 32
ENTRY = 16
NONE = 0xFFFFFFFF
SAMPLE = 128
BLOCK = 256
BLOCKS = 0x110000 // BLOCK
_MASK = 0xFFFFFFFF


class Kind(IntEnum):
    """What a section holds."""

    PROGRAM = 1
    WORDS = 2
    TRIE = 3
    FLAGS = 4
    MAP = 5
    FLOATS = 6
    DOUBLES = 7
    CHARSMAP = 8


class Op(IntEnum):
    """Records of the program, in the order they are done."""

    MAP = 1
    FORM = 2
    CHARSMAP = 3
    REPLACE = 4
    RUNS = 5
    STRIP = 6
    PREPEND = 7
    WHEN = 8
    SPACES = 32
    PUNCTUATION = 33
    WORDS = 34
    DIGITS = 35
    METASPACE = 36
    SPLIT = 37
    PREFIX_SPACE = 38
    WORDPIECE = 64
    BPE = 65
    UNIGRAM = 66
    FRAME = 96
    ADDED = 97
    SLICES = 98


# Values of a code point map that say what to do: leave it, drop it, put spaces around it, take a Hangul syllable apart.
# Others are places in its pool.
KEEP, DROP, PAD, HANGUL = 0, 1, 2, 3
POOL_FIRST = 4


def checksum(table: bytes, program: bytes, data: bytes) -> int:
    """FNV over 32-bit words: all of the table and the program, and one word in SAMPLE of everything.

    It is for files that are cut, mixed up or of other data; each byte is covered by the artifact's SHA-256.
    """
    total = 0x811C9DC5
    for part, step in ((table, 1), (program, 1), (data, SAMPLE)):
        words = array("I")
        words.frombytes(part)
        for word in words[::step]:
            total = ((total ^ word) * 0x01000193) & _MASK
    return total


def _words(values: Iterable[int]) -> bytes:
    return array("I", values).tobytes()


def _two_stages(blocks: Iterable[bytes]) -> tuple[array[int], list[bytes]]:
    stage: array[int] = array("H")
    seen: dict[bytes, int] = {}
    for block in blocks:
        stage.append(seen.setdefault(block, len(seen)))
    return stage, list(seen)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


class Writer:
    """Gathers sections and records; the same input gives the same bytes."""

    def __init__(self) -> None:
        self._sections: list[tuple[Kind, bytes]] = []
        self._program: list[int] = []

    def section(self, kind: Kind, data: bytes) -> int:
        """The section's number; equal sections are kept once."""
        entry = (kind, _padded(data))
        if entry not in self._sections:
            self._sections.append(entry)
        return self._sections.index(entry)

    def words(self, values: Iterable[int]) -> int:
        return self.section(Kind.WORDS, _words(values))

    def flags(self, values: Mapping[int, int]) -> int:
        """One byte for every code point: u16 block numbers, then the blocks."""
        low = _blocks(values, lambda numbers: bytes(numbers))
        stage, blocks = _two_stages(low)
        return self.section(Kind.FLAGS, stage.tobytes() + b"".join(blocks))

    def mapping(self, values: Mapping[int, Sequence[int] | int]) -> int:
        """For every code point what to put in its place: code points, or one of the values above."""
        places: dict[tuple[int, ...], int] = {}
        pool: list[int] = [0] * POOL_FIRST
        codes = {}
        for code, value in sorted(values.items()):
            if isinstance(value, int):
                codes[code] = value
                continue
            key = tuple(value)
            if not key:
                codes[code] = DROP
                continue
            if key not in places:
                places[key] = len(pool)
                pool += [len(key), *key]
            codes[code] = places[key]
        if len(pool) > 0xFFFF:
            raise ValueError("a code point map's pool is larger than 16 bits can name")
        stage, blocks = _two_stages(_blocks(codes, lambda numbers: array("H", numbers).tobytes()))
        head = _words([len(blocks), len(pool)])
        return self.section(Kind.MAP, head + stage.tobytes() + b"".join(blocks) + _words(pool))

    def record(self, op: Op, *arguments: int) -> None:
        self._program += [op, len(arguments), *arguments]

    def encode(self) -> bytes:
        sections = [*self._sections, (Kind.PROGRAM, _words(self._program))]
        at = HEADER + ENTRY * len(sections)
        table, body = [], []
        for kind, data in sections:
            table.append(struct.pack("<IIII", kind, at, len(data), 0))
            body.append(data)
            at += len(data)
        rest = b"".join(table + body)
        total = checksum(b"".join(table), body[-1], rest)
        return struct.pack("<4sIIII12x", MAGIC, VERSION, at, total, len(sections)) + rest


def _blocks(values: Mapping[int, int], pack: Callable[[list[int]], bytes]) -> Iterable[bytes]:
    touched: dict[int, list[int]] = {}
    for code, value in values.items():
        touched.setdefault(code // BLOCK, [0] * BLOCK)[code % BLOCK] = value
    empty = pack([0] * BLOCK)
    return (pack(touched[block]) if block in touched else empty for block in range(BLOCKS))
