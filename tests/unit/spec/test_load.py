"""Values that reach the models; what is refused, and where, is in tests/cases/spec."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgespec.spec import later
from edgespec.spec.document import Source
from edgespec.spec.load import load_specs
from edgespec.spec.models import EdgeModel, Project, TextClassification

CASES = Path(__file__).parents[2] / "cases" / "spec"
SPEC = Path(__file__).parents[3] / "edgespec" / "spec"
PROJECT = Project(apiVersion="edgespec/v1", kind="Project", name="shop")
HEAD = "apiVersion: edgespec/v1\nkind: EdgeModel\nmetadata: {name: alpha}\nmodel: {source: ./m}\n"


def load(text: str) -> EdgeModel:
    (loaded,) = load_specs([Source("a.yaml", HEAD + text)], PROJECT).unwrap()
    return loaded.spec


def test_labels_are_the_text_that_was_written() -> None:
    written = ["no", "on", "010", "1.10", "12:30:45", "2025-10-03", "0e1234567890", "0o7", "~"]
    task = load(f"task: {{type: text-classification, labels: [{', '.join(written[:-1])}, '~']}}\n").task
    assert isinstance(task, TextClassification) and list(task.labels) == written


@pytest.mark.parametrize(
    ("text", "value"), [("no", False), ("on", True), ("true", True), ("'False'", False), ("0", False)]
)
def test_a_boolean_by_its_field(text: str, value: bool) -> None:
    task = load(f"task: {{type: text-classification, labels: [a, b], multi_label: {text}}}\n").task
    assert isinstance(task, TextClassification) and task.multi_label is value


@pytest.mark.parametrize(("text", "value"), [("010", 10), ("'64'", 64), ("8", 8)])
def test_a_number_by_its_field(text: str, value: int) -> None:
    assert load(f"task: {{type: embedding, max_tokens: {text}}}\n").task.max_tokens == value


@pytest.mark.parametrize(
    "text", ["0x40", "6.5", "64.0.0", "1e2", "0o7", ".inf", "nan", "sixty", "[64]", "{a: 64}", "-5"]
)
def test_not_a_number(text: str) -> None:
    checked = load_specs([Source("a.yaml", HEAD + f"task: {{type: embedding, max_tokens: {text}}}\n")], PROJECT)
    assert [(d.code, str(d.source)) for d in checked.diagnostics] == [("ES112", "a.yaml:5:37")]


@pytest.mark.parametrize("text", ["nan", ".nan", "inf", "-inf", "1e999", "2"])
def test_not_a_fraction(text: str) -> None:
    checked = load_specs([Source("a.yaml", HEAD + f"task: {{type: keyword-extraction, diversity: {text}}}\n")], PROJECT)
    assert [d.code for d in checked.diagnostics] == ["ES112"]


def test_spellings_of_the_same_spec_are_equal() -> None:
    one = load("task: {type: embedding}\ncache: {weights: {kv: {ttl: 1h, cache_ttl: 60, chunk: 1MiB}}}\n")
    other = load(
        "task: {normalize: yes, max_tokens: 128, type: embedding}\nquantization: {method: int8}\nworker: {}\n"
        "cache: {weights: {memory: 64MiB, kv: {chunk: 1024KiB, cache_ttl: 1m, ttl: 3600, pin: []}}}\n"
        "regions: {shards: {default: {}}}\nquality: null\n"
    )
    assert one == other


def test_every_code_of_the_language_has_a_case() -> None:
    raised = {c for path in SPEC.glob("*.py") for c in re.findall(r'"(ES1\d\d)"', path.read_text(encoding="utf-8"))}
    shown = {c for path in CASES.glob("*/expected.txt") for c in re.findall(r"\[(ES1\d\d)\]", path.read_text("utf-8"))}
    assert raised <= shown


@pytest.mark.parametrize("kind", ["EdgeModel", "Project"])
def test_a_later_field_is_not_one_that_exists(kind: str) -> None:
    """A field that is supported now must leave the list."""
    model = {"EdgeModel": EdgeModel, "Project": Project}[kind]
    for pattern in later._LATER[kind]:
        top, *rest = pattern.split(".")
        assert rest or top not in model.model_fields, pattern
