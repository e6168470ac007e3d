"""What `edgespec tune` found, as a document: one row a variant of the grid, which of them no other beats, and which one
to take. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from edgespec import limits

FORMAT: Final = "edgespec.tune/v1"


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Row(_Document):
    """One variant. What could not be built or measured has `why` and no figures."""

    number: int = Field(ge=1)
    settings: dict[str, Any]
    """The grid's values, as the spec would hold them."""
    shown: dict[str, str]
    """The same, short."""
    artifact: str | None = None
    size: int | None = None
    """Bytes of the artifact."""
    gzip: int | None = None
    """Bytes of its files after gzip, what a download costs."""
    metrics: dict[str, float] = Field(default_factory=dict)
    cpu_p50_ms: float | None = None
    """CPU of a request in workerd, on the spec's own texts."""
    cpu_p99_ms: float | None = None
    memory: int | None = None
    """Bytes of the isolate."""
    why: str | None = None
    """Why there are no figures."""

    def fits(self, plan: Literal["free", "paid"]) -> bool | None:
        """Whether memory and CPU are within a Workers plan's limits; None when they were not measured."""
        if self.memory is None or self.cpu_p99_ms is None:
            return None
        most = limits.FREE_CPU_MS if plan == "free" else limits.PAID_CPU_MS
        return self.memory <= limits.ISOLATE_MEMORY and self.cpu_p99_ms <= most


class TuneDocument(_Document):
    format: Literal["edgespec.tune/v1"]
    name: str
    spec_digest: str
    """Of the spec with its grid and the data that was measured on: a later spec needs another search."""
    metric: str
    """What rows are compared by; more is better."""
    tolerance: float
    plan: Literal["free", "paid"]
    rows: tuple[Row, ...]
    frontier: tuple[int, ...] = ()
    """Numbers of the rows that no other row beats in everything."""
    choice: int | None = None
    """The smallest row that fits the plan and loses at most the tolerance; None where none fits."""


def frontier(rows: Sequence[Row], metric: str) -> tuple[int, ...]:
    """Rows to which no other is at least as good in the metric, bytes, memory and CPU, and better in one of them."""
    points = {r.number: _point(r, metric) for r in rows if r.why is None}
    return tuple(n for n, p in points.items() if not any(_beats(q, p) for q in points.values()))


def _point(row: Row, metric: str) -> tuple[float, ...]:
    """Less is better. Metric and bytes are exact; memory counts in whole MB and CPU in steps of a tenth, since a
    second measurement of the same variant differs by as much."""
    memory = round((row.memory or 0) / 10**6)
    cpu = round(math.log(row.cpu_p50_ms) / math.log(1.1)) if row.cpu_p50_ms else -math.inf
    return (-row.metrics[metric], float(row.size or 0), float(memory), float(cpu))


def _beats(a: Sequence[float], b: Sequence[float]) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True)) and any(x < y for x, y in zip(a, b, strict=True))


def choose(rows: Sequence[Row], metric: str, *, tolerance: float, plan: Literal["free", "paid"]) -> int | None:
    """The number of the smallest row within `tolerance` of the best, among those that are not known not to fit."""
    able = [r for r in rows if r.why is None and r.fits(plan) is not False]
    if not able:
        return None
    best = max(r.metrics[metric] for r in able)
    near = [r for r in able if r.metrics[metric] >= best - tolerance - 1e-12]
    return min(near, key=lambda r: (r.size or 0, -r.metrics[metric], r.number)).number


def document(
    name: str,
    rows: Sequence[Row],
    *,
    spec_digest: str,
    metric: str,
    tolerance: float,
    plan: Literal["free", "paid"],
) -> TuneDocument:
    """The rows with what follows from them."""
    return TuneDocument(
        format=FORMAT,
        name=name,
        spec_digest=spec_digest,
        metric=metric,
        tolerance=tolerance,
        plan=plan,
        rows=tuple(rows),
        frontier=frontier(rows, metric),
        choice=choose(rows, metric, tolerance=tolerance, plan=plan),
    )


def knobs(found: TuneDocument) -> tuple[str, ...]:
    """The columns of the grid."""
    return tuple(found.rows[0].shown) if found.rows else ()


def row_of(found: TuneDocument, number: int) -> Row | None:
    return next((r for r in found.rows if r.number == number), None)
