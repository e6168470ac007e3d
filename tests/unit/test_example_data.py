"""The examples under specs/: their data has the promised fields and sizes, and no text is learnt and tested at once."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgespec import scaffold

EXAMPLES = Path(__file__).parents[2] / "specs"
PROJECTS = ("gitops", "keywords", "moderation", "qlora", "similarity", "support")
FETCHED = ("sentiment",)
"""Its data is another's, and comes with make_data.py."""
CLASSIFIERS = ("moderation", "support")
LANGUAGES = ("de", "en", "es", "fr", "ja", "zh")
NEAR = 0.8
"""Token overlap (Jaccard) above which two texts are nearly the same."""


def specs_of(project: str) -> list[dict[str, Any]]:
    return [yaml.safe_load(p.read_text(encoding="utf-8")) for p in (EXAMPLES / project / "specs").glob("*.yaml")]


def spec_of(project: str) -> dict[str, Any]:
    (only,) = specs_of(project)
    return only


def rows_of(project: str, name: str) -> list[dict[str, Any]]:
    lines = (EXAMPLES / project / "data" / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def normalised(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(re.sub(r"[^\w\s]|_", "", folded).split())


def tokens(text: str) -> frozenset[str]:
    return frozenset(normalised(text).split())


def repeated(texts: list[str]) -> list[str]:
    return [t for t, n in Counter(map(normalised, texts)).items() if n > 1]


def texts_of(row: dict[str, Any]) -> Iterator[str]:
    yield from (row[k] for k in ("text", "text_a", "text_b") if k in row)


FILES = [p for p in sorted(EXAMPLES.glob("*/data/*.jsonl")) if p.parts[-3] not in FETCHED]


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parts[-3]}/{p.name}")
def test_a_data_file_is_clean_json_lines(path: Path) -> None:
    raw = path.read_bytes()
    assert raw.endswith(b"\n") and b"\r" not in raw
    rows = [json.loads(line) for line in raw.decode("utf-8").splitlines()]
    assert rows
    for row in rows:
        for text in texts_of(row):
            assert text == text.strip() and unicodedata.is_normalized("NFC", text), row
            assert normalised(text), row


def test_every_project_names_data_that_exists_and_no_more() -> None:
    assert sorted(p.parent.name for p in EXAMPLES.glob("*/edgespec.yaml")) == sorted([*PROJECTS, *FETCHED])
    for project in PROJECTS:
        specs = specs_of(project)
        stages = [options for s in specs for stage in s["model"].get("pipeline", ()) for options in stage.values()]
        named = {s["quality"]["data"] for s in specs} | {options["train"] for options in stages}
        there = {str(p.relative_to(EXAMPLES / project)) for p in (EXAMPLES / project).glob("data/*")}
        assert named == there, project


def test_the_team_works_with_the_data_of_the_examples() -> None:
    for name, other in {
        "support-train": "support/data/train",
        "support-test": "support/data/test",
        "pairs-test": "similarity/data/test",
    }.items():
        copy = EXAMPLES / "gitops" / "data" / f"{name}.jsonl"
        assert copy.read_bytes() == (EXAMPLES / f"{other}.jsonl").read_bytes()


def test_the_team_has_the_workflows_that_init_writes() -> None:
    templates, github = Path(scaffold.__file__).parent / "templates" / "github", EXAMPLES / "gitops" / ".github"
    for name in ("validate", "plan", "apply", "drift"):
        written = github / "workflows" / f"edgespec-{name}.yml"
        assert written.read_bytes() == (templates / f"{name}.yml").read_bytes(), f"edgespec init --ci-only: {name}"
    assert (github / "actions/edgespec/action.yml").read_bytes() == (templates / "action.yml").read_bytes()


def test_the_schema_comments_point_at_the_schemas() -> None:
    wanted = {"Project": "project.schema.json", "EdgeModel": "spec.schema.json"}
    for path in EXAMPLES.glob("**/*.yaml"):
        first, rest = path.read_text(encoding="utf-8").split("\n", 1)
        target = first.removeprefix("# yaml-language-server: $schema=")
        expected = EXAMPLES.parent / "schemas" / wanted[yaml.safe_load(rest)["kind"]]
        assert (path.parent / target).resolve() == expected.resolve(), path


def test_support_rows_have_one_known_label_each() -> None:
    labels = spec_of("support")["task"]["labels"]
    for name, least in (("train.jsonl", 60), ("test.jsonl", 25)):
        rows = rows_of("support", name)
        assert all(set(r) == {"text", "label"} for r in rows)
        counts = Counter(r["label"] for r in rows)
        assert set(counts) == set(labels)
        assert min(counts.values()) >= least, counts


def test_moderation_rows_have_a_list_of_known_labels() -> None:
    labels = spec_of("moderation")["task"]["labels"]
    for name, total, least in (("train.jsonl", 240, 40), ("test.jsonl", 100, 14)):
        rows = rows_of("moderation", name)
        assert len(rows) >= total
        assert all(set(r) == {"text", "labels"} and set(r["labels"]) <= set(labels) for r in rows)
        assert all(len(r["labels"]) == len(set(r["labels"])) for r in rows)
        counts = Counter(label for r in rows for label in r["labels"])
        assert min(counts[label] for label in labels) >= least, counts
        assert sum(r["labels"] == [] for r in rows) >= least
        assert sum(len(r["labels"]) > 1 for r in rows) >= 10


def test_keywords_stand_in_their_texts() -> None:
    rows = rows_of("keywords", "test.jsonl")
    assert len(rows) >= 60
    assert all(set(r) == {"text", "keywords", "language"} for r in rows)
    counts = Counter(r["language"] for r in rows)
    assert sorted(counts) == sorted(LANGUAGES) and min(counts.values()) >= 10, counts
    for row in rows:
        assert 3 <= len(row["keywords"]) <= 5, row
        assert not repeated(row["keywords"]), row
        missing = [k for k in row["keywords"] if k.casefold() not in row["text"].casefold()]
        assert not missing, (missing, row["text"])


def test_similarity_scores_cover_the_whole_range() -> None:
    rows = rows_of("similarity", "test.jsonl")
    assert len(rows) >= 120
    assert all(set(r) == {"text_a", "text_b", "score"} for r in rows)
    scores = sorted({float(r["score"]) for r in rows})
    assert scores[0] == 0 and scores[-1] == 1
    assert all(b - a <= 0.05 for a, b in pairwise(scores)), scores
    assert all(sum(low <= r["score"] <= low + 0.2 for r in rows) >= 15 for low in (0, 0.2, 0.4, 0.6, 0.8))


@pytest.mark.parametrize("project", PROJECTS)
def test_no_text_stands_twice(project: str) -> None:
    paths = sorted((EXAMPLES / project / "data").glob("*.jsonl"))
    assert repeated([t for p in paths for row in rows_of(project, p.name) for t in texts_of(row)]) == []


@pytest.mark.parametrize("project", CLASSIFIERS)
def test_no_tested_text_is_nearly_a_learnt_one(project: str) -> None:
    learnt = [(tokens(r["text"]), r["text"]) for r in rows_of(project, "train.jsonl")]
    near = [
        (row["text"], text)
        for row in rows_of(project, "test.jsonl")
        for known, text in learnt
        if len(known & tokens(row["text"])) > NEAR * len(known | tokens(row["text"]))
    ]
    assert near == []
