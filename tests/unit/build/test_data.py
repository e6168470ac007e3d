from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.build.data import Keyworded, Labelled, Pair, Task, read_examples
from edgespec.diagnostics import Severity
from edgespec.spec.models import Embedding, KeywordExtraction, TextClassification

CLASSES = TextClassification(type="text-classification", labels=("refund", "delivery"))
TAGS = TextClassification(type="text-classification", labels=("toxic", "spam"), multi_label=True)
KEYWORDS = KeywordExtraction(type="keyword-extraction")
PAIRS = Embedding(type="embedding")


def lines(*rows: Any) -> bytes:
    return "".join((r if isinstance(r, str) else json.dumps(r, ensure_ascii=False)) + "\n" for r in rows).encode()


def problems(data: bytes, task: Task = CLASSES, *, training: bool = False) -> list[tuple[str, int, int]]:
    checked = read_examples(data, "data/train.jsonl", task, training=training)
    assert (checked.value is None) == checked.diagnostics.has_errors
    for d in checked.diagnostics:
        assert d.detail
        assert d.source is None or d.source.path == "data/train.jsonl"
    return [(d.code, d.source.line if d.source else 0, d.source.column if d.source else 0) for d in checked.diagnostics]


def test_every_kind_of_example() -> None:
    def read(task: Task, *rows: Any) -> Any:
        return read_examples(lines(*rows), "d", task).unwrap()

    assert read(CLASSES, {"text": "退款", "label": "refund", "language": "zh"}) == (
        Labelled("退款", ("refund",), "zh"),
    )
    assert read(TAGS, {"text": "x", "labels": []}, {"text": "y", "labels": ["spam", "toxic"]})[1].labels == (
        "spam",
        "toxic",
    )
    assert read(KEYWORDS, {"text": "x", "keywords": ["a b"]}) == (Keyworded("x", ("a b",)),)
    assert read(PAIRS, {"text_a": "x", "text_b": "y", "score": 1}) == (Pair("x", "y", 1.0),)


def test_line_ends_blank_lines_and_byte_order_mark_do_not_matter() -> None:
    plain = lines({"text": "a", "label": "refund"}, {"text": "b", "label": "delivery"})
    windows = b"\xef\xbb\xbf" + plain.replace(b"\n", b"\r\n\r\n")
    assert read_examples(plain, "d", CLASSES).unwrap() == read_examples(windows, "d", CLASSES).unwrap()


def test_a_line_separator_inside_a_text_does_not_end_the_line() -> None:
    row = '{"text": "one\u2028two\x85three", "label": "refund"}'
    assert read_examples(lines(row), "d", CLASSES).unwrap()[0] == Labelled("one\u2028two\x85three", ("refund",))


@pytest.mark.parametrize(
    ("row", "task", "code", "column"),
    [
        ('{"text": "a", "label": "refund"', CLASSES, "ES521", 32),
        ('{"text": "a", "label": NaN}', CLASSES, "ES521", 1),
        ('["a", "refund"]', CLASSES, "ES521", 1),
        ("[" * 100000, CLASSES, "ES521", 1),
        ({"label": "refund"}, CLASSES, "ES522", 1),
        ({"text": "a"}, CLASSES, "ES522", 1),
        ({"text": "a", "labels": ["refund"]}, CLASSES, "ES523", 15),
        ({"text": "a", "label": "refund", "note": "?"}, CLASSES, "ES523", 34),
        ('{"text": "a", "text": "b", "label": "refund"}', CLASSES, "ES523", 2),
        ({"text": "  ", "label": "refund"}, CLASSES, "ES524", 2),
        ({"text": 5, "label": "refund"}, CLASSES, "ES524", 2),
        ('{"text": "\\ud83d", "label": "refund"}', CLASSES, "ES524", 2),
        ({"text": "a", "label": ["refund"]}, CLASSES, "ES524", 15),
        ({"text": "a", "label": None}, CLASSES, "ES524", 15),
        ({"text": "a", "label": "refund", "language": 7}, CLASSES, "ES524", 34),
        ({"text": "a", "label": "Refund"}, CLASSES, "ES525", 24),
        ({"text": "a", "labels": "spam"}, TAGS, "ES524", 15),
        ({"text": "a", "labels": ["spam", "spam"]}, TAGS, "ES524", 15),
        ({"text": "a", "labels": ["spam", "ham"]}, TAGS, "ES525", 34),
        ({"text": "label", "label": 5}, CLASSES, "ES524", 19),
        ({"text": "a", "keywords": []}, KEYWORDS, "ES524", 15),
        ({"text": "a", "keywords": [""]}, KEYWORDS, "ES524", 15),
        ({"text_a": "a", "text_b": "b", "score": "1"}, PAIRS, "ES524", 32),
        ({"text_a": "a", "text_b": "b", "score": True}, PAIRS, "ES524", 32),
        ({"text_a": "a", "text_b": "b", "score": 10**400}, PAIRS, "ES524", 32),
        ('{"text_a": "a", "text_b": "b", "score": 1e999}', PAIRS, "ES524", 32),
    ],
)
def test_a_bad_line_17_is_shown_where_it_is(row: Any, task: Task, code: str, column: int) -> None:
    good: dict[str, Any] = {
        "keyword-extraction": {"text": "t{}", "keywords": ["k"]},
        "embedding": {"text_a": "t{}", "text_b": "u", "score": 0.5},
    }.get(task.type, {"text": "t{}", "labels": ["spam"]} if task is TAGS else {"text": "t{}", "label": "refund"})
    rows = [json.dumps(good).replace("{}", str(i)) for i in range(16)]
    assert problems(lines(*rows, row), task) == [(code, 17, column)]


def test_the_excerpt_is_the_line_and_the_label_is_suggested() -> None:
    checked = read_examples(lines({"text": "a", "label": "delivry"}), "data/t.jsonl", CLASSES)
    (d,) = checked.diagnostics
    assert d.source is not None
    assert d.source.text == '{"text": "a", "label": "delivry"}'
    assert d.source.length == len('"delivry"')
    assert "Did you mean 'delivery'?" in d.detail
    assert str(d).startswith("data/t.jsonl:1:24: error ES525")


def test_all_bad_lines_are_reported_up_to_twenty() -> None:
    found = problems(lines(*({"text": f"t{i}", "label": "x"} for i in range(30))))
    assert [line for code, line, _ in found if code == "ES525"] == list(range(1, 21))
    assert found[-1][0] == "ES528"
    assert len(found) == 21


@pytest.mark.parametrize("data", [b"", b"\n \r\n\n"])
def test_an_empty_file(data: bytes) -> None:
    assert problems(data) == [("ES520", 1, 1)]


def test_not_utf8_names_the_byte() -> None:
    assert problems(lines({"text": "a", "label": "refund"}) + b'{"text": "caf\xe9"}') == [("ES529", 2, 14)]


def test_duplicates_are_warnings() -> None:
    row = {"text": "a", "label": "refund"}
    checked = read_examples(lines(row, row, {"text": "a", "label": "delivery"}), "d", CLASSES)
    assert [(d.severity, d.code) for d in checked.diagnostics] == [(Severity.WARNING, "ES527")] * 2
    assert "with another answer" in checked.diagnostics.items[1].detail
    assert len(checked.unwrap()) == 3


def test_training_wants_every_label_and_enough_examples() -> None:
    one = lines({"text": "a", "label": "refund"})
    assert problems(one) == []
    assert [code for code, _, _ in problems(one, training=True)] == ["ES526", "ES526"]
    always = lines(*({"text": f"t{i}", "labels": ["spam", *(["toxic"] if i else [])]} for i in range(4)))
    assert [code for code, _, _ in problems(always, TAGS, training=True)] == ["ES526"]


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)), st.booleans())
def test_any_bytes_give_examples_or_problems(data: bytes, training: bool) -> None:
    for task in (CLASSES, TAGS, KEYWORDS, PAIRS):
        checked = read_examples(data, "d", task, training=training)
        assert (checked.value is None) == checked.diagnostics.has_errors


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(["text", "label", "labels", "keywords", "score", "text_a", "text_b"]), JSON))
def test_any_row_gives_an_example_or_a_problem(row: dict[str, Any]) -> None:
    for task in (CLASSES, TAGS, KEYWORDS, PAIRS):
        checked = read_examples(lines(row), "d", task)
        assert (checked.value is None) == checked.diagnostics.has_errors
