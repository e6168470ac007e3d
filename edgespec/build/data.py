"""Examples in JSON Lines: one object a line, checked completely before anything is built or measured.

    {"text": "...", "label": "refund"}                       text-classification
    {"text": "...", "labels": ["spam", "insult"]}            text-classification, multi_label
    {"text": "...", "keywords": ["battery life"]}            keyword-extraction
    {"text_a": "...", "text_b": "...", "score": 0.8}         embedding

Each may say `"language": "de"`. Blank lines are skipped; any other key is an error.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from edgespec.build.problems import caution, problem
from edgespec.diagnostics import Checked, Diagnostic, Diagnostics, SourceRange
from edgespec.spec.models import Embedding, KeywordExtraction, TextClassification

MAX_REPORTED: Final = 20
EXCERPT: Final = 200
"""Characters of a line that are kept for its excerpt."""
MAX_SCORE: Final = 1e9
"""A similarity of this size is a slip."""
Task: TypeAlias = TextClassification | KeywordExtraction | Embedding


@dataclass(frozen=True, slots=True)
class Labelled:
    text: str
    labels: tuple[str, ...]
    """One, unless the task is multi_label."""
    language: str | None = None

    @property
    def key(self) -> tuple[str, ...]:
        return (self.text,)


@dataclass(frozen=True, slots=True)
class Keyworded:
    text: str
    keywords: tuple[str, ...]
    language: str | None = None

    @property
    def key(self) -> tuple[str, ...]:
        return (self.text,)


@dataclass(frozen=True, slots=True)
class Pair:
    text_a: str
    text_b: str
    score: float
    language: str | None = None

    @property
    def key(self) -> tuple[str, ...]:
        return (self.text_a, self.text_b)


Example: TypeAlias = Labelled | Keyworded | Pair


def fields_of(task: Task) -> tuple[str, ...]:
    """The keys that an example of this task must have."""
    if isinstance(task, TextClassification):
        return ("text", "labels" if task.multi_label else "label")
    return ("text", "keywords") if isinstance(task, KeywordExtraction) else ("text_a", "text_b", "score")


def read_examples(data: bytes, path: str, task: Task, *, training: bool = False) -> Checked[tuple[Example, ...]]:
    """The examples with every problem of the file, the first 20 of them in full.

    `path` is for messages. `training` also asks that every label can be learned.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as why:
        line = data.count(b"\n", 0, why.start) + 1
        column = why.start - (data.rfind(b"\n", 0, why.start) + 1) + 1
        detail = f"byte 0x{data[why.start]:02x} is not UTF-8. Save the file as UTF-8."
        return Checked(None, Diagnostics.of(problem("ES529", detail, SourceRange(path, line, column))))
    reader = _Reader(path, task)
    for number, line_text in enumerate(text.split("\n"), start=1):
        if line_text.strip():
            reader.line(number, line_text.removesuffix("\r"))
    found = reader.found
    if not found and not reader.problems:
        reader.problems.append(problem("ES520", f"{path} is empty. {_wanted(task)}", SourceRange(path, 1, 1)))
    if training and isinstance(task, TextClassification) and not reader.problems:
        reader.problems.extend(_unlearnable(found, path, task))
    diagnostics = _shorten(reader.problems, path) + _shorten(reader.cautions, path)
    return Checked(None if reader.problems else tuple(found), Diagnostics(tuple(diagnostics)))


def _wanted(task: Task) -> str:
    sample: dict[str, Any] = {"text": "..."}
    if isinstance(task, TextClassification):
        sample |= {"labels": list(task.labels[:1])} if task.multi_label else {"label": task.labels[0]}
    elif isinstance(task, KeywordExtraction):
        sample |= {"keywords": ["..."]}
    else:
        sample = {"text_a": "...", "text_b": "...", "score": 0.8}
    return f"Every line is an object such as {json.dumps(sample, ensure_ascii=False)}."


def _shorten(problems: Sequence[Diagnostic], path: str) -> list[Diagnostic]:
    kept = list(problems[:MAX_REPORTED])
    if rest := len(problems) - len(kept):
        more = f"{rest} more lines of {path} have problems; repair these first."
        kept.append(Diagnostic(kept[0].severity, "ES528", problem("ES528", "").summary, more))
    return kept


class _Reader:
    """Collects examples and problems line by line."""

    def __init__(self, path: str, task: Task) -> None:
        self.path, self.task = path, task
        self.found: list[Example] = []
        self.problems: list[Diagnostic] = []
        self.cautions: list[Diagnostic] = []
        self._seen: dict[tuple[str, ...], tuple[int, Example]] = {}

    def line(self, number: int, text: str) -> None:
        row = _Row(self.path, number, text, self.task)
        example = row.parse()
        self.problems.extend(row.problems)
        if example is None:
            return
        self.found.append(example)
        first = self._seen.setdefault(example.key, (number, example))
        if first[0] != number:
            other = "" if first[1] == example else " with another answer"
            self.cautions.append(caution("ES527", f"the same text is on line {first[0]}{other}.", row.place()))


class _Row:
    def __init__(self, path: str, number: int, text: str, task: Task) -> None:
        self.path, self.number, self.text, self.task = path, number, text, task
        self.problems: list[Diagnostic] = []
        self.data: dict[str, Any] = {}

    def place(self, column: int = 1, length: int = 1) -> SourceRange:
        return SourceRange(self.path, self.number, column, length, self.text[:EXCERPT])

    def at(self, key: str, value: str | None = None) -> SourceRange:
        """Where a key, or a string in its value, is on the line; as near as can be told where it is escaped."""
        written = re.search(re.escape(json.dumps(key, ensure_ascii=False)) + r"(?=\s*:)", self.text)
        if written is None:
            return self.place()
        quoted = json.dumps(value, ensure_ascii=False)
        position = self.text.find(quoted, written.end()) if value is not None else -1
        if position >= 0:
            return self.place(position + 1, len(quoted))
        return self.place(written.start() + 1, len(written[0]))

    def say(self, code: str, detail: str, place: SourceRange) -> None:
        self.problems.append(problem(code, detail, place))

    def parse(self) -> Example | None:
        try:
            data = json.loads(self.text, object_pairs_hook=self._object, parse_constant=_no_constant)
        except json.JSONDecodeError as why:
            self.say("ES521", f"{why.msg}. {_wanted(self.task)}", self.place(why.colno))
            return None
        except (ValueError, RecursionError) as why:
            self.say("ES521", f"{why}. {_wanted(self.task)}", self.place())
            return None
        if not isinstance(data, dict):
            self.say("ES521", f"it is {_kind(data)}. {_wanted(self.task)}", self.place())
            return None
        self.data = data
        self._keys()
        example = self._example() if not self.problems else None
        return example if not self.problems else None

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        twice = [k for k, n in Counter(k for k, _ in pairs).items() if n > 1]
        for key in twice:
            self.say("ES523", f"{key!r} is on this line twice.", self.at(key))
        return dict(pairs)

    def _keys(self) -> None:
        wanted = fields_of(self.task)
        allowed = (*wanted, "language")
        unknown = [k for k in self.data if k not in allowed]
        missing = [k for k in wanted if k not in self.data]
        for key in unknown:
            close = difflib.get_close_matches(key, missing or allowed, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            detail = f"{key!r} is not known in an example of {_task_name(self.task)}.{hint} {_wanted(self.task)}"
            self.say("ES523", detail, self.at(key))
        if missing and not unknown:
            names = " and ".join(repr(k) for k in missing)
            self.say("ES522", f"{names} is missing. {_wanted(self.task)}", self.place())

    def _example(self) -> Example | None:
        language = self.data.get("language")
        if language is not None and (not isinstance(language, str) or not language):
            self.say("ES524", f"'language' is {_kind(language)}; write a code such as \"de\".", self.at("language"))
            return None
        if isinstance(self.task, Embedding):
            return self._pair(language)
        text = self._words("text")
        if isinstance(self.task, KeywordExtraction):
            keywords = self._list("keywords", at_least=1)
            return Keyworded(text, tuple(keywords), language)
        labels = self._list("labels", at_least=0) if self.task.multi_label else self._label()
        for label in labels:
            self._check_label(label, "labels" if self.task.multi_label else "label", self.task.labels)
        return Labelled(text, tuple(labels), language)

    def _pair(self, language: str | None) -> Pair:
        a, b, score = self._words("text_a"), self._words("text_b"), self.data["score"]
        is_number = isinstance(score, (int, float)) and not isinstance(score, bool) and abs(score) <= MAX_SCORE
        if not is_number:
            self.say(
                "ES524",
                f"'score' is {_kind(score)}; write a number between -1e9 and 1e9, such as 0.8.",
                self.at("score"),
            )
        return Pair(a, b, float(score) if is_number else 0.0, language)

    def _words(self, key: str) -> str:
        value = self.data[key]
        if isinstance(value, str) and value.strip():
            try:
                value.encode()
            except UnicodeEncodeError:
                self.say("ES524", f"{key!r} has half of a surrogate pair, which is no character.", self.at(key))
            return value
        what = "empty" if isinstance(value, str) else _kind(value)
        self.say("ES524", f"{key!r} is {what}; write the text as a string.", self.at(key))
        return ""

    def _label(self) -> list[str]:
        value = self.data["label"]
        if isinstance(value, str):
            return [value]
        hint = " For several labels an example the task needs `multi_label: true`." if isinstance(value, list) else ""
        detail = f"'label' is {_kind(value)}; write one of the task's labels as a string.{hint}"
        self.say("ES524", detail, self.at("label"))
        return []

    def _list(self, key: str, *, at_least: int) -> list[str]:
        value = self.data[key]
        fine = isinstance(value, list) and all(isinstance(v, str) and v.strip() for v in value)
        fine = fine and len(value) >= at_least
        if fine and len(set(value)) == len(value):
            return list(value)
        what = "empty" if value == [] else _kind(value)
        if isinstance(value, list) and value:
            what = "a list with an entry twice" if fine else "a list with something in it that is no text"
        self.say("ES524", f"{key!r} is {what}; write a list of strings.", self.at(key))
        return []

    def _check_label(self, label: str, key: str, known: Sequence[str]) -> None:
        if label in known:
            return
        folded = {k.casefold(): k for k in known}
        close = difflib.get_close_matches(label.casefold(), folded, n=1)
        hint = f" Did you mean {folded[close[0]]!r}?" if close else ""
        listed = ", ".join(known[:12]) + (" ..." if len(known) > 12 else "")
        self.say("ES525", f"{label!r} is not in the task's labels: {listed}.{hint}", self.at(key, label))


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _kind(value: object) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    names = {int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)


def _task_name(task: Task) -> str:
    return f"{task.type} with multi_label" if isinstance(task, TextClassification) and task.multi_label else task.type


def _unlearnable(found: Sequence[Example], path: str, task: TextClassification) -> list[Diagnostic]:
    counts = Counter(label for e in found if isinstance(e, Labelled) for label in e.labels)
    place = SourceRange(path, 1, 1)
    out = []
    if absent := [label for label in task.labels if not counts[label]]:
        detail = f"{path} has no example of {', '.join(absent)}. Add some, or take the label out of the task."
        out.append(problem("ES526", detail, place))
    if task.multi_label and (always := [label for label in task.labels if counts[label] == len(found)]):
        detail = f"every example of {path} is labelled {', '.join(always)}: there is nothing to tell it by. "
        out.append(problem("ES526", detail + 'Add examples without it (`"labels": []` is fine).', place))
    if len(found) < len(task.labels):
        detail = f"{path} has {len(found)} examples for {len(task.labels)} labels. Ten of each are a start."
        out.append(problem("ES526", detail, place))
    return out
