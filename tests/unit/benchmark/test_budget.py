from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgespec.benchmark import records
from edgespec.diagnostics import EdgespecError
from edgespec.measurement import Measured, summarise
from edgespec.plan.budget import Fit, check
from edgespec.render.budget import render
from edgespec.render.text import plain
from edgespec.spec.document import Node, Source, parse
from edgespec.spec.models import EdgeModel
from edgespec.spec.validate import validate
from tests.unit.benchmark.documents import ARTIFACT, document
from tests.unit.cli.conftest import SPEC, Run, project, run, world  # noqa: F401  # fixtures
from tests.world import World

HEAD = (
    "apiVersion: edgespec/v1\nkind: EdgeModel\nmetadata: {name: alpha}\nmodel: {source: ./m}\ntask: {type: embedding}\n"
)


def read(text: str) -> tuple[EdgeModel, Node]:
    (node,) = parse(Source("alpha.yaml", HEAD + text)).unwrap()
    return validate(EdgeModel, node, "EdgeModel").unwrap(), node


def measured(**changes: Any) -> Measured:
    found = summarise(document(**changes))
    assert found is not None
    return found


def found(text: str, *, script: int = 10_000_000, of: Measured | None = None) -> list[tuple[str, str]]:
    spec, node = read(text)
    return [(d.code, str(d.source)) for d in check(Fit(spec, script, of), node)]


def test_what_is_not_known_is_not_judged() -> None:
    assert found("budget: {memory: 1KiB, cpu_ms: {p50: 0.001, p99: 0.001}}") == []


def test_what_fits() -> None:
    text = "budget: {script: 10MB, memory: 90MB, cpu_ms: {p50: 3, p99: 4.5}}\nworker: {plan: free}"
    assert found(text, of=measured()) == []


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("budget: {script: 4MiB}", ("ES211", "alpha.yaml:6:18")),
        ("budget:\n  memory: 89MB", ("ES213", "alpha.yaml:7:11")),
        ("budget: {cpu_ms: {p50: 2.9}}", ("ES215", "alpha.yaml:6:24")),
        ("budget: {cpu_ms: {p50: 3, p99: 4}}", ("ES215", "alpha.yaml:6:32")),
    ],
)
def test_over_budget(text: str, at: tuple[str, str]) -> None:
    assert found(text, of=measured()) == [at]


def test_over_the_limits_of_the_platform() -> None:
    assert found("", script=64 * 2**20 + 1) == [("ES210", "alpha.yaml:3:18")]
    assert found("", of=measured(memory=128_000_001)) == [("ES212", "alpha.yaml:3:18")]
    assert found("worker: {plan: free}", of=measured(scale=4)) == [("ES214", "alpha.yaml:6:16")]
    assert found("", of=measured(scale=4)) == []
    assert found("", of=measured(scale=20_000)) == [("ES214", "alpha.yaml:3:18")]


def test_everything_at_once() -> None:
    text = "worker: {plan: free}\nbudget: {script: 1, memory: 1, cpu_ms: {p50: 1, p99: 1}}"
    codes = [code for code, _ in found(text, script=2**27, of=measured(scale=9, memory=2 * 10**8))]
    assert codes == ["ES210", "ES211", "ES212", "ES213", "ES214", "ES215", "ES215"]


@pytest.mark.parametrize("text", ["budget: {cpu_ms: {p50: 0}}", "budget: {cpu: 3}", "budget: {memory: much}"])
def test_not_a_budget(text: str) -> None:
    with pytest.raises(EdgespecError):
        read(text)


def test_shown() -> None:
    spec, _ = read("budget: {memory: 96MiB, cpu_ms: {p50: 8}}\nworker: {plan: free}")
    text = plain(render([Fit(spec, 10_595_041, measured())], hint=True))
    assert "alpha  (edge, own texts, 2026-11-30)" in text
    assert "p50 3 ms (budget 8 ms), p99 4.5 ms of 10 ms on the free plan; 4 ms at 16 tokens" in text
    assert "memory  90.0 MB of 128 MB (budget 100.7 MB); script 10.1 MiB of 64.0 MiB" in text


def test_not_measured_is_one_line() -> None:
    spec, _ = read("")
    named = plain(render([Fit(spec, 1, None)], hint=True))
    assert named == "CPU and memory not measured: alpha. Measure with: edgespec bench alpha"
    many = plain(render([Fit(spec, 1, None)] * 7, hint=True))
    assert many.endswith("alpha and 2 more. Measure with: edgespec bench NAME")
    assert render([Fit(spec, 1, None)], hint=False) == []


def test_plan_and_apply_exit_with_4(world: World, run: Run, project: Path) -> None:  # noqa: F811
    (project / "specs" / "alpha.yaml").write_text(SPEC + "budget: {script: 999}\n")
    for arguments in (["plan"], ["apply", "--auto-approve"], ["plan", "alpha"]):
        refused = run(*arguments)
        assert refused.code == 4 and ("6 to create" in refused.out) == (arguments[0] == "plan")
        assert refused.err.startswith("specs/alpha.yaml:6:18: error: The script is over its budget [ES211]\n")
    assert run("validate").code == 0
    assert run("destroy", "--auto-approve").code == 0


def test_a_plan_says_how_to_measure(world: World, run: Run) -> None:  # noqa: F811
    assert run("plan").out.endswith("CPU and memory not measured: alpha. Measure with: edgespec bench alpha\n")


def test_records(tmp_path: Path) -> None:
    assert records.load(tmp_path, ARTIFACT) == (None, [])
    path = records.keep(tmp_path, document())
    assert path == tmp_path / ".edgespec" / "bench" / f"{ARTIFACT}.json"
    assert records.load(tmp_path, ARTIFACT) == (document(), [])
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("text", ["{", "[]", '{"format": "edgespec.bench/v9"}'])
def test_a_broken_record_counts_as_none(tmp_path: Path, text: str) -> None:
    path = records.keep(tmp_path, document())
    path.write_text(text)
    loaded, (problem,) = records.load(tmp_path, ARTIFACT)
    assert loaded is None and (problem.code, problem.severity) == ("ES219", "warning") and str(path) in problem.detail
