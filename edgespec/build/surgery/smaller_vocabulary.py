"""A model with fewer entries of its vocabulary: its tokenizer and its table of tokens, renumbered."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from edgespec.build.problems import fail
from edgespec.build.surgery import renumber
from edgespec.build.surgery.checkpoint import encode_json
from edgespec.build.surgery.vocabulary import in_scripts, most_frequent, read_entries, select

if TYPE_CHECKING:
    from edgespec.build.sources import ModelFiles
    from edgespec.build.surgery.checkpoint import Checkpoint
    from edgespec.build.surgery.renumber import Numbers
    from edgespec.spec.pipeline import Vocabulary

SCRIPTS: Final = (
    "Arabic", "Armenian", "Bengali", "Cyrillic", "Devanagari", "Ethiopic", "Georgian", "Greek", "Gujarati", "Gurmukhi",
    "Han", "Hangul", "Hebrew", "Hiragana", "Kannada", "Katakana", "Khmer", "Lao", "Latin", "Malayalam", "Myanmar",
    "Sinhala", "Tamil", "Telugu", "Thai", "Tibetan",
)  # fmt: skip
"""For "did you mean"; any script of Unicode will do."""


def check_scripts(scripts: Sequence[str]) -> None:
    """Raises EdgespecError (ES568) for one that Unicode does not have."""
    for script in scripts:
        try:
            in_scripts([script])
        except ValueError:
            close = difflib.get_close_matches(script, SCRIPTS, n=1)
            hint = f" Did you mean {close[0]}?" if close else f" Some are {', '.join(SCRIPTS)}."
            raise fail("ES568", f"`scripts`: Unicode has no script {script!r}.{hint}") from None


def prune_vocabulary(
    files: ModelFiles, checkpoint: Checkpoint, options: Vocabulary, texts: Sequence[str], source: str
) -> tuple[dict[str, bytes], dict[str, int]]:
    """Takes rows out of `checkpoint`, in place. Returns the tokenizer's files and what became of the vocabulary:
    entries `before` and `after`, and of how many `texts` every token stays (`alike`). `texts` are the corpus, empty
    where there is none."""
    tokenizer = _json(files.tokenizer.read())
    entries = read_entries(tokenizer, source)
    old = _tokenise(tokenizer, texts)
    counts = Counter(i for ids in old for i in ids)
    wanted = most_frequent(counts, options.keep) if texts else list(entries.tokens)
    protected = renumber.special_ids(checkpoint.config)
    selection = select(tokenizer, entries, wanted=wanted, scripts=options.scripts, protected=protected)
    numbers = renumber.number(entries, selection)
    pruned = renumber.renumber_tokenizer(tokenizer, entries, numbers)
    config = renumber.renumber_config(checkpoint.config, numbers)
    renumber.check_pad(checkpoint.config, config, source)
    renumber.renumber_rows(checkpoint, numbers, source)
    checkpoint.config = config
    notes = _notes(pruned, texts, old, numbers, len(entries.tokens), source)
    out = {"tokenizer.json": encode_tokenizer(pruned)}
    if files.tokenizer_config is not None:
        settings = renumber.renumber_tokenizer_config(_json(files.tokenizer_config.read()), numbers)
        out["tokenizer_config.json"] = encode_json(settings)
    return out, notes


def encode_tokenizer(tokenizer: Mapping[str, Any]) -> bytes:
    """The order of what is inside stays: a vocabulary is sorted by id."""
    return (json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")) + "\n").encode()


def say_vocabulary(notes: Mapping[str, int]) -> str:
    said = f"{notes['after']:,} of {notes['before']:,} entries of the vocabulary stay"
    if "texts" not in notes:
        return said
    return f"{said}; {notes['alike'] / notes['texts']:.1%} of {notes['texts']:,} texts are cut into the same tokens"


def _json(data: bytes) -> dict[str, Any]:
    found = json.loads(data)
    if not isinstance(found, dict):
        raise TypeError("no object")
    return found


def _tokenise(tokenizer: Mapping[str, Any], texts: Sequence[str]) -> list[list[int]]:
    from edgespec.build.embed import read_tokenizer

    if not texts:
        return []
    return [e.ids for e in read_tokenizer(encode_tokenizer(tokenizer), None).encode_batch(list(texts))]


def _notes(
    pruned: Mapping[str, Any], texts: Sequence[str], old: Sequence[Sequence[int]], numbers: Numbers, before: int,
    source: str,
) -> dict[str, int]:  # fmt: skip
    from edgespec.build.embed import read_tokenizer

    read = read_tokenizer(encode_tokenizer(pruned), None).get_vocab()
    if read != {token: i for i, (token, _) in enumerate(numbers.rows)}:
        raise fail("ES566", f"the tokenizer of {source} numbers its entries in another way once some are gone.")
    notes = {"before": before, "after": len(numbers.rows)}
    if texts:
        notes |= {"texts": len(texts), "alike": renumber.count_alike(old, _tokenise(pruned, texts), numbers)}
    return notes
