"""The same examples in every format, and what is wrong with a file where it is."""

from __future__ import annotations

import json
import sys
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.build.data import (
    Conversation,
    Labelled,
    Message,
    Pair,
    Task,
    Unlabelled,
    describe,
    leaks,
    read_conversations,
    read_examples,
    read_partly_labelled,
    read_texts,
)
from edgespec.diagnostics import EdgespecError, Severity
from edgespec.spec.models import Embedding, KeywordExtraction, TextClassification

CLASSES = TextClassification(type="text-classification", labels=("refund", "delivery"))
TAGS = TextClassification(type="text-classification", labels=("toxic", "spam"), multi_label=True)
KEYWORDS = KeywordExtraction(type="keyword-extraction")
PAIRS = Embedding(type="embedding")


def table(rows: list[dict[str, Any]], **schema: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, **schema), sink)
    return bytes(sink.getvalue())


def json_lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows).encode()


def found(data: bytes, name: str, task: Task = CLASSES, *, training: bool = False) -> list[tuple[str, int, int]]:
    checked = read_examples(data, name, task, training=training)
    assert (checked.value is None) == checked.diagnostics.has_errors
    return [(d.code, d.source.line, d.source.column) for d in checked.diagnostics if d.source]


@pytest.mark.parametrize(
    ("task", "rows", "csv"),
    [
        (
            CLASSES,
            [
                {"text": 'say "hi", please\nnow', "label": "refund", "language": "de"},
                {"text": "wo?", "label": "delivery"},
            ],
            'text,label,language\n"say ""hi"", please\nnow",refund,de\nwo?,delivery,\n',
        ),
        (
            TAGS,
            [
                {"text": "a", "labels": ["spam", "toxic"]},
                {"text": "b", "labels": []},
                {"text": "c", "labels": ["spam"]},
            ],
            'labels,text\nspam|toxic,a\n,b\n"[""spam""]",c\n',
        ),
        (
            KEYWORDS,
            [{"text": "a", "keywords": ["battery life", "x"]}],
            "text,keywords\na,battery life | x\n",
        ),
        (
            PAIRS,
            [{"text_a": "a", "text_b": "b", "score": 0.5}],
            "text_a,text_b,score\na,b,0.5\n",
        ),
    ],
)
def test_the_same_examples_in_every_format(task: Task, rows: list[dict[str, Any]], csv: str) -> None:
    expected = read_examples(json_lines(rows), "d.jsonl", task).unwrap()
    assert len(expected) == len(rows)
    assert read_examples(csv.encode(), "d.csv", task).unwrap() == expected
    assert read_examples(b"\xef\xbb\xbf" + csv.replace("\n", "\r\n").encode(), "d.csv", task).unwrap() == expected
    assert read_examples(table(rows), "d.parquet", task).unwrap() == expected


def test_lines_are_kept_with_examples() -> None:
    csv = b'text,label\n"two\nlines",refund\n\nb,delivery\n'
    assert [e.line for e in read_examples(csv, "d.csv", CLASSES).unwrap()] == [2, 5]
    rows = [{"text": "a", "label": "refund"}, {"text": "b", "label": "delivery"}]
    assert [e.line for e in read_examples(table(rows), "d.parquet", CLASSES).unwrap()] == [1, 2]


@pytest.mark.parametrize(
    ("csv", "expected"),
    [
        ("", ("ES520", 1, 1)),
        ("text,label\n", ("ES520", 1, 1)),
        ("text;label\na;refund\n", ("ES521", 1, 1)),
        ("text\tlabel\na\trefund\n", ("ES521", 1, 1)),
        ("text,lable\na,refund\n", ("ES523", 1, 6)),
        ("text,label,text\na,refund,b\n", ("ES523", 1, 12)),
        ("text\na\n", ("ES522", 1, 1)),
        ("text,label\na,b,refund\n", ("ES521", 2, 1)),
        ("text,label\na\n", ("ES521", 2, 1)),
        ('text,label\na,refund\n"b\n\nc,refund\n', ("ES521", 3, 1)),
        ('text,label\na "b",refund\n', ("ES521", 2, 3)),
        ('text,label\n"a" b,refund\n', ("ES521", 2, 4)),
        ('text,label\n"a\nb",refnd\n', ("ES525", 3, 4)),
        ("text,label\na,\n", ("ES522", 2, 3)),
        ("text,label\n ,refund\n", ("ES524", 2, 1)),
        ("text,label\na,0\n", ("ES525", 2, 3)),
    ],
)
def test_what_is_wrong_with_a_csv_file_is_shown_where_it_is(csv: str, expected: tuple[str, int, int]) -> None:
    assert found(csv.encode(), "d.csv")[0] == expected


def test_every_bad_row_of_a_csv_file_is_reported() -> None:
    csv = b"text,label\na,b,refund\n ,refund\na,refnd\n"
    assert found(csv, "d.csv") == [("ES521", 2, 1), ("ES524", 3, 1), ("ES525", 4, 3)]


def test_an_unknown_column_of_a_table_is_said_once() -> None:
    assert found(b"text,label,idx\n" + b"a,refund,1\n" * 30, "d.csv") == [("ES523", 1, 12)]
    rows = [{"text": "a", "label": "refund", "idx": n} for n in range(30)]
    assert found(table(rows), "d.parquet") == [("ES523", 1, 3)]


@pytest.mark.parametrize(
    ("row", "task", "expected"),
    [
        ({"text": "a", "label": 1}, CLASSES, ("ES524", 3, 2)),
        ({"text": "a", "label": "refnd"}, CLASSES, ("ES525", 3, 2)),
        ({"text": "a", "label": None}, CLASSES, ("ES522", 3, 2)),
        ({"text": " ", "label": "refund"}, CLASSES, ("ES524", 3, 1)),
        ({"text": "a", "labels": [0, 1]}, TAGS, ("ES524", 3, 2)),
        ({"text_a": "a", "text_b": "b", "score": "0.5"}, PAIRS, ("ES524", 3, 3)),
    ],
)
def test_a_bad_row_of_parquet_is_counted(row: dict[str, Any], task: Task, expected: tuple[str, int, int]) -> None:
    good: dict[str, Any] = {"text": "x", "label": 0 if row.get("label") == 1 else "refund", "labels": [0], "score": "1"}
    good |= {"text_a": "x", "text_b": "y"}
    rows = [{k: good[k] for k in row}, {k: good[k] for k in row}, row]
    checked = read_examples(table(rows), "d.parquet", task)
    places = [(d.code, d.source.line, d.source.column) for d in checked.diagnostics if d.source]
    assert expected in places


def test_integer_labels_are_refused_with_the_way_out() -> None:
    for data, name, task in (
        (json_lines([{"text": "a", "label": 1}]), "d.jsonl", CLASSES),
        (b"text,label\na,1\n", "d.csv", CLASSES),
        (table([{"text": "a", "label": 1}]), "d.parquet", CLASSES),
        (json_lines([{"text": "a", "labels": [1]}]), "d.jsonl", TAGS),
    ):
        (d,) = read_examples(data, name, task).diagnostics
        assert f"1 would be {task.labels[1]!r}" in d.detail  # type: ignore[union-attr]
        assert "Write names" in d.detail


def test_broken_and_foreign_files() -> None:
    assert found(b"PAR1 nothing", "d.parquet") == [("ES529", 1, 1)]
    assert found(b"text\tlabel", "d.tsv") == [("ES529", 1, 1)]
    assert found(b"PK\x03\x04", "d.xlsx") == [("ES529", 1, 1)]
    assert found(b"text,label\ncaf\xe9,refund", "d.csv") == [("ES529", 2, 4)]


def test_without_pyarrow_parquet_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(EdgespecError, match=r"ES531.*pip install 'edgespec\[build\]'"):
        read_examples(b"", "d.parquet", CLASSES)


# --- messages


def test_messages_stand_in_for_the_text() -> None:
    one = {"messages": [{"role": "user", "content": "where is it"}], "label": "delivery"}
    expected = (Labelled("where is it", ("delivery",)),)
    assert read_examples(json_lines([one]), "d.jsonl", CLASSES).unwrap() == expected
    assert read_examples(table([one]), "d.parquet", CLASSES).unwrap() == expected
    csv = 'messages,label\n"[{""role"": ""user"", ""content"": ""where is it""}]",delivery\n'
    assert read_examples(csv.encode(), "d.csv", CLASSES).unwrap() == expected
    two = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "label": "delivery"}
    assert [c for c, _, _ in found(json_lines([two]), "d.jsonl")] == ["ES524"]
    both = {**one, "text": "a"}
    assert [c for c, _, _ in found(json_lines([both]), "d.jsonl")] == ["ES523"]


def test_conversations() -> None:
    row = {
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "hello"},
        ]
    }
    messages = (Message("system", "be brief"), Message("user", "hi"), Message("assistant", "hello"))
    assert read_conversations(json_lines([row]), "d.jsonl").unwrap() == (Conversation(messages),)
    assert read_conversations(table([row]), "d.parquet").unwrap() == (Conversation(messages),)


@pytest.mark.parametrize(
    "messages",
    [
        [],
        "hi",
        [{"role": "user", "content": "hi"}],
        [{"role": "assistant", "content": "hi"}],
        [{"role": "user", "content": "hi"}, {"role": "user", "content": "hi"}],
        [{"role": "user", "content": "hi"}, {"role": "assistant", "content": ""}],
        [{"role": "human", "content": "hi"}, {"role": "assistant", "content": "a"}],
        [{"role": "user", "content": "hi", "loss": True}, {"role": "assistant", "content": "a"}],
        [{"role": "system", "content": "hi"}],
    ],
)
def test_a_conversation_that_teaches_nothing(messages: Any) -> None:
    checked = read_conversations(json_lines([{"messages": messages}]), "d.jsonl")
    assert [(d.code, d.source and d.source.column) for d in checked.diagnostics] == [("ES524", 2)]


# --- texts without labels


def test_texts_of_every_format() -> None:
    assert read_texts(b"one\n\n two\r\n", "d.txt").unwrap() == ("one", " two")
    assert read_texts(b'{"text": "one"}\n{"text": "one", "label": "x"}\n', "d.jsonl").unwrap() == ("one", "one")
    assert read_texts(b"text,label\none,x\n", "d.csv").unwrap() == ("one",)
    assert read_texts(table([{"text_a": "a", "text_b": "b", "score": 1.0}]), "d.parquet").unwrap() == ("a", "b")
    talk = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]}
    assert read_texts(json_lines([talk, {"text": "c"}]), "d.jsonl").unwrap() == ("hi", "yo", "c")


@pytest.mark.parametrize(
    ("data", "name", "code"),
    [
        (b"\n \n", "d.txt", "ES520"),
        (b"", "d.jsonl", "ES520"),
        (b'{"txt": "a"}', "d.jsonl", "ES523"),
        (b'{"label": "a"}', "d.jsonl", "ES522"),
        (b'{"text": 5}', "d.jsonl", "ES524"),
        (b"words\na\n", "d.csv", "ES523"),
        (b"caf\xe9", "d.txt", "ES529"),
    ],
)
def test_texts_that_cannot_be_read(data: bytes, name: str, code: str) -> None:
    assert [d.code for d in read_texts(data, name).diagnostics] == [code]


def test_labels_that_may_be_missing() -> None:
    data = b'{"text": "a", "label": "refund"}\n{"text": "b"}\n'
    expected = (Labelled("a", ("refund",)), Unlabelled("b"))
    assert read_partly_labelled(data, "d.jsonl", CLASSES).unwrap() == expected
    assert read_partly_labelled(b"text,label\na,refund\nb,\n", "d.csv", CLASSES).unwrap() == expected
    assert read_partly_labelled(b"text\nb\n", "d.csv", CLASSES).unwrap() == (Unlabelled("b"),)
    assert read_partly_labelled(b"a\nb\n", "d.txt", CLASSES).unwrap() == (Unlabelled("a"), Unlabelled("b"))
    wrong = read_partly_labelled(b'{"text": "a", "label": "x"}', "d.jsonl", CLASSES)
    assert [d.code for d in wrong.diagnostics] == ["ES525"]
    assert [d.code for d in read_examples(data, "d.jsonl", CLASSES).diagnostics] == ["ES522"]


# --- facts


def test_rare_labels_are_a_warning_of_training_data() -> None:
    rows = [{"text": f"a{n}", "label": "refund"} for n in range(400)]
    rows += [{"text": f"b{n}", "label": "delivery"} for n in range(6)]
    checked = read_examples(json_lines(rows), "d.jsonl", CLASSES, training=True)
    (d,) = checked.diagnostics
    assert (d.severity, d.code) == (Severity.WARNING, "ES526")
    assert "delivery (6)" in d.detail
    assert not read_examples(json_lines(rows), "d.jsonl", CLASSES).diagnostics.items
    even = [{"text": f"{label}{n}", "label": label} for n in range(4) for label in CLASSES.labels]
    (d,) = read_examples(json_lines(even), "d.jsonl", CLASSES, training=True).diagnostics
    assert "refund (4), delivery (4)" in d.detail


def test_describe() -> None:
    rows = [Labelled("abcd", ("refund",), "en"), Labelled("ab", ("refund",), "de"), Labelled("ab", ("delivery",), "de")]
    assert describe(rows) == (
        "3 examples (1 repeated), median 2 characters, refund 67%, delivery 33%",
        "languages: de 67%, en 33%",
    )
    assert describe([Pair("a", "b", 0.25), Pair("c", "d", 1)]) == ("2 pairs, median 1 characters, scores 0.25 to 1",)
    assert describe([Unlabelled("abc")]) == ("1 texts, median 3 characters",)
    tags = [Labelled("a", ("spam", "toxic")), Labelled("b", ())]
    assert describe(tags) == ("2 examples, median 1 characters, no label 50%, spam 50%, toxic 50%",)
    assert describe([]) == ("0 examples",)


def test_leaks_are_found_whatever_the_case_and_spaces() -> None:
    training = [Labelled("My  Money", ("refund",), line=4), Labelled("other", ("delivery",), line=5)]
    quality = [Labelled("new", ("refund",), line=1), Labelled("my ｍoney ", ("refund",), line=2)]
    (d,) = leaks(training, quality, "train.jsonl", "test.jsonl")
    assert d.severity is Severity.WARNING
    assert "1 of 2 examples" in d.detail
    assert "line 2 is line 4 of train.jsonl" in d.detail
    assert d.source is not None
    assert (d.source.path, d.source.line) == ("test.jsonl", 2)
    assert leaks(training, quality[:1], "a", "b") == []
    assert leaks([Pair("a", "b", 1)], [Pair("B", "a", 0)], "a", "b")


CELLS = st.text(st.sampled_from('a",\n\r;|[] é'), max_size=12)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(CELLS, st.sampled_from(["refund", "delivery"])), min_size=1, max_size=4))
def test_what_python_writes_as_csv_is_read_back(rows: list[tuple[str, str]]) -> None:
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow(("text", "label"))
    writer.writerows(rows)
    checked = read_examples(out.getvalue().encode(), "d.csv", CLASSES)
    kept = [(text.replace("\r\n", "\n"), label) for text, label in rows if text.strip()]
    if len(kept) == len(rows):
        assert [(e.text, e.labels[0]) for e in checked.unwrap() if isinstance(e, Labelled)] == kept
    else:
        assert {d.code for d in checked.diagnostics if d.severity is Severity.ERROR} == {"ES524"}


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from('text,label\n"refund ;\t'), max_size=60))
def test_any_csv_gives_examples_or_problems(text: str) -> None:
    for data in (text, f"text,label\n{text}"):
        checked = read_examples(data.encode(), "d.csv", CLASSES)
        assert (checked.value is None) == checked.diagnostics.has_errors
        for d in checked.diagnostics:
            assert d.source is None or d.source.line >= 1
