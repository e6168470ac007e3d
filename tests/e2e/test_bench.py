"""`edgespec bench` for real, on a tiny model; nothing about how fast anything is."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from edgespec import limits, measuring
from edgespec.diagnostics import RefusedError
from edgespec.render.bench import render
from edgespec.render.bench_plot import plot
from edgespec.render.budget import render as render_budget
from edgespec.render.text import plain
from tests.e2e.conftest import TinyProject


def left_behind() -> set[str]:
    return {p.name for p in Path(tempfile.gettempdir()).glob("edgespec-bench-*")}


def test_a_bench_measures_and_plan_judges(project: TinyProject) -> None:
    before = left_behind()
    engines = ("edge", "onnxruntime", "native")
    benched = measuring.bench(project.session(), "tiny", engines=engines, rounds=2)
    document, kept = benched.document, benched.kept
    assert left_behind() == before
    assert {e.engine for e in document.engines} | {e.engine for e in document.left_out} >= {"edge", "onnxruntime"}
    assert document.own is not None and document.engine == document.own.engine
    for engine in document.engines:
        assert [r.row for r in engine.rows] == [t.row for t in document.texts] == ["8", "16", "32", "own"]
        for row in engine.rows:
            assert 0 < row.cpu_ms.p50 <= row.cpu_ms.p99 and 0 < row.wall_ms.p50 <= row.wall_ms.p99
        memory, cold = engine.memory, engine.cold
        assert 0 < memory.wasm < memory.total < limits.ISOLATE_MEMORY and memory.heap > 0
        load = engine.load_memory
        assert load is not None and load.total == load.wasm + load.heap + load.buffers and load.heap > 0
        assert min(cold.load_cpu_ms, cold.load_wall_ms, cold.first_wall_ms) > 0
    loads = {e.engine: (e.load_memory.buffers, e.weights) for e in document.engines if e.load_memory is not None}
    assert loads["onnxruntime"][0] > loads["onnxruntime"][1], "all of its files are in buffers when they have arrived"
    assert document.native is not None and all(r.cpu_ms.p50 > 0 for r in document.native.rows)
    assert plain(render(document)) and plot(document).startswith("<svg")

    assert kept is not None and json.loads(kept.read_text())["artifact"] == document.artifact == kept.stem
    planned = project.plan()
    shown = plain(render_budget(planned.fits, hint=True))
    assert "tiny  (" in shown and f"of {limits.PAID_CPU_MS:,} ms on the paid plan" in shown

    refused = _refused(project, {"cpu_ms": {"p50": 0.000001}, "memory": "1MiB"})
    assert refused == [("ES213", "memory"), ("ES215", "p50")]
    project.write_spec(quality={"data": "data/test.jsonl", "metrics": {"accuracy": {"min": 0.0}}})
    assert project.plan().fits[0].measured is not None


def _refused(project: TinyProject, budget: dict[str, Any]) -> list[tuple[str, str]]:
    """Codes, and the key on the line that each is about."""
    project.write_spec(budget=budget)
    refusal = project.plan().refusal
    assert isinstance(refusal, RefusedError)
    found = [(d.code, d.source.text.split(":")[0].strip()) for d in refusal.diagnostics if d.source is not None]
    project.write_spec()
    return found
