"""Normalisers: a component of tokenizer.json becomes records, and a function for the added tokens' contents. Pure."""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from edgespec.engine.tokenizer import unicode_tables as unicode
from edgespec.engine.tokenizer.layout import HANGUL, NONE, PAD, Kind, Op, Writer

ORDER_MATTERS = 255
"""In the classes of a form: class 0, but the form changes or joins the code point."""
RUNS_OF_SPACES = re.compile(r"^( |\\s)(\+|\{([1-9]\d?),\})$")

Json = Mapping[str, Any]
Codes = Sequence[int]


class NotCoveredError(Exception):
    """A component that the tables cannot stand for; says which."""


@dataclass
class Normalizer:
    """What the writer and the cutting of long texts need to know of the normalisers."""

    apply: Callable[[str], str] = lambda text: text
    sliceable: bool = True
    """Whether a text may be cut between a letter or digit of ASCII and a space, and normalised in two parts."""
    pads_han: bool = False
    expands: bool = False
    """Whether a character may become several of which the first could be dropped."""
    loses_start: bool = False
    """Whether the Worker cannot tell if what comes first was the input's first character."""


def write_normalizer(writer: Writer, component: Json | None) -> Normalizer:
    """Write the records. Raises NotCoveredError."""
    result = Normalizer()
    if component is not None:
        _write(writer, component, result)
    return result


def _write(writer: Writer, component: Json, into: Normalizer) -> None:
    kind = component.get("type")
    if kind == "Sequence":
        for part in component["normalizers"]:
            _write(writer, part, into)
        return
    write = _WRITERS.get(str(kind))
    if write is None:
        raise NotCoveredError(f"normalizer {kind}")
    into.loses_start |= into.expands and _drops(component)
    into.expands |= kind in ("NFC", "NFD", "NFKC", "NFKD", "Precompiled")
    before, own = into.apply, write(writer, component, into)
    into.apply = lambda text: own(before(text))


def _drops(component: Json) -> bool:
    if component["type"] == "Replace":
        return not component["content"].startswith((" ", "\u2581"))
    return component["type"] in ("Bert", "BertNormalizer", "Nmt", "StripAccents") or bool(component.get("strip_left"))


def _by_code(values: Mapping[int, Codes | int]) -> Callable[[str], str]:
    def one(c: str) -> str:
        value = values.get(ord(c), 0)
        if value == HANGUL:
            value = unicode.decompose(ord(c), compatibly=False)
        if isinstance(value, int):
            return f" {c} " if value == PAD else c
        return "".join(map(chr, value))

    return lambda text: "".join(map(one, text))


def _write_map(writer: Writer, values: Mapping[int, Codes | int]) -> Callable[[str], str]:
    writer.record(Op.MAP, writer.mapping(values))
    return _by_code(values)


def _write_form(writer: Writer, form: str) -> Callable[[str], str]:
    compatibly, joins = "K" in form, form.endswith("C")
    decompositions = unicode.compatible() if compatibly else unicode.canonical()
    classes = dict(unicode.combining_classes())
    if joins:
        seconds = {second for _, second in unicode.composed()}
        changes = {code for code in decompositions if unicode.normalize(chr(code), form) != chr(code)}
        hangul = {*range(unicode.V_FIRST, unicode.V_FIRST + unicode.V_COUNT)}
        hangul |= {*range(unicode.T_FIRST + 1, unicode.T_FIRST + unicode.T_COUNT)}
        matters = seconds | changes | hangul
    else:
        matters = {*decompositions, *range(unicode.HANGUL_FIRST, unicode.HANGUL_LAST + 1)}
    for code in matters:
        classes.setdefault(code, ORDER_MATTERS)
    pairs = _pairs(unicode.composed()) if joins else None
    writer.record(
        Op.FORM,
        writer.mapping(decompositions),
        writer.flags(classes),
        NONE if pairs is None else writer.words(pairs),
    )
    return lambda text: unicode.normalize(text, form)


def _pairs(composed: Mapping[tuple[int, int], int]) -> list[int]:
    """A hash table of 2^k slots of three words: first, second, joined; zero where empty."""
    size = 1 << (len(composed) * 2).bit_length()
    table = [0] * (3 * size)
    for (first, second), joined in sorted(composed.items()):
        slot = ((first * 31 + second) & 0xFFFFFFFF) & (size - 1)
        while table[3 * slot + 2]:
            slot = (slot + 1) & (size - 1)
        table[3 * slot : 3 * slot + 3] = first, second, joined
    return table


def _form(form: str) -> Callable[[Writer, Json, Normalizer], Callable[[str], str]]:
    return lambda writer, component, into: _write_form(writer, form)


def _clean(code: int) -> Codes:
    if unicode.has(code, unicode.DROPPED):
        return ()
    return (0x20,) if unicode.has(code, unicode.SPACE) else (code,)


@cache
def bert_map(*, clean: bool, pad: bool, strip: bool, lower: bool) -> Mapping[int, Codes | int]:
    """What BertNormalizer makes of single code points; where marks have to be put in order first, see `_bert`."""
    candidates = {*unicode.flags()} if clean else set()
    han = {code for first, last in unicode.HAN for code in range(first, last + 1)} if pad else set()
    if strip:
        candidates |= {*unicode.canonical(), *unicode.combining_classes(), *_hangul()}
        candidates |= {code for code, flags in unicode.flags().items() if flags & unicode.NONSPACING}
    if lower:
        candidates |= {*unicode.lower()}
    return {
        code: value
        for code in candidates | han
        if (value := _bert_code(code, clean, code in han, strip, lower)) != (code,)
    }


def _hangul() -> range:
    return range(unicode.HANGUL_FIRST, unicode.HANGUL_LAST + 1)


def _bert_code(code: int, clean: bool, padded: bool, strip: bool, lower: bool) -> Codes | int:
    if strip and code in _hangul():
        return HANGUL
    codes: Codes = _clean(code) if clean else (code,)
    if strip:
        codes = [part for c in codes for part in unicode.decompose(c, compatibly=False)]
        codes = [part for part in codes if not unicode.has(part, unicode.NONSPACING)]
    if lower:
        codes = [part for c in codes for part in unicode.lower().get(c, (c,))]
    if padded:
        return PAD if tuple(codes) == (code,) else (0x20, *codes, 0x20)
    return tuple(codes)


def _bert(writer: Writer, component: Json, into: Normalizer) -> Callable[[str], str]:
    clean, pad = component.get("clean_text", True), component.get("handle_chinese_chars", True)
    lower = component.get("lowercase", True)
    strip = component.get("strip_accents")
    strip = lower if strip is None else strip
    into.pads_han = pad
    fast = bert_map(clean=clean, pad=pad, strip=strip, lower=lower)
    if not strip:
        return _write_map(writer, fast)
    # Marks that stay are put in order before others are dropped: seen in a text only if some are.
    odd = {code: 1 for code in unicode.combining_classes() if not unicode.has(code, unicode.NONSPACING)}
    writer.record(Op.WHEN, writer.flags(odd), 2 if clean else 1)
    cleaned = bert_map(clean=clean, pad=False, strip=False, lower=False)
    if clean:
        _write_map(writer, cleaned)
    _write_form(writer, "NFD")
    _write_map(writer, fast)

    def apply(text: str) -> str:
        if any(ord(c) in odd for c in text):
            text = unicode.normalize(_by_code(cleaned)(text), "NFD")
        return _by_code(fast)(text)

    return apply


def _lowercase(writer: Writer, component: Json, into: Normalizer) -> Callable[[str], str]:
    return _write_map(writer, unicode.lower())


def _strip_accents(writer: Writer, component: Json, into: Normalizer) -> Callable[[str], str]:
    return _write_map(writer, {code: () for code, flags in unicode.flags().items() if flags & unicode.MARK})


@cache
def _nmt_map() -> Mapping[int, Codes | int]:
    dropped = [*range(1, 9), 0x0B, *range(0x0E, 0x20), 0x7F, 0x8F, 0x9F]
    spaces = [0x09, 0x0A, 0x0C, 0x0D, 0x1680, *range(0x200B, 0x2010), 0x2028, 0x2029, 0x2581, 0xFEFF, 0xFFFD]
    return {**dict.fromkeys(dropped, ()), **dict.fromkeys(spaces, (0x20,))}


def _nmt(writer: Writer, component: Json, into: Normalizer) -> Callable[[str], str]:
    return _write_map(writer, _nmt_map())


def _strip(writer: Writer, component: Json, into: Normalizer) -> Callable[[str], str]:
    left, right = bool(component["strip_left"]), bool(component["strip_right"])
    spaces = "".join(chr(code) for code, flags in unicode.flags().items() if flags & unicode.SPACE)
    writer.record(Op.STRIP, int(left), int(right))

    def apply(text: str) -> str:
        text = text.lstrip(spaces) if left else text
        return text.rstrip(spaces) if right else text

    return apply


def _prepend(writer: Writer, component: Json, into: Normalizer) -> Callable[[str], str]:
    text: str = component["prepend"]
    writer.record(Op.PREPEND, *map(ord, text))
    return lambda rest: text + rest if rest else rest


def _replace(writer: Writer, component: Json, into: Normalizer) -> Callable[[str], str]:
    pattern, content = component["pattern"], component["content"]
    if "String" in pattern:
        literal: str = pattern["String"]
        if not literal:
            raise NotCoveredError("normalizer Replace with an empty pattern")
        into.sliceable &= " " not in literal
        writer.record(Op.REPLACE, len(literal), *map(ord, literal + content))
        return lambda text: text.replace(literal, content)
    runs = RUNS_OF_SPACES.match(pattern["Regex"])
    if runs is None:
        raise NotCoveredError(f"normalizer Replace with the pattern {pattern['Regex']}")
    only, least = runs[1] == " ", int(runs[3] or 1)
    spaces = " " if only else "".join(chr(code) for code, flags in unicode.flags().items() if flags & unicode.SPACE)
    into.sliceable &= content in (" ", "\u2581")
    writer.record(Op.RUNS, int(only), least, *map(ord, content))
    return lambda text: re.sub(f"[{re.escape(spaces)}]{{{least},}}", lambda _: content, text)


def _precompiled(writer: Writer, component: Json, into: Normalizer) -> Callable[[str], str]:
    try:
        charsmap = base64.b64decode(component["precompiled_charsmap"] or "", validate=True)
        (size,) = struct.unpack_from("<I", charsmap)
        charsmap[4 + size :].decode("utf-8")
    except (binascii.Error, struct.error, UnicodeDecodeError) as error:
        raise NotCoveredError("normalizer Precompiled with a charsmap that cannot be read") from error
    if size % 4 or not size or 4 + size > len(charsmap):
        raise NotCoveredError("normalizer Precompiled with a charsmap that cannot be read")
    units = struct.unpack_from(f"<{size // 4}I", charsmap, 4)
    text = charsmap[4 + size :]
    data = struct.pack("<II", size // 4, len(text)) + charsmap[4:]
    writer.record(Op.CHARSMAP, writer.section(Kind.CHARSMAP, data), writer.flags(unicode.clusters()))

    into.sliceable &= _transform(units, text, " ") == " "

    def apply(content: str) -> str:
        if not content.isascii():
            raise NotCoveredError("added token beyond ASCII that a Precompiled normalizer changes")
        return "".join(_transform(units, text, c) for c in content)

    return apply


def _transform(units: Sequence[int], text: bytes, char: str) -> str:
    """The replacement of the shortest prefix in the charsmap; the darts-clone layout of SentencePiece."""
    at = 0
    unit = units[at]
    at ^= unit >> 10 << ((unit & 512) >> 6)
    for byte in char.encode():
        at ^= byte
        if at >= len(units) or units[at] & 0x800000FF != byte or byte == 0:
            return char
        unit = units[at]
        at ^= unit >> 10 << ((unit & 512) >> 6)
        if unit >> 8 & 1:
            start = units[at] & 0x7FFFFFFF
            return text[start : text.find(b"\0", start) % (len(text) + 1)].decode()
    return char


_WRITERS: Mapping[str, Callable[[Writer, Json, Normalizer], Callable[[str], str]]] = {
    "Bert": _bert,
    "BertNormalizer": _bert,
    "NFC": _form("NFC"),
    "NFD": _form("NFD"),
    "NFKC": _form("NFKC"),
    "NFKD": _form("NFKD"),
    "Lowercase": _lowercase,
    "StripAccents": _strip_accents,
    "Nmt": _nmt,
    "Strip": _strip,
    "Prepend": _prepend,
    "Replace": _replace,
    "Precompiled": _precompiled,
}
