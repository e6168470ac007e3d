"""`fmt` over files that people could have written: it changes no meaning, loses no comment, and is done at once."""

from __future__ import annotations

import re
from typing import Any

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edgespec.diagnostics import EdgespecError
from edgespec.spec.document import Source, parse
from edgespec.spec.format import format_text

WORDS = st.sampled_from(["a", "b", "name", "no", "1.10", "~", "x y", "é🦊", "$X", "-1", "a:b", "a#b", "2026-11-30"])
QUOTED = st.sampled_from(["'it''s'", '"a\\tb"', "'# no comment'", '"a: b"', "''", "' x '", '"\\u00e9"'])
FOLDED = st.sampled_from([["'one", "", "two'"], ['"one \\', 'two"'], ["one", "two", "", "three"], ['"x', '  y "']])
BLOCKS = st.sampled_from(["|", ">", "|-", ">+", "|+", "| # said", "|2"])
ROWS = st.lists(st.sampled_from(["row", "", "  deeper", "# no comment", "a: b", "- c"]), min_size=1, max_size=4)
COMMENTS = st.sampled_from(["# one", "#two", "#", "# a: b", "## [x"])


class Writer:
    """Writes a random document by hand, so to say: with any indentation, spacing, comments and empty lines."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.lines: list[str] = []
        self.anchors: list[str] = []
        self.named = 0

    def text(self) -> str:
        for i in range(self.draw(st.integers(1, 3))):
            self.anchors = []
            if i or self.draw(st.booleans()):
                self.lines.append("---" + self.draw(st.sampled_from(["", " # doc", "   "])))
            self.between(0)
            self.block(0, 0)
        self.between(0)
        end = self.draw(st.sampled_from(["", "\n", "\n\n", "  \n"]))
        text = "\n".join(self.lines) + end
        return text.replace("\n", self.draw(st.sampled_from(["\n", "\n", "\r\n"])))

    def between(self, column: int) -> None:
        for _ in range(self.draw(st.sampled_from([0, 0, 0, 1, 2, 3]))):
            comment = self.draw(st.sampled_from(["", "", " ", "c"]))
            if comment == "c":
                comment = " " * self.draw(st.integers(0, column + 3)) + self.draw(COMMENTS)
            self.lines.append(comment)

    def remark(self) -> str:
        if self.draw(st.integers(0, 4)):
            return self.draw(st.sampled_from(["", "", "  "]))
        return " " * self.draw(st.integers(1, 9)) + self.draw(COMMENTS)

    def block(self, column: int, depth: int) -> None:
        (self.map if self.draw(st.booleans()) else self.list)(column, depth)

    def map(self, column: int, depth: int, first: str = "") -> None:
        for i in range(self.draw(st.integers(1, 3))):
            lead = first if i == 0 and first else " " * column
            if lead != first:
                self.between(column)
            key = self.draw(st.sampled_from(["key{}", "'k{}'", '"k {}"', "a b{}"])).format(i)
            space = self.draw(st.sampled_from(["", "", " "]))
            self.value(f"{lead}{key}{space}:", column, depth, in_map=True)

    def list(self, column: int, depth: int, first: str = "") -> None:
        for i in range(self.draw(st.integers(1, 3))):
            lead = first if i == 0 and first else " " * column
            if lead != first:
                self.between(column)
            gap = self.draw(st.integers(1, 3))
            inner = column + 1 + gap
            kind = self.draw(st.integers(0, 3)) if depth < 3 else 0
            if kind == 1:
                self.map(inner, depth + 1, first=f"{lead}-{' ' * gap}")
            elif kind == 2:
                self.list(inner, depth + 1, first=f"{lead}-{' ' * gap}")
            else:
                self.value(f"{lead}-", column, depth, in_map=False)

    def value(self, lead: str, column: int, depth: int, *, in_map: bool) -> None:
        gap = " " * self.draw(st.integers(1, 4))
        anchor, name = self.anchor(gap)
        kind = self.draw(st.integers(0, 8))
        if kind <= 1 and depth < 3:
            self.lines.append(lead + anchor + self.remark())
            least = 0 if in_map else 1
            self.between(column + 1)
            inner = column + self.draw(st.integers(max(1, least), 5))
            if in_map and self.draw(st.booleans()):
                self.list(column + self.draw(st.integers(0, 3)), depth + 1)
            else:
                self.block(inner, depth + 1)
        elif kind == 2:
            head = self.draw(BLOCKS)
            deep = column + 2 if "2" in head else column + self.draw(st.integers(1, 4))
            self.lines.append(lead + anchor + gap + head)
            rows = ["row", *self.draw(ROWS)]
            self.lines += [" " * deep + row if row else row for row in rows]
        elif kind == 3:
            first, *more = self.draw(FOLDED)
            self.lines.append(lead + anchor + gap + first)
            self.lines += [" " * (column + self.draw(st.integers(1, 5))) + row if row else "" for row in more]
        elif kind == 4 and self.anchors and not anchor:
            self.lines.append(f"{lead}{gap}*{self.draw(st.sampled_from(self.anchors))}{self.remark()}")
        elif kind == 5:
            self.lines.append(lead + anchor + gap + self.flow(column, 0) + self.remark())
        elif kind == 6:
            self.lines.append(lead + anchor + self.remark())
        else:
            self.lines.append(lead + anchor + gap + self.scalar() + self.remark())
        if name:
            self.anchors.append(name)  # only what is whole can be repeated

    def anchor(self, gap: str) -> tuple[str, str]:
        if self.draw(st.integers(0, 5)):
            return "", ""
        self.named += 1
        return f"{gap}&n{self.named}", f"n{self.named}"

    def scalar(self) -> str:
        written: str = self.draw(st.one_of(WORDS, QUOTED))
        return written

    def flow(self, column: int, depth: int) -> str:
        pad = lambda: self.draw(st.sampled_from(["", " ", "  "]))  # noqa: E731
        joint = lambda: self.draw(st.sampled_from([",", ", ", " , ", f",\n{' ' * (column + 2)}"]))  # noqa: E731
        items = []
        is_map = self.draw(st.booleans())
        for i in range(self.draw(st.integers(0, 3))):
            deeper = depth < 2 and self.draw(st.booleans())
            item = self.flow(column, depth + 1) if deeper else self.draw(st.sampled_from(["a", "'b'", "c d", "1"]))
            items.append(f"k{i}:{pad() or ' '}{item}" if is_map else item)
        text = ""
        for i, item in enumerate(items):
            text += (joint() if i else "") + item
        left, right = "{}" if is_map else "[]"
        return f"{left}{pad()}{text}{pad()}{right}"


@st.composite
def documents(draw: Any) -> str:
    return Writer(draw).text()


def events(text: str) -> list[tuple[Any, ...]]:
    found = yaml.parse(text, Loader=yaml.SafeLoader)
    return [(type(e), getattr(e, "value", None), getattr(e, "anchor", None), getattr(e, "tag", None)) for e in found]


def comments(text: str) -> list[str]:
    """Every `# ` that could be one; those within scalars stay as well."""
    return [row.strip() for row in re.findall(r"(?:^|\s)(#.*)$", text, re.MULTILINE)]


@settings(max_examples=100, deadline=None)
@given(documents())
@example("a:\n- b\n#c\n- d\n")
@example("a: {b: , c: }\n")
@example("- - a\n  - b\n-   c: d\n    e: f\n")
@example("a: |+\n  x\n\n\nb: 1\n")
@example("? a\n: b\n? c\n:   - d\n")
def test_the_meaning_and_the_comments_stay(text: str) -> None:
    assert parse(Source("x.yaml", text.replace("\r\n", "\n"))).value is not None
    formatted = format_text(Source("x.yaml", text))
    assert events(formatted) == events(text)
    assert comments(formatted) == comments(text.replace("\r\n", "\n"))
    assert format_text(Source("x.yaml", formatted)) == formatted
    assert not formatted or formatted.endswith("\n") or not text.endswith("\n")
    assert "\r" not in formatted


@settings(max_examples=150, deadline=None)
@given(st.text(st.sampled_from(list("ab:-?{}[],#&*!|>'\"\n \t%@")), max_size=40))
def test_any_text_is_formatted_or_refused(text: str) -> None:
    try:
        formatted = format_text(Source("x.yaml", text))
    except EdgespecError:
        return
    assert events(formatted) == events(text)
    assert format_text(Source("x.yaml", formatted)) == formatted
