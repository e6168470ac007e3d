"""JSON Lines: an object a line; blank lines are skipped. Plain text: a text a line."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgespec.build.dataset.rows import EXCERPT, Rows, kind_of, no_constant
from edgespec.build.problems import problem
from edgespec.diagnostics import SourceRange


@dataclass(slots=True)
class Line:
    path: str
    number: int
    text: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def place(self, column: int = 1, length: int = 1) -> SourceRange:
        return SourceRange(self.path, self.number, column, length, self.text[:EXCERPT])

    def at(self, key: str | None = None, value: str | None = None) -> SourceRange:
        """As near as can be told where something is escaped."""
        if key is None:
            return self.place()
        written = re.search(re.escape(json.dumps(key, ensure_ascii=False)) + r"(?=\s*:)", self.text)
        if written is None:
            return self.place()
        quoted = json.dumps(value, ensure_ascii=False)
        position = self.text.find(quoted, written.end()) if value is not None else -1
        if position >= 0:
            return self.place(position + 1, len(quoted))
        return self.place(written.start() + 1, len(written[0]))


def read_json_lines(text: str, path: str, shown: str) -> Rows:
    """`shown` says how a line is written, for messages."""
    found = Rows(".jsonl")
    for number, content in enumerate(text.split("\n"), start=1):
        if content.strip():
            _read(Line(path, number, content.removesuffix("\r")), found, shown)
    return found


def _read(line: Line, found: Rows, shown: str) -> None:
    twice: list[str] = []

    def read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        twice.extend(k for k, n in Counter(k for k, _ in pairs).items() if n > 1)
        return dict(pairs)

    def say(code: str, detail: str, place: SourceRange) -> None:
        found.problems.append(problem(code, detail, place))

    try:
        data = json.loads(line.text, object_pairs_hook=read_object, parse_constant=no_constant)
    except json.JSONDecodeError as why:
        return say("ES521", f"{why.msg}. {shown}", line.place(why.colno))
    except (ValueError, RecursionError) as why:
        return say("ES521", f"{why}. {shown}", line.place())
    if not isinstance(data, dict):
        return say("ES521", f"it is {kind_of(data)}. {shown}", line.place())
    for key in twice:
        say("ES523", f"{key!r} is on this line twice.", line.at(key))
    if not twice:
        line.values = data
        found.rows.append(line)
    return None


def read_plain_text(text: str, path: str) -> Rows:
    """One text a line, under the column `text`."""
    found = Rows(".txt")
    for number, content in enumerate(text.split("\n"), start=1):
        if content.strip():
            words = content.removesuffix("\r")
            found.rows.append(Line(path, number, words, {"text": words}))
    return found
