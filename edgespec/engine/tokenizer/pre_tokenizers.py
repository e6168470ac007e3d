"""Pre-tokenisers: a component of tokenizer.json becomes records. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edgespec.engine.tokenizer import unicode_tables as unicode
from edgespec.engine.tokenizer.layout import Op, Writer
from edgespec.engine.tokenizer.normalizers import Json, NotCoveredError

RUNTIME_FLAGS = 0x3F
"""Flags that the Worker reads: letter, number, space, punctuation, word, numeric."""
SCHEMES = {"never": 0, "first": 1, "always": 2}

GPT2 = 0
CL100K = 1
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPELLED = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CL100K = r"|[^\r\n\p{L}\p{N}]?\p{L}+|"
PATTERNS = {
    "'s|'t|'re|'ve|'m|'ll|'d" + _GPT2: (GPT2, 0, 0),
    "'(?:[sdmt]|ll|ve|re)" + _GPT2: (GPT2, 0, 0),
    _CONTRACTIONS + _CL100K + r"\p{N}" + _REST: (CL100K, 1, 1),
    _CONTRACTIONS + _CL100K + r"\p{N}{1,3}" + _REST: (CL100K, 3, 1),
    _SPELLED + _CL100K + r"\p{N}" + _REST: (CL100K, 1, 0),
    _SPELLED + _CL100K + r"\p{N}{1,3}" + _REST: (CL100K, 3, 0),
}
"""Regular expressions known by heart: kind, digits at a time, whether U+017F counts as an s after an apostrophe."""


@dataclass
class PreTokenizer:
    """What models and the cutting of long texts need to know of the pre-tokenisers."""

    byte_level: bool = False
    """Pieces are bytes; nothing may split them further."""
    first_only: bool = False
    """Whether only the input's first character gets a mark before it."""
    splits_spaces: bool = False
    """Whether a piece always ends between a letter or digit of ASCII and a space."""
    splits_han: bool = False
    """Whether spaces around a Han character make it a piece."""


def write_pre_tokenizer(writer: Writer, component: Json | None) -> PreTokenizer:
    """Write the records. Raises NotCoveredError."""
    result = PreTokenizer()
    if component is not None:
        _write(writer, component, result)
    return result


def runtime_flags(writer: Writer) -> int:
    """The section of flags of code points."""
    return writer.flags({code: low for code, value in unicode.flags().items() if (low := value & RUNTIME_FLAGS)})


def _write(writer: Writer, component: Json, into: PreTokenizer) -> None:
    kind = component.get("type")
    if kind == "Sequence":
        for part in component["pretokenizers"]:
            _write(writer, part, into)
        return
    if into.byte_level:
        raise NotCoveredError(f"pre_tokenizer {kind} after ByteLevel")
    write = _WRITERS.get(str(kind))
    if write is None:
        raise NotCoveredError(f"pre_tokenizer {kind}")
    write(writer, component, into)


def _bert(writer: Writer, component: Json, into: PreTokenizer) -> None:
    _spaces(writer, component, into)
    writer.record(Op.PUNCTUATION)


def _spaces(writer: Writer, component: Json, into: PreTokenizer) -> None:
    writer.record(Op.SPACES)
    into.splits_spaces = into.splits_han = True


def _words(writer: Writer, component: Json, into: PreTokenizer) -> None:
    writer.record(Op.WORDS)
    into.splits_spaces = into.splits_han = True


def _punctuation(writer: Writer, component: Json, into: PreTokenizer) -> None:
    behavior = component.get("behavior", "Isolated")
    if behavior != "Isolated":
        raise NotCoveredError(f"pre_tokenizer Punctuation ({behavior})")
    writer.record(Op.PUNCTUATION)


def _digits(writer: Writer, component: Json, into: PreTokenizer) -> None:
    writer.record(Op.DIGITS, int(component["individual_digits"]))


def _byte_level(writer: Writer, component: Json, into: PreTokenizer) -> None:
    if component["add_prefix_space"]:
        writer.record(Op.PREFIX_SPACE)
    if component.get("use_regex", True):
        writer.record(Op.SPLIT, GPT2, 0, 0)
        into.splits_spaces = True
    into.byte_level = True


def _metaspace(writer: Writer, component: Json, into: PreTokenizer) -> None:
    scheme = component.get("prepend_scheme", "always")
    if component.get("add_prefix_space") is False:
        scheme = "never"
    splits = component.get("split")
    splits = True if splits is None else bool(splits)
    writer.record(Op.METASPACE, ord(component["replacement"]), SCHEMES[scheme], int(splits))
    into.splits_spaces |= splits
    into.first_only |= scheme == "first"


def _split(writer: Writer, component: Json, into: PreTokenizer) -> None:
    pattern = component["pattern"]
    known = PATTERNS.get(pattern.get("Regex", ""))
    whole = (component["behavior"], component["invert"]) in (("Isolated", False), ("Removed", True))
    if known is None or not whole:
        shown = pattern.get("Regex", pattern.get("String"))
        raise NotCoveredError(f"pre_tokenizer Split with the pattern {shown} ({component['behavior']})")
    writer.record(Op.SPLIT, *known)
    into.splits_spaces = True


_WRITERS: Mapping[str, Callable[[Writer, Json, PreTokenizer], None]] = {
    "BertPreTokenizer": _bert,
    "WhitespaceSplit": _spaces,
    "Whitespace": _words,
    "Punctuation": _punctuation,
    "Digits": _digits,
    "Metaspace": _metaspace,
    "Split": _split,
    "ByteLevel": _byte_level,
}
