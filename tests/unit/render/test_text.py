from __future__ import annotations

from typing import Any

import pytest

from edgespec.render.answer import render as render_answer
from edgespec.render.text import plain, show
from edgespec.values import UNKNOWN


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("artifact", UNKNOWN, "(known after build)"),
        ("source_digest", UNKNOWN, "(known after build)"),
        ("version", UNKNOWN, "(known after apply)"),
        ("bindings", {"a": UNKNOWN}, "(known after apply)"),
        ("x", None, "(none)"), ("x", [], "(none)"), ("x", True, "true"), ("x", False, "false"), ("x", 0.5, "0.5"),
        ("x", "ab" * 32, "abababababab"), ("x", "Z" * 64, "Z" * 64), ("x", "y" * 80, "y" * 71 + "…"),
        ("x", ["a", "b"], "a, b"), ("x", {"b": 1, "a": None}, "{a: (none), b: 1}"),
    ],
)  # fmt: skip
def test_show(path: str, value: Any, text: str) -> None:
    assert show(path, value) == text


def test_what_is_opaque_is_told_by_its_digest() -> None:
    assert show("manifest", {"a": 1}, opaque=True) == show("manifest", {"a": 1}, opaque=True) != "{a: 1}"
    assert show("manifest", None, opaque=True) == "(none)"
    assert show("manifest", UNKNOWN, opaque=True) == "(known after build)"


@pytest.mark.parametrize(
    ("result", "rows"),
    [
        ({"label": "a", "scores": {"b": 0.25, "a": 0.75}, "tokens": 3, "truncated": False},
         ["  a                     75.00% ██████████████████", "  b                     25.00% ██████"]),
        ({"labels": [], "scores": {"a": 0.0}, "tokens": 3, "truncated": False}, ["  a                      0.00% "]),
        ({"keywords": [{"text": "bus", "score": 0.5}], "tokens": 3, "truncated": False}, ["   0.500  bus"]),
        ({"embedding": [0.5] * 8, "tokens": 3, "truncated": True},
         ["  8 dimensions: [0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000, ...]",
          "  read up to token 3; the rest was cut off"]),
    ],
)  # fmt: skip
def test_answers(result: dict[str, Any], rows: list[str]) -> None:
    assert plain(render_answer("text", result)).split("\n") == ["text", *rows]
