"""Measure a spec's quality data through a Worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgespec.build.data import read_examples
from edgespec.build.evaluate import measure
from edgespec.providers.cloudflare.deployment import Infer, Measure
from edgespec.spec.models import EdgeModel


def quality_measure(root: Path, specs: Mapping[str, EdgeModel]) -> Measure:
    def run(name: str, infer: Infer) -> dict[str, float]:
        spec = specs[name]
        assert spec.quality is not None  # noqa: S101  # only a deployment with a gate asks
        data = (root / spec.quality.data).read_bytes()
        examples = read_examples(data, spec.quality.data, spec.task).unwrap()

        def answers(texts: Sequence[str]) -> list[dict[str, Any]]:
            return infer(texts)

        return measure(examples, spec.task, answers)

    return run
