from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from edgespec.formatting import formatted, project_files
from edgespec.spec.document import Source
from edgespec.spec.format import format_text
from tests.unit.cli.conftest import Run

SPECS = Path(__file__).parents[3] / "specs"
UGLY = """\


apiVersion:   edgespec/v1   # which
kind: EdgeModel
metadata: { name: alpha,labels: {team :   support} }


model:
      source: package:edgespec-no-such-model
      # stages
      pipeline:
      # the first one
      - finetune:
            train: data/train.jsonl
            epochs:  2      # enough
        # about nothing that follows
task: {type: embedding}\x20\x20
description: |
    # not a comment
      deeper
"""
NICE = """\
apiVersion: edgespec/v1   # which
kind: EdgeModel
metadata: {name: alpha, labels: {team: support}}

model:
  source: package:edgespec-no-such-model
  # stages
  pipeline:
    # the first one
    - finetune:
        train: data/train.jsonl
        epochs: 2      # enough
      # about nothing that follows
task: {type: embedding}
description: |
    # not a comment
      deeper
"""


def test_the_layout() -> None:
    assert format_text(Source("x.yaml", UGLY)) == NICE
    assert format_text(Source("x.yaml", NICE)) == NICE
    assert format_text(Source("x.yaml", "\ufeff" + UGLY.replace("\n", "\r\n"))) == NICE


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", ""),
        ("\n\n", ""),
        ("# only a comment", "# only a comment\n"),
        ("a:\n- b\n-   c: 1\n    d: 2\n", "a:\n  - b\n  - c: 1\n    d: 2\n"),
        ("a: [ 1,2 ,3 ]\nb: { }\n", "a: [1, 2, 3]\nb: {}\n"),
        ("a: [\n 1,\n # two\n    2,\n  ]\n", "a: [\n  1,\n  # two\n  2,\n]\n"),
        ("a: {b: , c: }\n", "a: {b: , c: }\n"),
        ("a: &x\n    b: 1\nc: *x\n", "a: &x\n  b: 1\nc: *x\n"),
        ("a: 'one\n  two'\n", "a: 'one\n  two'\n"),
        ("a: |+\n  x\n\n\nb: 1\n", "a: |+\n  x\n\n\nb: 1\n"),
        ("a:\n    - |\n        x\n          y\n", "a:\n  - |\n      x\n        y\n"),
        ("---\na: 1\n---\n\n\n\nb: 2\n", "---\na: 1\n---\n\nb: 2\n"),
        ("a: 1 # x\nb: 2    # y\n", "a: 1  # x\nb: 2    # y\n"),
        ('a: "x\\\n   y"\n', 'a: "x\\\n   y"\n'),
    ],
)
def test_small_ones(text: str, wanted: str) -> None:
    assert format_text(Source("x.yaml", text)) == wanted


def test_a_projects_files(run: Run, project: Path) -> None:
    spec = project / "specs" / "alpha.yaml"
    (project / "releases").mkdir()
    (project / "releases" / "production.yaml").write_text("a:   1\n")
    spec.write_text(UGLY)
    spec.chmod(0o640)
    before = spec.stat().st_mode
    checked = run("fmt", "--check")
    assert (checked.code, checked.out) == (1, "specs/alpha.yaml\nreleases/production.yaml\n")
    assert spec.read_text() == UGLY
    shown = run("fmt", "--check", "--diff", "specs/alpha.yaml")
    assert shown.code == 1 and "+  source: package" in shown.out and "-      source: package" in shown.out
    written = run("fmt")
    assert (written.code, written.out) == (0, "specs/alpha.yaml\nreleases/production.yaml\n")
    assert spec.read_text() == NICE and spec.stat().st_mode == before
    again = run("fmt", "--check")
    assert (again.code, again.out) == (0, "")


def test_a_file_that_is_no_yaml_keeps_no_other_from_it(run: Run, project: Path) -> None:
    (project / "specs" / "a.yaml").write_text("a: [\n")
    (project / "specs" / "b.yaml").write_text("b:   1\n")
    ran = run("fmt", "specs")
    assert ran.code == 1 and "ES101" in ran.err and "specs/a.yaml" in ran.err
    assert (project / "specs" / "b.yaml").read_text() == "b: 1\n"
    assert (project / "specs" / "a.yaml").read_text() == "a: [\n"
    assert run("fmt", "missing.yaml").code == 1


def test_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("a:   1\n"))
    assert run("fmt", "-").out == "a: 1\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO("a:   1\n"))
    assert run("fmt", "-", "--check").code == 1


def test_a_link_stays_one(run: Run, project: Path) -> None:
    (project / "real.yaml").write_text("a:   1\n")
    (project / "link.yaml").symlink_to("real.yaml")
    assert run("fmt", "link.yaml").code == 0
    assert (project / "link.yaml").is_symlink() and (project / "real.yaml").read_text() == "a: 1\n"


def test_the_examples_are_laid_out() -> None:
    for root in sorted(p.parent for p in SPECS.glob("*/edgespec.yaml")):
        assert [f.path for f in map(formatted, project_files(root)) if f.changed] == []
