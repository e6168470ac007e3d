"""What is said of a model that does not fit, and where exactly "too much" begins."""

from __future__ import annotations

from typing import Any

from edgespec import limits
from edgespec.measurement import Measured
from edgespec.plan.budget import Fit, check
from edgespec.spec.document import Source, parse
from tests.world import spec

BUDGET = {"script": "4MiB", "memory": "64MB", "cpu_ms": {"p50": 3, "p99": 999}}


def said(script: int = 0, memory: int = 0, p50: float = 0.0, p99: float = 0.0, **fields: Any) -> list[str]:
    (node,) = parse(Source("a.yaml", "metadata: {name: alpha}\n")).value or []
    measured = Measured("edge", "its own texts", p50, p99, "16", p50, memory, "2026-11-30T12:00:00Z")
    return [f"{d.code} {d.summary}: {d.detail}" for d in check(Fit(spec("alpha", **fields), script, measured), node)]


def test_exactly_at_a_limit_or_a_budget_is_not_over_it() -> None:
    assert said(limits.SCRIPT_SIZE, limits.ISOLATE_MEMORY, limits.PAID_CPU_MS) == []
    assert said(p50=limits.FREE_CPU_MS, worker={"plan": "free"}) == []
    assert said(4 << 20, 64_000_000, 3, 999, budget=BUDGET) == []


def test_over_a_limit() -> None:
    assert said(limits.SCRIPT_SIZE + 1, limits.ISOLATE_MEMORY + 100_000, 30_001) == [
        (
            "ES210 The script is too large: The Worker's modules are 64.0 MiB (67,108,865 bytes); Cloudflare takes "
            "64.0 MiB (67,108,864 bytes)."
        ),
        (
            "ES212 Too much memory: An isolate was measured with 128.1 MB; Cloudflare ends it at 128.0 MB. Use a "
            "smaller model or another quantisation."
        ),
        (
            "ES214 CPU does not fit the Workers plan: Half of all requests were measured with more than 30,001 ms of "
            "CPU (its own texts, on the machine of the measurement); the paid plan stops a request at 30,000 ms."
        ),
    ]
    (free,) = said(p50=10.25, worker={"plan": "free"})
    assert "more than 10.2 ms of CPU" in free and free.endswith("the free plan stops a request at 10 ms.")


def test_over_a_budget() -> None:
    assert said((4 << 20) + 1, 65_000_000, 3.25, 1000, budget=BUDGET) == [
        (
            "ES211 The script is over its budget: The Worker's modules are 4.0 MiB (4,194,305 bytes), over the "
            "budget of 4.0 MiB (4,194,304 bytes). Raise it, or choose an engine that is smaller."
        ),
        "ES213 Memory is over its budget: An isolate was measured with 65.0 MB, over the budget of 64.0 MB.",
        "ES215 CPU is over its budget: p50 was measured as 3.25 ms (its own texts), over the budget of 3 ms.",
        "ES215 CPU is over its budget: p99 was measured as 1,000 ms (its own texts), over the budget of 999 ms.",
    ]
