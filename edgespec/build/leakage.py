"""Whether a spec's quality data was trained on (edge)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from edgespec.build.data import Example, leaks, read_examples
from edgespec.diagnostics import Diagnostic, EdgespecError
from edgespec.spec.models import EdgeModel
from edgespec.spec.pipeline import FinetuneStage, HeadStage


def training_paths(spec: EdgeModel) -> Iterator[str]:
    """The files of the task's own examples that its pipeline learns from, each once."""
    stages = [stage.options for stage in spec.model.pipeline]
    fitted = [s for s in stages if isinstance(s, HeadStage | FinetuneStage)]
    yield from dict.fromkeys(
        s.train for s in fitted if not (isinstance(s, FinetuneStage) and s.objective == "messages")
    )


def leakage(spec: EdgeModel, root: Path, quality: Sequence[Example], path: str) -> list[Diagnostic]:
    """Warnings, one a file; a training file that cannot be read is another check's business."""
    found: list[Diagnostic] = []
    for name in training_paths(spec):
        try:
            training = read_examples((root / name).read_bytes(), name, spec.task).value
        except (OSError, EdgespecError):
            continue
        if training is not None:
            found += leaks(training, quality, name, path)
    return found
