"""Which entries of a tokenizer's vocabulary stay, so that no text becomes unknown that was not.

Special and added tokens always stay, and what any text can be spelled with: every single character, in WordPiece also
as a continuation (`##x`), in byte-level BPE the 256 bytes, where there is a fall-back to bytes those. It is enough:

WordPiece takes the longest entry that fits, again and again, and a word is unknown when none fits. It was known if
entries cover it; so each of its characters is in an entry, at the start of a word or inside one. If each such character
is also an entry by itself, in that place, some entry fits everywhere. Where it is none (vocabularies of BERT have them
all), it is added, its vector the mean of the vectors of the entries that hold it.

Unigram takes the most likely cover, and puts in the unknown token for a character that no entry covers: the same holds.

BPE builds entries by merges, from characters that are entries already. An entry stays together with those that it is
built from; since merges that led to entries that stay all stay, and only others go, a text all of whose entries stay
is cut as before.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from edgespec.build.problems import fail

Json = dict[str, Any]
_BYTE: Final = re.compile(r"<0x[0-9A-Fa-f]{2}>")
KINDS: Final = ("WordPiece", "Unigram", "BPE")


@dataclass(frozen=True, slots=True)
class Entries:
    """The vocabulary of a tokenizer.json."""

    kind: str
    ids: Mapping[str, int]
    """Of the model, without the added tokens that only stand beside it."""
    beside: Mapping[str, int]
    """Added tokens that the model does not know."""
    added: frozenset[int]
    """Every added token."""
    prefix: str
    """What a continuation begins with, in WordPiece."""
    byte_level: bool
    merges: tuple[tuple[str, str], ...] = ()

    @property
    def tokens(self) -> dict[int, str]:
        return {i: t for t, i in (*self.ids.items(), *self.beside.items())}

    def written(self, token: str) -> str:
        """The text that an entry stands for, as far as it is text."""
        if self.kind == "WordPiece":
            return token.removeprefix(self.prefix) if len(token) > len(self.prefix) else token
        if self.byte_level:
            table = _bytes()
            return bytes(table[c] for c in token if c in table).decode(errors="replace")
        return token


@cache
def _bytes() -> Mapping[str, int]:
    from edgespec.engine.tokenizer.models import byte_characters

    return byte_characters()


@dataclass(slots=True)
class Selection:
    """Old ids that stay, ascending, and characters that become entries of their own."""

    kept: list[int]
    spelled: dict[str, list[int]] = field(default_factory=dict)
    """New entries, with the old ids whose vectors' mean is theirs."""


def read_entries(tokenizer: Json, source: str) -> Entries:
    """Raises EdgespecError for a tokenizer whose vocabulary cannot be pruned."""
    model = tokenizer["model"]
    kind = model.get("type") or ("BPE" if "merges" in model else "WordPiece")
    if kind not in KINDS:
        raise fail("ES566", f"the tokenizer of {source} is {kind}; edgespec can prune {', '.join(KINDS)}.")
    if kind == "BPE" and (model.get("continuing_subword_prefix") or model.get("end_of_word_suffix")):
        raise fail("ES566", f"the tokenizer of {source} is a BPE with marked word parts, which edgespec cannot prune.")
    ids = {t: i for i, (t, _) in enumerate(model["vocab"])} if kind == "Unigram" else dict(model["vocab"])
    added = {t["content"]: int(t["id"]) for t in tokenizer.get("added_tokens") or ()}
    merges = [m.split(" ", 1) if isinstance(m, str) else m for m in model.get("merges") or ()]
    return Entries(
        kind=kind,
        ids=ids,
        beside={t: i for t, i in added.items() if t not in ids},
        added=frozenset(added.values()),
        prefix=model.get("continuing_subword_prefix") or "##",
        byte_level=any(_is_byte_level(tokenizer.get(k)) for k in ("pre_tokenizer", "normalizer")),
        merges=tuple((left, right) for left, right in merges),
    )


def _is_byte_level(component: Json | None) -> bool:
    if not component:
        return False
    parts = component.get("pretokenizers") or component.get("normalizers") or ()
    return component.get("type") == "ByteLevel" or any(_is_byte_level(p) for p in parts)


def select(
    tokenizer: Json, entries: Entries, *, wanted: Iterable[int], scripts: Sequence[str], protected: Iterable[int]
) -> Selection:
    """`wanted` entries that are written in `scripts` (any, where none is named), and what must stay."""
    kept = {i for i in protected if i in entries.tokens} | entries.added | _spelling(tokenizer, entries)
    chosen = set(wanted)
    if scripts:
        written = in_scripts(scripts)
        chosen = {i for i, t in entries.tokens.items() if i in chosen and written(entries.written(t))}
    kept |= chosen & entries.tokens.keys()
    if entries.kind == "BPE":
        kept = _with_parts(entries, kept)
    spelled = _missing(entries, kept) if entries.kind != "BPE" else {}
    return Selection(sorted(kept), spelled)


def most_frequent(counts: Counter[int], keep: int | None) -> list[int]:
    """Ids by how often they occur, then by number."""
    ranked = sorted(counts, key=lambda i: (-counts[i], i))
    return ranked[:keep]


def in_scripts(scripts: Sequence[str]) -> Any:
    """A test of texts: whether every character is of these Unicode scripts, or of none (digits, signs, accents).

    Raises ValueError for a script that Unicode does not have.
    """
    from tokenizers import Regex, normalizers

    names = "".join(rf"\p{{{s}}}" for s in (*scripts, "Common", "Inherited"))
    try:
        drop = normalizers.Replace(Regex(f"[{names}]"), "")
    except Exception as why:  # noqa: BLE001 - the library raises plain Exception
        raise ValueError(str(why)) from None
    return lambda text: not drop.normalize_str(text)


def _spelling(tokenizer: Json, entries: Entries) -> set[int]:
    """Ids that any text can be spelled with."""
    model = tokenizer["model"]
    fallback = bool(model.get("byte_fallback"))
    kept = {i for t, i in entries.ids.items() if _is_single(t, entries) or (fallback and _BYTE.fullmatch(t))}
    unknown = model.get("unk_token")
    if entries.kind == "Unigram" and model.get("unk_id") is not None:
        kept.add(int(model["unk_id"]))
    elif unknown in entries.ids:
        kept.add(entries.ids[unknown])
    return kept


def _is_single(token: str, entries: Entries) -> bool:
    if entries.kind == "WordPiece" and token.startswith(entries.prefix):
        return len(token) <= len(entries.prefix) + 1
    return len(token) == 1


def _places(token: str, entries: Entries) -> Iterator[str]:
    """Each character of an entry, as the entry that it would be by itself."""
    inside = entries.kind == "WordPiece" and token.startswith(entries.prefix) and len(token) > len(entries.prefix)
    for position, c in enumerate(entries.written(token)):
        yield entries.prefix + c if entries.kind == "WordPiece" and (inside or position) else c


def _missing(entries: Entries, kept: set[int]) -> dict[str, list[int]]:
    """Characters that texts need when the others go, and that are no entries; none if nothing goes."""
    if kept >= set(entries.ids.values()):
        return {}
    special = entries.added
    found: dict[str, list[int]] = {}
    for token, i in entries.ids.items():
        if i in special or _BYTE.fullmatch(token) or (token.startswith("[unused") and token.endswith("]")):
            continue
        for single in dict.fromkeys(_places(token, entries)):
            if single not in entries.ids:
                found.setdefault(single, []).append(i)
    return dict(sorted(found.items()))


def _with_parts(entries: Entries, kept: set[int]) -> set[int]:
    """With the entries that kept ones are built from, by the first merge that gives each."""
    built: dict[str, tuple[str, str]] = {}
    for left, right in entries.merges:
        built.setdefault(left + right, (left, right))
    names = entries.tokens
    todo = [names[i] for i in kept]
    out = set(kept)
    while todo:
        for part in built.get(todo.pop(), ()):
            if part in entries.ids and entries.ids[part] not in out:
                out.add(entries.ids[part])
                todo.append(part)
    return out
