"""Trying a grid: each variant is built, measured on the data, and timed in workerd (edge)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from edgespec import assets
from edgespec.artifact import Manifest
from edgespec.benchmark import records
from edgespec.diagnostics import EdgespecError, error
from edgespec.frontier import Row, TuneDocument, document
from edgespec.measurement import Measured
from edgespec.spec.models import EdgeModel
from edgespec.spec.tune import Point, Setting, grid, metric_of
from edgespec.values import digest
from edgespec.workspace import STATE_DIR

LEVEL: Final = 6
"""Of gzip: what networks use."""


@dataclass(frozen=True, slots=True)
class Tuner:
    """What a search needs from its caller."""

    build: Callable[[EdgeModel], Manifest]
    metrics: Callable[[EdgeModel], Mapping[str, float]]
    bench: Callable[[EdgeModel], Measured | None] | None
    """CPU and memory in workerd; None leaves them out."""
    blob: Callable[[str], Path | None]
    say: Callable[[str], None]

    def search(self, spec: EdgeModel, data_digest: str) -> TuneDocument:
        """Tries every variant. One that cannot be built is a row that says why; raises when none can."""
        points = grid(spec)
        rows = [self._row(n, point, len(points)) for n, point in enumerate(points, start=1)]
        if all(r.why is not None for r in rows):
            reasons = "; ".join(dict.fromkeys(str(r.why) for r in rows))
            raise EdgespecError(error("ES590", "No variant can be built", reasons))
        tolerance = spec.tune.tolerance if spec.tune is not None else 0.0
        return document(
            spec.name,
            rows,
            spec_digest=spec_digest(spec, data_digest),
            metric=metric_of(spec),
            tolerance=tolerance,
            plan=spec.worker.plan,
        )

    def _row(self, number: int, point: Point, count: int) -> Row:
        shown = {s.knob: s.shown for s in point.settings}
        settings = {s.knob: s.value for s in point.settings}
        what = ", ".join(f"{k} {v}" for k, v in shown.items())
        self.say(f"variant {number} of {count}: {what}")
        try:
            manifest = self.build(point.spec)
            metrics = self.metrics(point.spec)
            measured = self.bench(point.spec) if self.bench is not None else None
        except EdgespecError as e:
            why = "; ".join(d.detail or d.summary for d in e.diagnostics)
            return Row(number=number, settings=settings, shown=shown, why=why)
        return Row(
            number=number,
            settings=settings,
            shown=shown,
            artifact=manifest.digest,
            size=manifest.size,
            gzip=self._gzip(manifest),
            metrics=dict(metrics),
            cpu_p50_ms=measured.cpu_p50_ms if measured else None,
            cpu_p99_ms=measured.cpu_p99_ms if measured else None,
            memory=measured.memory if measured else None,
        )

    def _gzip(self, manifest: Manifest) -> int:
        paths = [self.blob(c.sha256) for f in manifest.files.values() for c in f.chunks]
        return sum(len(gzip.compress(p.read_bytes(), LEVEL, mtime=0)) for p in paths if p is not None)


def spec_digest(spec: EdgeModel, data_digest: str) -> str:
    """What a search is of."""
    return digest({"spec": spec.model_dump(mode="json"), "data": data_digest})


def record_path(root: Path, name: str) -> Path:
    return root / STATE_DIR / "tune" / f"{name}.json"


def keep(root: Path, found: TuneDocument) -> Path:
    """Writes the search whole or not at all; raises ES412 where the folder cannot be written."""
    return records.write(record_path(root, found.name), found)


def kept(root: Path, name: str, wanted: str) -> TuneDocument | None:
    """The last search, when it was of this very spec and data."""
    try:
        raw: Any = json.loads(record_path(root, name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if assets.schema_error("tune", raw) is not None:
        return None
    found = TuneDocument.model_validate(raw)
    return found if found.spec_digest == wanted else None


def settings_of(spec: EdgeModel, row: Row) -> tuple[Setting, ...]:
    """Where a row's values belong in the spec."""
    point = next(p for n, p in enumerate(grid(spec), start=1) if n == row.number)
    return point.settings
