"""Writing what a search has chosen into the spec's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgespec.diagnostics import EdgespecError
from edgespec.frontier import Row, TuneDocument
from edgespec.session import Session, open_session
from edgespec.tuning import write_choice

PROJECT = """apiVersion: edgespec/v1
kind: Project
name: shop
environments:
  local: {target: {type: local}}
  staging:
    target: {type: local}
    overrides:
      a: {quantization: {method: none}}
"""
SPEC = """apiVersion: edgespec/v1
kind: EdgeModel
metadata: {name: a}
model: {source: ./m}
task: {type: embedding}
quantization: {method: int8}  # as measured
quality: {data: d.jsonl, metrics: {spearman: {min: 0.1}}}
tune: {quantization: [int8, fp16]}
"""
FOUND = TuneDocument(
    format="edgespec.tune/v1",
    name="a",
    spec_digest="",
    metric="spearman",
    tolerance=0.01,
    plan="paid",
    rows=(Row(number=1, settings={}, shown={}), Row(number=2, settings={}, shown={})),
    choice=2,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "specs").mkdir()
    (tmp_path / "edgespec.yaml").write_text(PROJECT)
    (tmp_path / "specs" / "a.yaml").write_text(SPEC)
    return tmp_path


def session(root: Path, environment: str) -> Session:
    return open_session(root, environment, {"EDGESPEC_CACHE_DIR": str(root / "cache")}, lambda _: None)


def test_it_is_written_where_the_spec_stands(root: Path) -> None:
    path, settings = write_choice(session(root, "local"), FOUND, None)
    assert (path, len(settings)) == ("specs/a.yaml", 1)
    written = (root / "specs" / "a.yaml").read_text()
    assert "fp16" in written.split("\n")[5] and "# as measured" in written
    assert session(root, "local").specs["a"].quantization.method == "fp16"


def test_what_an_overlay_gives_is_not_written_where_it_has_no_effect(root: Path) -> None:
    with pytest.raises(EdgespecError, match=r"edgespec\.yaml:9:.*ES186.*In staging an overlay gives `quantization"):
        write_choice(session(root, "staging"), FOUND, None)
    assert (root / "specs" / "a.yaml").read_text() == SPEC
