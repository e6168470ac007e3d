"""Measure a spec's quality data through a Worker, and its teacher where a gate asks how much was lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from edgespec.providers.cloudflare.deployment import Infer, Measure, Measured
from edgespec.spec.models import EdgeModel

Teacher = Callable[[EdgeModel], Mapping[str, float]]
"""The metrics of a spec's model before compression, on its quality data."""


def quality_measure(root: Path, specs: Mapping[str, EdgeModel], teacher: Teacher) -> Measure:
    def run(name: str, infer: Infer) -> Measured:
        from edgespec.build.data import read_examples
        from edgespec.build.evaluate import measure

        spec = specs[name]
        assert spec.quality is not None  # noqa: S101  # only a deployment with a gate asks
        data = (root / spec.quality.data).read_bytes()
        examples = read_examples(data, spec.quality.data, spec.task).unwrap()

        def answers(texts: Sequence[str]) -> list[dict[str, Any]]:
            return infer(texts)

        metrics = measure(examples, spec.task, answers)
        compared = any(t.max_drop is not None for t in spec.quality.metrics.values())
        return Measured(metrics, teacher(spec) if compared else None)

    return run
