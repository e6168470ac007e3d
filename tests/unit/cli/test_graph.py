from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from edgespec.render.graph import Drawing, Vertex, render
from tests.unit.cli.conftest import PROJECT, SPEC, Run

MERMAID = """\
---
title: "shop in local"
---
flowchart LR
  subgraph g0["alpha"]
    n0["deployment<br>alpha"]
    n1(["model<br>alpha"])
    n2[/"weights<br>alpha/default"/]
    n3["worker<br>alpha"]
  end
  subgraph g1["shared"]
    n4[("kv_namespace<br>shop-local-weights")]
    n5[("r2_bucket<br>shop-local-auto")]
  end
"""


def test_resources(run: Run, project: Path) -> None:
    drawn = run("graph")
    assert drawn.code == 0, drawn.err
    assert drawn.out.startswith(MERMAID), drawn.out
    edges = re.findall(r"n(\d) --> n(\d)", drawn.out)
    assert ("1", "2") in edges and ("5", "2") in edges, "weights need the model and the bucket"
    assert ("2", "3") in edges and ("3", "0") in edges, "the Worker needs the weights, the deployment the Worker"
    assert run("graph").out == drawn.out


def test_the_named_ones(run: Run, project: Path) -> None:
    (project / "specs" / "beta.yaml").write_text(SPEC.replace("alpha", "beta"))
    assert "alpha" not in run("graph", "beta").out
    assert run("graph", "gamma").code == 1
    assert run("graph", "beta", "--pipeline", "alpha").code == 1


def test_an_environment_whose_variables_are_not_set(run: Run, project: Path) -> None:
    far = "environments:\n  far: {target: {type: cloudflare, account: '${NOT_SET}'}}\n"
    (project / "edgespec.yaml").write_text(PROJECT + far)
    drawn = run("graph", "--env", "far")
    assert drawn.code == 0 and "shop in far" in drawn.out, drawn.err


def test_a_build(run: Run, project: Path) -> None:
    (project / "data").mkdir()
    (project / "data" / "train.jsonl").write_text('{"text": "a", "label": "a"}\n{"text": "b", "label": "b"}\n')
    spec = SPEC.replace("model}", "model, pipeline: [{head: {train: data/train.jsonl}}]}")
    spec = spec.replace("{type: embedding}", "{type: text-classification, labels: [a, b]}")
    (project / "specs" / "alpha.yaml").write_text(spec)
    drawn = run("graph", "--pipeline", "alpha", "--format", "dot")
    assert drawn.code == 0, drawn.err
    assert '"data/train.jsonl" -> "head"' in drawn.out
    assert '"package:edgespec-no-such-model" -> "fetch"' in drawn.out
    assert '"export" -> "head"' in drawn.out and '"fetch" -> "export"' in drawn.out


def test_names_cannot_break_out() -> None:
    wild = Vertex('a"]\n--> b', ('"] --> x', "<script>&"), group='g"')
    mermaid = render(Drawing('t"\n', (wild,), ()), "mermaid")
    assert '"]' not in mermaid.replace('"]\n', "") and "<script" not in mermaid
    dot = render(Drawing('t"', (wild,), ((wild.key, wild.key),)), "dot")
    assert '\\"' in dot
    if (graphviz := shutil.which("dot")) is not None:
        subprocess.run([graphviz, "-Tsvg"], input=dot.encode(), check=True, capture_output=True)


@pytest.mark.parametrize("form", ["mermaid", "dot"])
def test_the_order_in_which_it_was_made_does_not_count(form: str) -> None:
    a, b = Vertex("a", ("a",)), Vertex("b", ("b",), faint=True)
    first = render(Drawing("t", (a, b), (("a", "b"), ("a", "b"))), form)  # type: ignore[arg-type]
    assert first == render(Drawing("t", (b, a), (("a", "b"),)), form)  # type: ignore[arg-type]
    assert "dash" in first
