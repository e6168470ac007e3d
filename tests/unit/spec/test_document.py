from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.spec.document import MAX_DEPTH, MAX_NODES, Node, Source, parse


def nodes(text: str) -> list[Node]:
    return parse(Source("f.yaml", text)).unwrap()


def only(text: str) -> Any:
    (node,) = nodes(text)
    return node.plain()


def problems(text: str) -> list[tuple[str, str]]:
    """(place, code) of every diagnostic."""
    return [(str(d.source), d.code) for d in parse(Source("f.yaml", text)).diagnostics]


@pytest.mark.parametrize(
    "text",
    ["no", "on", "yes", "True", "010", "0o7", "0x1F", "1.10", "1_000", "12:30:45", "2025-10-03", "2025-10-03T12:00:00Z",
     "0e1234567890", "1e999", ".inf", ".nan", "-x", "=", "NO", "١"],
)  # fmt: skip
def test_a_scalar_stays_text(text: str) -> None:
    assert only(f"a: {text}") == {"a": text}
    assert only(f"{text}: a") == {text: "a"}
    assert only(f"- {text}") == [text]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("~", None), ("null", None), ("Null", None), ("NULL", None), ("", None), ("nULL", "nULL"),
        ("'~'", "~"), ('"null"', "null"), ("''", ""), ("!!str null", "null"), ("! ~", "~"), ("!!str", ""),
        ("|\n  null\n", "null\n"), (">-\n  a\n  b\n", "a b"), ("!!int 3", "3"), (r'"\u00e9\n"', "é\n"),
    ],
)  # fmt: skip
def test_null_is_only_what_is_written_plainly(text: str, value: str | None) -> None:
    assert only(f"a: {text}") == {"a": value}


def test_every_node_knows_its_place() -> None:
    (root,) = nodes("# é\na:\n  - x\n  - {b: 'yy', \"c\": z}\n")
    a = root.child("a")
    assert a is not None
    inner = a.items[1]
    assert [str(root.where), str(root.keys["a"]), str(a.where), str(a.items[0].where)] == [
        "f.yaml:2:1", "f.yaml:2:1", "f.yaml:3:3", "f.yaml:3:5",
    ]  # fmt: skip
    b = inner.entries["b"].where
    assert (str(inner.where), str(b), b.length, b.text) == ("f.yaml:4:5", "f.yaml:4:9", 4, "  - {b: 'yy', \"c\": z}")
    assert (str(inner.keys["c"]), inner.keys["c"].length) == ("f.yaml:4:15", 3)


def test_columns_count_characters() -> None:
    (root,) = nodes("{团队: 😀, x: y}")
    assert str(root.keys["x"]) == "f.yaml:1:9"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends(end: str) -> None:
    text = end.join(["a: 1", "b: |", "  x", "  y", "a: 2", ""])
    assert problems(text) == [("f.yaml:5:1", "ES106")]
    assert only(text.replace("a: 2", "c: 2")) == {"a": "1", "b": "x\ny\n", "c": "2"}


def test_documents() -> None:
    assert [n.plain() for n in nodes("---\n---\na: 1\n---\n# nothing\n---\nb\n...\n---\n[]\n")] == [{"a": "1"}, "b", []]
    assert nodes("") == nodes("# only a comment\n") == nodes("---\n~\n") == []


def test_anchors_do_not_reach_the_next_document() -> None:
    assert problems("a: &x 1\n---\nb: *x\n") == [("f.yaml:3:4", "ES107")]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ('a: 1\nb: 2\na: 3\n"a": 4\n', [3, 4]),
        ("1: a\ntrue: b\n\"1\": c\n'true': d\n1: e\n", [3, 4, 5]),
        ("? a\na: 1\n", [2]),
        ("~: 1\nnull: 2\n~: 3\n", [3]),
        ("x: {b: 1, b: 2}\n", [1]),
    ],
)
def test_duplicate_keys(text: str, places: list[int]) -> None:
    checked = parse(Source("f.yaml", text))
    assert [(d.code, d.source.line) for d in checked.diagnostics if d.source] == [("ES106", line) for line in places]
    assert all("f.yaml:1:" in d.detail or "f.yaml:2:" in d.detail for d in checked.diagnostics)


def test_keys_that_only_look_alike() -> None:
    assert only("1: a\n01: b\n1.0: c\ntrue: d\nTrue: e\nyes: f\n") == dict(
        zip(["1", "01", "1.0", "true", "True", "yes"], "abcdef", strict=True)
    )


def test_merges() -> None:
    text = 'base: &b {x: 1, y: 2}\nother: &o {y: 3, z: 4}\nuse: {y: 9, <<: [*b, *o]}\nplain: {"<<": 1}\n'
    assert only(text)["use"] == {"y": "9", "x": "1", "z": "4"}
    assert only(text)["plain"] == {"<<": "1"}
    (root,) = nodes(text)
    assert str(root.entries["use"].keys["z"]) == "f.yaml:2:18"
    assert problems("a: {<<: 1}") == [("f.yaml:1:9", "ES105")]
    assert problems("a: &x [1]\nb: {<<: *x}") == [("f.yaml:1:8", "ES105")]


@pytest.mark.parametrize("text", ["a: &x ~\n*x : 1\n", "- &m <<\n- {*m : 1}\n", "a: &x b\n? *x\n: 1\n"])
def test_an_alias_as_a_key(text: str) -> None:
    assert not problems(text)


@pytest.mark.parametrize(
    ("text", "place", "code"),
    [
        ("a: &a [*a]", "f.yaml:1:8", "ES107"),
        ("a: *nowhere", "f.yaml:1:4", "ES107"),
        ("? {a: b}\n: c", "f.yaml:1:3", "ES105"),
        ("a: !foo 1", "f.yaml:1:4", "ES104"),
        ("a: !!python/object:os.system {}", "f.yaml:1:4", "ES104"),
        ("a: !!binary aGk=", "f.yaml:1:4", "ES104"),
        ("a: !!timestamp 2025-10-03", "f.yaml:1:4", "ES104"),
        ("é: é\x07", "f.yaml:1:5", "ES101"),
        ("é: é\n\n  é\x1b[31m", "f.yaml:3:4", "ES101"),
        ("a: \ud800", "f.yaml:1:4", "ES101"),
        ("a:\n\tb: 1", "f.yaml:2:1", "ES101"),
        ("a: [1, 2", "f.yaml:2:1", "ES101"),
        ("a: b: c", "f.yaml:1:5", "ES101"),
        ("a: 'x", "f.yaml:1:6", "ES101"),
        ("- a\nb: 1", "f.yaml:2:1", "ES101"),
        ("@a: 1", "f.yaml:1:1", "ES101"),
        ("%YAML 3.0\n---\na: 1", "f.yaml:1:1", "ES101"),
    ],
)
def test_refused(text: str, place: str, code: str) -> None:
    assert problems(text) == [(place, code)]


def test_an_alias_bomb() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 30)]
    (found,) = problems("\n".join(rows))
    assert found[1] == "ES108"
    assert problems("[" + "x," * (MAX_NODES + 1) + "]") == [("f.yaml:1:1", "ES108")]


def test_depth() -> None:
    assert not problems("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert [c for _, c in problems("[" * 900)] == ["ES103"]
    assert [c for _, c in problems("[" * 100_000)] == ["ES101"]  # libyaml gives up first
    step = "[" * 30, "]" * 30
    rows = ["- &a x", *(f"- &{b} {step[0]}*{a}{step[1]}" for a, b in zip("abcdef", "bcdefg", strict=True))]
    assert [c for _, c in problems("\n".join(rows))] == ["ES103"]


def test_a_byte_order_mark() -> None:
    assert only("\ufeffa: 1") == {"a": "1"}


keys = st.text("ab1", min_size=1, max_size=3)
values = st.recursive(
    st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text("xyz", min_size=1), values, min_size=1))
def test_what_json_says_is_read_as_text(value: dict[str, Any]) -> None:
    assert only(json.dumps(value, ensure_ascii=False)) == value


@given(st.text(max_size=60))
def test_any_text_gives_nodes_or_diagnostics(text: str) -> None:
    checked = parse(Source("f.yaml", text))
    assert checked.value is not None or checked.diagnostics.has_errors
    for d in checked.diagnostics:
        assert d.source is not None
        assert d.source.line >= 1 and d.source.column >= 1
