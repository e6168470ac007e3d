"""A row's values as an example, or what is wrong with each of them and where."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, Final, get_args

from edgespec.build.dataset.examples import (
    Conversation,
    Example,
    Keyworded,
    Labelled,
    Message,
    Pair,
    Role,
    Task,
    Unlabelled,
)
from edgespec.build.dataset.rows import Row, kind_of
from edgespec.build.problems import problem
from edgespec.diagnostics import Diagnostic
from edgespec.spec.models import Embedding, KeywordExtraction, TextClassification

MAX_SCORE: Final = 1e9
"""A similarity of this size is a slip."""
ROLES: Final[tuple[Role, ...]] = get_args(Role)


class Fields:
    """One row's reader. What it returns is of use only while `problems` stays empty."""

    def __init__(self, row: Row) -> None:
        self.row, self.data = row, row.values
        self.problems: list[Diagnostic] = []

    def say(self, code: str, detail: str, key: str, value: str | None = None) -> None:
        self.problems.append(problem(code, detail, self.row.at(key, value)))

    # --- whole examples

    def example(self, task: Task) -> Example:
        language = self.language()
        if isinstance(task, Embedding):
            return Pair(self.words("text_a"), self.words("text_b"), self.score(), language, self.row.number)
        text = self.text()
        if isinstance(task, KeywordExtraction):
            return Keyworded(text, tuple(self.list("keywords", at_least=1)), language, self.row.number)
        return Labelled(text, self.labels(task), language, self.row.number)

    def partly(self, task: TextClassification) -> Labelled | Unlabelled:
        """A text with its labels where it has any."""
        if ("labels" if task.multi_label else "label") in self.data:
            language = self.language()
            return Labelled(self.text(), self.labels(task), language, self.row.number)
        return Unlabelled(self.text(), self.language(), self.row.number)

    def texts(self, wanted: Sequence[str]) -> tuple[str, ...]:
        """Every text of the row."""
        if "messages" in wanted:
            return tuple(m.content for m in self.messages())
        return tuple(self.words(key) for key in wanted)

    def conversation(self) -> Conversation:
        language, messages = self.language(), self.messages()
        if not self.problems:
            self._turns(messages)
        return Conversation(tuple(messages), language, self.row.number)

    # --- their parts

    def language(self) -> str | None:
        language = self.data.get("language")
        if language is None and "language" not in self.data:
            return None
        if isinstance(language, str) and language:
            return language
        self.say("ES524", f"'language' is {kind_of(language)}; write a code such as \"de\".", "language")
        return None

    def text(self) -> str:
        """`text`, or the one message of `messages`: a task at the edge is given one text."""
        if "text" in self.data:
            return self.words("text")
        messages = self.messages()
        if not self.problems and [m.role for m in messages] != ["user"]:
            detail = (
                f"'messages' has {len(messages)} messages ({', '.join(m.role for m in messages)}). The model is given "
                'one text: keep the one of the user, or write it as "text".'
            )
            self.say("ES524", detail, "messages")
        return messages[0].content if messages else ""

    def words(self, key: str) -> str:
        value = self.data[key]
        if isinstance(value, str) and value.strip():
            if _halved(value):
                self.say("ES524", f"{key!r} has half of a surrogate pair, which is no character.", key)
            return value
        what = "empty" if isinstance(value, str) else kind_of(value)
        self.say("ES524", f"{key!r} is {what}; write the text as a string.", key)
        return ""

    def score(self) -> float:
        score = self.data["score"]
        if isinstance(score, (int, float)) and not isinstance(score, bool) and abs(score) <= MAX_SCORE:
            return float(score)
        self.say("ES524", f"'score' is {kind_of(score)}; write a number between -1e9 and 1e9, such as 0.8.", "score")
        return 0.0

    def labels(self, task: TextClassification) -> tuple[str, ...]:
        key = "labels" if task.multi_label else "label"
        found = self.list(key, at_least=0, names=task.labels) if task.multi_label else self._label(task.labels)
        for label in found:
            self._check_label(label, key, task.labels)
        return tuple(found)

    def _label(self, names: Sequence[str]) -> list[str]:
        value = self.data["label"]
        if isinstance(value, str):
            return [value]
        hint = " For several labels an example the task needs `multi_label: true`." if isinstance(value, list) else ""
        hint = _numbered([value], names) or hint
        detail = f"'label' is {kind_of(value)}; write one of the task's labels as a string.{hint}"
        self.say("ES524", detail, "label")
        return []

    def list(self, key: str, *, at_least: int, names: Sequence[str] = ()) -> list[str]:
        value = self.data[key]
        fine = isinstance(value, list) and all(isinstance(v, str) and v.strip() for v in value)
        fine = fine and len(value) >= at_least
        if fine and len(set(value)) == len(value):
            return list(value)
        what = "empty" if value == [] else kind_of(value)
        if isinstance(value, list) and value:
            what = "a list with an entry twice" if fine else "a list with something in it that is no text"
        hint = _numbered(value, names) if isinstance(value, list) and names else ""
        self.say("ES524", f"{key!r} is {what}; write a list of strings.{hint}", key)
        return []

    def _check_label(self, label: str, key: str, known: Sequence[str]) -> None:
        if label in known:
            return
        folded = {k.casefold(): k for k in known}
        close = difflib.get_close_matches(label.casefold(), folded, n=1)
        hint = f" Did you mean {folded[close[0]]!r}?" if close else ""
        if label.isdecimal():
            hint = _numbered([int(label)], known)
        shown = ", ".join(known[:12]) + (" ..." if len(known) > 12 else "")
        self.say("ES525", f"{label!r} is not in the task's labels: {shown}.{hint}", key, label)

    def messages(self) -> Sequence[Message]:
        value = self.data["messages"]
        if not isinstance(value, list) or not value:
            what = "empty" if value == [] else kind_of(value)
            detail = f"""'messages' is {what}; write a list such as [{{"role": "user", "content": "..."}}]."""
            self.say("ES524", detail, "messages")
            return ()
        return [m for n, one in enumerate(value, start=1) if (m := self._message(n, one)) is not None]

    def _message(self, n: int, value: Any) -> Message | None:
        detail = None
        if not isinstance(value, dict) or set(value) != {"role", "content"}:
            detail = f"message {n} is not an object of just `role` and `content`."
        elif value["role"] not in ROLES:
            detail = f"the role of message {n} is {value['role']!r}; there are {', '.join(ROLES)}."
        elif not isinstance(value["content"], str) or not value["content"].strip():
            detail = f"the content of message {n} is empty or no string."
        elif _halved(value["content"]):
            detail = f"the content of message {n} has half of a surrogate pair, which is no character."
        if detail is None:
            return Message(value["role"], value["content"])
        self.say("ES524", detail, "messages")
        return None

    def _turns(self, messages: Sequence[Message]) -> None:
        roles = [m.role for m in messages]
        turns = roles[1:] if roles[0] == "system" else roles
        expected = ["user", "assistant"] * (len(turns) // 2)
        if not turns or turns != expected:
            detail = (
                f"the roles are {', '.join(roles)}. A conversation is user and assistant in turn and ends with the "
                "assistant, whose words are learned; a system message may come first."
            )
            self.say("ES524", detail, "messages")


def _halved(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _numbered(values: Sequence[Any], names: Sequence[str]) -> str:
    """The way out for labels that are numbers, as training scripts have them."""
    numbers = [v for v in values if isinstance(v, int) and not isinstance(v, bool)]
    if not numbers or len(numbers) != len(values):
        return ""
    low = numbers[0]
    example = f": {low} would be {names[low]!r} in the order of the task" if 0 <= low < len(names) else ""
    return f" Write names, not numbers, whose order nobody checks{example}."
