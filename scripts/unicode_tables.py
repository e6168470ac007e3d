"""Write edgespec/engine/tokenizer/unicode_data.py: what the library `tokenizers` takes each code point for.

    python scripts/unicode_tables.py [--check]

The crates behind Python's `tokenizers` follow several versions of Unicode at once (normalisation 9, others newer), and
JavaScript engines another one. So the tables come from asking the library itself about every code point, and the Worker
never asks its engine. Takes half a minute. `--check` compares with the committed file: do that when `tokenizers` gets
a new release.
"""

from __future__ import annotations

import argparse
import base64
import struct
import sys
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

TARGET = Path(__file__).parents[1] / "edgespec/engine/tokenizer/unicode_data.py"
CHARACTERS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
HANGUL = range(0xAC00, 0xD7A4)
ACUTE = "\u0301"

Mapping = dict[int, tuple[int, ...]]


def changed(normalizer: object) -> Mapping:
    """Code points that the normaliser maps to something else."""
    normalise: Callable[[str], str] = normalizer.normalize_str  # type: ignore[attr-defined]
    found = {}
    for code in CHARACTERS:
        text = chr(code)
        mapped = normalise(text)
        if mapped != text:
            found[code] = tuple(map(ord, mapped))
    return found


def members(pre_tokenizer: object, around: str, pieces: int) -> set[int]:
    """Code points which between two of `around` give that many pieces."""
    split = pre_tokenizer.pre_tokenize_str  # type: ignore[attr-defined]
    return {code for code in CHARACTERS if len(split(f"{around}{chr(code)}{around}")) == pieces}


def matching(pattern: str) -> set[int]:
    return members(pre_tokenizers.Split(Regex(pattern), "removed"), "\u0001", 2)


def combining_classes(nfd: Mapping) -> dict[int, int]:
    """Canonical combining classes other than 0, by what is put in order around a mark of a known class."""
    import unicodedata

    normalise = normalizers.NFD().normalize_str
    moved = []
    for code in CHARACTERS:
        text = chr(code)
        pairs = ("\u0345" + text, text + "\u0334")
        if code not in nfd and code not in HANGUL and any(normalise(pair) != pair for pair in pairs):
            moved.append(code)
    known: dict[int, str] = {}
    for code in moved:
        known.setdefault(unicodedata.combining(chr(code)), chr(code))
    order = sorted(known)
    classes = {}
    for code in moved:
        text = chr(code)
        below = [value for value in order if normalise(text + known[value]) != text + known[value]]
        classes[code] = order[len(below)]
    return classes


def compositions(nfd: Mapping) -> dict[int, tuple[int, ...]]:
    """Composed code point -> the two that NFC joins to it; without Hangul syllables."""
    normalise = normalizers.NFC().normalize_str
    found = {}
    for code, parts in nfd.items():
        if code in HANGUL or len(parts) < 2:
            continue
        first = normalise("".join(map(chr, parts[:-1])))
        if len(first) == 1 and normalise(first + chr(parts[-1])) == chr(code):
            found[code] = (ord(first), parts[-1])
    return found


def first_bytes() -> normalizers.Precompiled:
    """A charsmap that maps every first byte to X: what it leaves of a text counts the clusters under six bytes."""
    units = [0] * 1024
    units[0] = 256 << 10
    for byte in range(1, 256):
        units[256 + byte] = ((256 + byte) ^ 512) << 10 | 1 << 8 | byte
    units[512] = 1 << 31
    charsmap = struct.pack("<I1024I", 4 * 1024, *units) + b"X\0"
    return normalizers.Precompiled(charsmap)


def clusters() -> dict[int, int]:  # noqa: C901 - one probe after the other
    """Grapheme classes by code point (named in docs/tokenizers.md), told by into how many clusters a text falls."""
    normalise = first_bytes().normalize_str
    found = {}
    for code in CHARACTERS:
        if code in HANGUL:
            continue
        c = chr(code)

        def count(text: str) -> int:
            return len(normalise(text))

        value = 0
        extends = code not in (10, 13) and count("a" + c) == 1
        if code == 13:
            value = 2
        elif code == 10:
            value = 3
        elif code == 0x200D:
            value = 5
        elif extends:
            value = 4 if count(f"\u00a9{c}\u200d\u231a{ACUTE}") == 5 else 6
        elif count(c + ACUTE + ACUTE) == 2:
            value = 1
        elif count(c + "a") == 1:
            value = 7
        elif count(f"\u00a9\u200d{c}") == 3:
            value = 13
        elif count(f"{c}\u1100{ACUTE}") == 3:
            value = 8
        elif count(f"{c}\u1161{ACUTE}") == 3:
            value = 9
        elif count(f"{c}\u11a8{ACUTE}") == 3:
            value = 10
        if count(f"{c}\u094d\u0915{ACUTE}") == 4:
            value |= 0x10
        if extends and count(f"\u0915{c}\u0915{ACUTE}") == count(f"\u0915{c}") + 2:
            value |= 0x20
        if extends and count(f"\u0915\u094d{c}\u0915{ACUTE}") == 5:
            value |= 0x40
        if value:
            found[code] = value
    return found


def varints(numbers: Iterable[int]) -> bytes:
    out = bytearray()
    for number in numbers:
        while number > 127:
            out.append(number & 127 | 128)
            number >>= 7
        out.append(number)
    return bytes(out)


def zigzag(number: int) -> int:
    return number << 1 if number >= 0 else (-number << 1) - 1


def pack_ranges(values: dict[int, int]) -> bytes:
    """Runs of one value: gap, length - 1, value."""
    numbers: list[int] = []
    end = 0
    codes = sorted(values)
    at = 0
    while at < len(codes):
        start, value = codes[at], values[codes[at]]
        last = at
        while last + 1 < len(codes) and codes[last + 1] == codes[last] + 1 and values[codes[last + 1]] == value:
            last += 1
        numbers += [start - end, last - at, value]
        end = codes[last] + 1
        at = last + 1
    return varints(numbers)


def pack_mapping(mapping: Mapping) -> bytes:
    """Gap, length, then each code point as its difference to the mapped one."""
    numbers: list[int] = []
    before = 0
    for code in sorted(mapping):
        numbers += [code - before, len(mapping[code]), *(zigzag(to - code) for to in mapping[code])]
        before = code
    return varints(numbers)


def probe() -> dict[str, bytes]:
    bert = normalizers.BertNormalizer
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    nfd = {c: to for c, to in changed(normalizers.NFD()).items() if c not in HANGUL}
    nfkd = {c: to for c, to in changed(normalizers.NFKD()).items() if c not in HANGUL}
    accents = changed(bert(**{**off, "strip_accents": True}))
    cleaned = changed(bert(**{**off, "clean_text": True}))
    flags = dict.fromkeys(CHARACTERS, 0)
    sets = [
        matching(r"\p{L}"),
        matching(r"\p{N}"),
        matching(r"\s"),
        members(pre_tokenizers.BertPreTokenizer(), "a", 3),
        members(pre_tokenizers.Whitespace(), "a", 1),
        members(pre_tokenizers.Digits(False), "a", 3),
        {c for c, to in cleaned.items() if not to},
        {c for c, to in accents.items() if not to and c not in nfd},
        {c for c, to in changed(normalizers.StripAccents()).items() if not to},
    ]
    for bit, codes in enumerate(sets):
        for code in codes:
            flags[code] |= 1 << bit
    return {
        "FLAGS": pack_ranges({c: value for c, value in flags.items() if value}),
        "COMBINING": pack_ranges(combining_classes(nfd)),
        "CLUSTERS": pack_ranges(clusters()),
        "CANONICAL": pack_mapping(nfd),
        "COMPATIBLE": pack_mapping({c: to for c, to in nfkd.items() if nfd.get(c) != to}),
        "COMPOSED": pack_mapping(compositions(nfd)),
        "LOWER": pack_mapping(changed(normalizers.Lowercase())),
    }


def render(tables: dict[str, bytes]) -> str:
    lines = [
        '"""What `tokenizers` takes code points for, for unicode_tables.py. Written by scripts/unicode_tables.py."""',
        "",
        f'VERSION = "tokenizers {tokenizers.__version__}"',
    ]
    for name, packed in tables.items():
        text = base64.b85encode(zlib.compress(packed, 9)).decode("ascii")
        lines += ["", f"{name} = (", *(f'    "{text[at : at + 110]}"' for at in range(0, len(text), 110)), ")"]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the library answers otherwise")
    check = parser.parse_args().check
    text = render(probe())
    if not check:
        TARGET.write_text(text, "utf-8")
        return 0
    same = TARGET.read_text("utf-8").split("\n", 3)[3] == text.split("\n", 3)[3]
    print("same tables" if same else "the library takes some code points for something else now", file=sys.stderr)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
