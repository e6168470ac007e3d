"""What can be said of examples as a whole: how many of what, what is rare, what is in two files."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Final

from edgespec.build.dataset.examples import AnyExample, Conversation, Keyworded, Labelled, Pair, Unlabelled, texts_of
from edgespec.build.problems import caution
from edgespec.diagnostics import Diagnostic, SourceRange, some
from edgespec.spec.models import TextClassification

RARE_SHARE: Final = 0.02
RARE_COUNT: Final = 5
_SHOWN: Final = 8
"""Labels or languages that one line names."""
_LEAKS_SHOWN: Final = 3


def describe(examples: Sequence[AnyExample]) -> tuple[str, ...]:
    """One line on what there is, and one on languages where examples name them."""
    lines = [", ".join(filter(None, (_count(examples), _length(examples), _labels(examples))))]
    languages = Counter(e.language or "not named" for e in examples)
    if set(languages) - {"not named"}:
        lines.append(f"languages: {_shares(languages, len(examples))}")
    return tuple(lines)


def _count(examples: Sequence[AnyExample]) -> str:
    kinds = {Pair: "pairs", Conversation: "conversations", Unlabelled: "texts"}
    noun = next((n for k, n in kinds.items() if examples and all(isinstance(e, k) for e in examples)), "examples")
    repeated = len(examples) - len({e.key for e in examples})
    return f"{len(examples):,} {noun}" + (f" ({repeated:,} repeated)" if repeated else "")


def _length(examples: Sequence[AnyExample]) -> str:
    lengths = [len(t) for e in examples for t in texts_of(e)]
    return f"median {median(lengths):.0f} characters" if lengths else ""


def _labels(examples: Sequence[AnyExample]) -> str:
    counts = label_counts(examples)
    if counts:
        if none := sum(isinstance(e, Labelled) and not e.labels for e in examples):
            counts["no label"] = none
        without = sum(isinstance(e, Unlabelled) for e in examples)
        return _shares(counts, len(examples)) + (f", {without:,} without labels" if without else "")
    keywords = sum(len(e.keywords) for e in examples if isinstance(e, Keyworded))
    if keywords:
        return f"{keywords / len(examples):.1f} keywords each"
    scores = [e.score for e in examples if isinstance(e, Pair)]
    return f"scores {min(scores):g} to {max(scores):g}" if scores else ""


def label_counts(examples: Iterable[AnyExample]) -> Counter[str]:
    return Counter(label for e in examples if isinstance(e, Labelled) for label in e.labels)


def _shares(counts: Mapping[str, int], total: int) -> str:
    ordered = sorted(counts.items(), key=lambda c: (-c[1], c[0]))
    return some([f"{name} {count / total:.0%}" for name, count in ordered], _SHOWN)


def rare_labels(examples: Sequence[AnyExample], path: str, task: TextClassification) -> list[Diagnostic]:
    """One warning that names the labels with hardly an example; those without any are the reader's error."""
    counts = label_counts(examples)
    least = max(RARE_COUNT, RARE_SHARE * len(examples))
    rare = [f"{label} ({counts[label]})" for label in task.labels if 0 < counts[label] < least]
    if not rare:
        return []
    shown = some(rare, _SHOWN)
    detail = (
        f"of {len(examples)} examples, hardly any are of {shown}: under {RARE_COUNT}, or {RARE_SHARE:.0%}. "
        "What is learned of these is chance. Add examples."
    )
    return [caution("ES526", detail, SourceRange(path, 1, 1))]


def normal_form(text: str) -> str:
    """The text as a reader sees it: without differences of case, space and compatible characters."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def leaks(
    training: Sequence[AnyExample], quality: Sequence[AnyExample], training_path: str, quality_path: str
) -> list[Diagnostic]:
    """A warning when texts of the quality data were trained on: what is measured on them is memory."""
    known: dict[tuple[str, ...], int] = {}
    for example in training:
        known.setdefault(_normal_key(example), example.line)
    found = [(e, known[key]) for e in quality if (key := _normal_key(e)) in known]
    if not found:
        return []
    shown = some([f"line {e.line} is line {line} of {training_path}" for e, line in found], _LEAKS_SHOWN, "; ")
    detail = (
        f"{len(found)} of {len(quality)} examples are in the training data too: {shown}. A model may know their "
        "answers by heart, so quality comes out too high. Take them out of one of the files."
    )
    return [caution("ES583", detail, SourceRange(quality_path, found[0][0].line or 1, 1))]


def _normal_key(example: AnyExample) -> tuple[str, ...]:
    return tuple(sorted(normal_form(t) for t in texts_of(example)))
