"""Editing one value leaves every other character of the file as it is."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from edgespec.diagnostics import EdgespecError
from edgespec.spec.edit import set_value

FILE = """\
# the team's model
apiVersion: edgespec/v1
metadata: {name: a,   labels: {team: support}}   # odd spacing stays
model:
  source: ./models/x     # from the shelf
  pipeline:
    - prune:
        layers:   # which stay
          - 0
          - 5     # the last
        # and then
    - head: {train: "data/train.jsonl"}
quantization: {method: int8}  # small
---
apiVersion: edgespec/v1
metadata: {name: b}
"""
METHOD = ("quantization", "method")


def test_a_scalar_in_its_place() -> None:
    assert set_value(FILE, 2, METHOD, "int4") == FILE.replace("method: int8", "method: int4")


def test_a_whole_flow_mapping() -> None:
    edited = set_value(FILE, 2, ("quantization",), {"method": "gptq", "bits": 4})
    assert edited == FILE.replace("{method: int8}", "{method: gptq, bits: 4}")


def test_a_new_key_of_a_flow_mapping() -> None:
    edited = set_value(FILE, 2, ("quantization", "group_size"), 64)
    assert edited == FILE.replace("{method: int8}", "{method: int8, group_size: 64}")


def test_a_new_key_of_a_block_mapping_stands_under_the_others() -> None:
    edited = set_value(FILE, 2, ("model", "revision"), "v2")
    assert edited == FILE.replace('train: "data/train.jsonl"}\n', 'train: "data/train.jsonl"}\n  revision: v2\n')


def test_keys_that_are_not_there_on_the_way() -> None:
    edited = set_value(FILE, 2, ("cache", "weights", "memory"), "1MiB")
    assert "quantization: {method: int8}  # small\ncache: {weights: {memory: 1MiB}}\n---" in edited


def test_a_block_list_becomes_one_line_and_loses_only_the_comments_inside_it() -> None:
    edited = set_value(FILE, 2, ("model", "pipeline", 0, "prune", "layers"), [0, 2])
    assert yaml.safe_load(edited.split("---")[0])["model"]["pipeline"][0] == {"prune": {"layers": [0, 2]}}
    assert "# and then" in edited
    assert "# from the shelf" in edited


def test_the_other_document() -> None:
    edited = set_value(FILE, 15, ("task",), {"type": "embedding"})
    assert (
        edited == FILE + "task: {type: embedding}\n"
        or edited == FILE.removesuffix("\n") + "\ntask: {type: embedding}\n"
    )
    assert edited.startswith(FILE[:-1])


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_line_ends_and_marks_stay(end: str) -> None:
    text = "\ufeffa: 1" + end
    assert set_value(text, 1, ("a",), 2) == "\ufeffa: 2" + end


@pytest.mark.parametrize(
    ("text", "path"),
    [("a: [1]\n", ("a", 3)), ("a: [1]\n", ("a", "b")), ("a: 1\n", ("a", "b")), ("- 1\n", ("a",))],
)
def test_what_cannot_be_done_is_refused(text: str, path: tuple[str | int, ...]) -> None:
    with pytest.raises(EdgespecError, match="ES593"):
        set_value(text, 1, path, 2)


def test_a_document_that_has_moved_is_not_edited() -> None:
    with pytest.raises(EdgespecError, match="line 3"):
        set_value("a: 1\n", 3, ("a",), 2)


def test_an_anchor_that_others_use_is_refused() -> None:
    """Editing it would change both places."""
    with pytest.raises(EdgespecError, match="ES593"):
        set_value("a: &x {m: 1}\nb: *x\n", 1, ("b", "m"), 2)


KEYS = st.sampled_from(["a", "b", "c d", "é", "no", "1"])
VALUES = st.recursive(
    st.one_of(st.integers(-5, 5), st.text("ab: #'\"{}[],é\n", max_size=6), st.booleans()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=6,
)


@example({"a": []}, "a", "é,", True)
@example({"a": []}, "b", ":[", True)
@example({"a": []}, "a", "é,", False)
@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=4), KEYS, VALUES, st.booleans())
def test_any_file_any_value(data: dict[str, Any], key: str, value: Any, flow: bool) -> None:
    text = (
        "# before\n" + yaml.safe_dump(data, default_flow_style=flow, allow_unicode=True, sort_keys=False) + "# after\n"
    )
    edited = set_value(text, 2, (key,), value)
    assert yaml.safe_load(edited) == {**data, key: value}
    assert edited.startswith("# before\n")
    assert edited.endswith("# after\n")
