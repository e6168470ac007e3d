"""Models: WordPiece, BPE and Unigram become tries and tables of integers. Pure."""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from edgespec.engine.tokenizer.layout import NONE, Kind, Op, Writer
from edgespec.engine.tokenizer.normalizers import Json, NotCoveredError
from edgespec.engine.tokenizer.trie import TrieTooLargeError, build_trie

MAX_ID = 1 << 24
FUSE, WHOLE, BYTES, FALLBACK = 1, 2, 4, 8
"""Flags of a BPE record: fuse_unk, ignore_merges, pieces are bytes, byte_fallback."""
UNKNOWN_PENALTY = 10.0


@dataclass(frozen=True)
class Vocabulary:
    """What the added tokens are looked up in."""

    ids: Mapping[str, int]
    size: int


def write_model(writer: Writer, model: Json, *, byte_level: bool) -> Vocabulary:
    """Write the record and its tables. Raises NotCoveredError."""
    kind = model.get("type") or _guess(model)
    writers: dict[str, Callable[[], Vocabulary]] = {
        "WordPiece": lambda: _wordpiece(writer, model, byte_level),
        "BPE": lambda: _bpe(writer, model, byte_level),
        "Unigram": lambda: _unigram(writer, model, byte_level),
    }
    if kind not in writers:
        raise NotCoveredError(f"model {kind}")
    return writers[kind]()


def _guess(model: Json) -> str | None:
    """Old files do not name their model."""
    if "merges" in model:
        return "BPE"
    return "Unigram" if isinstance(model.get("vocab"), list) else None


def trie_section(writer: Writer, items: Mapping[bytes, int], what: str) -> int:
    if any(not 0 <= value < MAX_ID for value in items.values()):
        raise NotCoveredError(f"{what} with ids above {MAX_ID}")
    try:
        return writer.section(Kind.TRIE, build_trie({key: value for key, value in items.items() if key}))
    except TrieTooLargeError as error:
        raise NotCoveredError(f"{what} too large for a trie") from error


def _checked(ids: Mapping[str, int], what: str) -> Mapping[str, int]:
    """Raises NotCoveredError where an id is out of range."""
    if any(not 0 <= value < MAX_ID for value in ids.values()):
        raise NotCoveredError(f"{what} with ids above {MAX_ID}")
    return ids


def _encoded(ids: Mapping[str, int]) -> dict[bytes, int]:
    try:
        return {piece.encode(): value for piece, value in ids.items()}
    except UnicodeEncodeError as error:
        raise NotCoveredError("vocabulary with lone surrogates") from error


def _wordpiece(writer: Writer, model: Json, byte_level: bool) -> Vocabulary:
    if byte_level:
        raise NotCoveredError("model WordPiece after ByteLevel")
    ids = _checked(model["vocab"], "model WordPiece")
    unknown = ids.get(model["unk_token"])
    if unknown is None:
        raise NotCoveredError("model WordPiece without its unk_token")
    prefix: bytes = model["continuing_subword_prefix"].encode()
    trie = trie_section(writer, _encoded(ids), "model WordPiece")
    writer.record(Op.WORDPIECE, trie, unknown, model["max_input_chars_per_word"], *prefix)
    return Vocabulary(ids, len(ids))


def byte_characters() -> dict[str, int]:
    """The character that stands for each byte in a byte-level vocabulary."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in shown]
    return {**{chr(byte): byte for byte in shown}, **{chr(256 + i): byte for i, byte in enumerate(others)}}


def _merges(model: Json, ids: Mapping[str, int]) -> list[int]:
    """Three words per merge in order of rank: left, right, joined. A later merge of one pair takes its place."""
    last: dict[tuple[int, int], tuple[int, int]] = {}
    for rank, merge in enumerate(model["merges"]):
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        try:
            last[ids[left], ids[right]] = rank, ids[left + right]
        except KeyError as error:
            raise NotCoveredError("model BPE with merges outside its vocabulary") from error
    ranked = sorted((rank, *pair, joined) for pair, (rank, joined) in last.items())
    return [number for _, *merge in ranked for number in merge]


def _pair_slots(merges: Sequence[int]) -> list[int]:
    """A hash table from pairs to merges: 1 + the merge's rank, 0 where empty."""
    count = len(merges) // 3
    size = 1 << max(4, (count * 3 // 2).bit_length())
    slots = [0] * size
    for rank in range(count):
        left, right = merges[3 * rank], merges[3 * rank + 1]
        slot = ((left * 0x9E3779B1) ^ (right * 0x85EBCA6B)) & 0xFFFFFFFF
        slot = (slot ^ slot >> 15) & (size - 1)
        while slots[slot]:
            slot = (slot + 1) & (size - 1)
        slots[slot] = rank + 1
    return slots


def _bpe(writer: Writer, model: Json, byte_level: bool) -> Vocabulary:
    for option in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(option):
            raise NotCoveredError(f"model BPE with {option}")
    if model.get("dropout"):
        raise NotCoveredError("model BPE with dropout")
    ids = _checked(model["vocab"], "model BPE")
    unknown = _unknown(model, ids)
    whole, fallback = bool(model.get("ignore_merges")), bool(model.get("byte_fallback"))
    flags = FUSE * bool(model.get("fuse_unk")) | WHOLE * whole | BYTES * byte_level | FALLBACK * fallback
    merges = _merges(model, ids)
    bytes_, trie = _byte_level(writer, ids, whole) if byte_level else _characters(writer, ids, whole, fallback)
    if byte_level and fallback and NONE in bytes_:
        raise NotCoveredError("model BPE with byte_fallback after ByteLevel")
    sections = [writer.words(bytes_), writer.words(_pair_slots(merges)), writer.words(merges), trie]
    writer.record(Op.BPE, *sections, unknown, flags)
    return Vocabulary(ids, len(ids))


def _unknown(model: Json, ids: Mapping[str, int]) -> int:
    token = model.get("unk_token")
    if token is None:
        return NONE
    if token not in ids:
        raise NotCoveredError("model BPE without its unk_token")
    return ids[token]


def _byte_level(writer: Writer, ids: Mapping[str, int], whole: bool) -> tuple[list[int], int]:
    """Ids of single bytes, and with ignore_merges the trie of all pieces as bytes."""
    alphabet = byte_characters()
    table = [NONE] * 256
    for character, byte in alphabet.items():
        table[byte] = ids.get(character, NONE)
    if not whole:
        return table, NONE
    items = {
        bytes(map(alphabet.__getitem__, piece)): value
        for piece, value in ids.items()
        if all(character in alphabet for character in piece)
    }
    return table, trie_section(writer, items, "model BPE")


def _fallback_table(ids: Mapping[str, int]) -> list[int]:
    return [ids.get(f"<0x{byte:02X}>", NONE) for byte in range(256)]


def _characters(writer: Writer, ids: Mapping[str, int], whole: bool, fallback: bool) -> tuple[list[int], int]:
    """Ids of <0x00> to <0xFF>, and the trie of characters (of all pieces with ignore_merges)."""
    kept = ids if whole else {piece: value for piece, value in ids.items() if len(piece) == 1}
    table = _fallback_table(ids) if fallback else [NONE] * 256
    return table, trie_section(writer, _encoded(kept), "model BPE")


def _unigram(writer: Writer, model: Json, byte_level: bool) -> Vocabulary:
    if byte_level:
        raise NotCoveredError("model Unigram after ByteLevel")
    unknown = model.get("unk_id")
    pieces = model["vocab"]
    if unknown is None or unknown >= len(pieces):
        raise NotCoveredError("model Unigram without unk_id")
    ids = {piece: at for at, (piece, _) in enumerate(pieces)}
    scores = [float(score) for _, score in pieces]
    if not all(map(math.isfinite, scores)):
        raise NotCoveredError("model Unigram with scores that are not numbers")
    single = array("f", scores)
    exact = list(single) == scores
    section = writer.section(Kind.FLOATS, single.tobytes()) if exact else writer.section(Kind.DOUBLES, _doubles(scores))
    least = struct.unpack("<II", struct.pack("<d", min(scores) - UNKNOWN_PENALTY))
    table = writer.words(_fallback_table(ids)) if model.get("byte_fallback") else NONE
    trie = trie_section(writer, _encoded(ids), "model Unigram")
    writer.record(Op.UNIGRAM, trie, section, unknown, table, *least)
    return Vocabulary(ids, len(pieces))


def _doubles(scores: Sequence[float]) -> bytes:
    """Eight bytes each; the reader copies them, since a section starts at a multiple of four only."""
    return array("d", scores).tobytes()
