from __future__ import annotations

import pytest

from edgespec.diagnostics import Diagnostics, SourceRange, error, warning
from edgespec.render.diagnostics import render, to_json
from edgespec.render.text import plain


def shown(text: str, column: int, length: int = 1) -> list[str]:
    where = SourceRange("a.yaml", 7, column, length, text)
    _, excerpt, carets = plain(render(Diagnostics.of(error("ES1", "Wrong", source=where)))).split("\n")
    assert excerpt.startswith("  7 | ") and carets.startswith("    | ")
    return [excerpt[6:], carets[6:]]


@pytest.mark.parametrize(
    ("text", "column", "length", "carets"),
    [
        ("a: bad", 4, 3, "   ^^^"),
        ("a: 支持", 4, 2, "   ^^^^"),
        ("支持: bad", 5, 3, "      ^^^"),
        ("e\u0301: bad", 5, 3, "   ^^^"),
        ("\ta: b", 5, 1, "\t   ^"),
        ("a", 2, 1, " ^"),
        ("a: b", 1, 99, "^^^^"),
    ],
)
def test_the_caret_stands_under_the_place(text: str, column: int, length: int, carets: str) -> None:
    assert shown(text, column, length) == [text, carets]


def test_a_long_line_is_cut_around_the_place() -> None:
    excerpt, carets = shown("x" * 300 + "HERE" + "y" * 300, 301, 4)
    assert len(excerpt) == 110 and excerpt[carets.index("^") :][: carets.count("^")] == "HERE"


def test_nothing_commands_the_terminal() -> None:
    where = SourceRange("a.yaml", 1, 4, 1, "a: \x1b[31m\u202ex\x9b")
    text = plain(render(Diagnostics.of(error("ES1", "Wrong", "got \x1b]0;title\x07", source=where))))
    assert not set(text) & set("\x1b\x07\x9b\u202e") and text.splitlines()[1] == "  1 | a: \ufffd[31m\ufffdx\ufffd"


def test_places_other_than_files() -> None:
    found = Diagnostics.of(warning("ES2", "Odd", "Line one.\nLine two.", address="worker/a"), error("ES3", "Gone"))
    assert plain(render(found)) == "worker/a: warning: Odd [ES2]\n  Line one.\n  Line two.\nerror: Gone [ES3]"


def test_json() -> None:
    where = SourceRange("a.yaml", 7, 3, 1, "text")
    assert to_json(Diagnostics.of(error("ES1", "Wrong", "Why.", source=where))) == [
        {"severity": "error", "code": "ES1", "summary": "Wrong", "detail": "Why.", "address": None, "path": "a.yaml",
         "line": 7, "column": 3},
    ]  # fmt: skip
