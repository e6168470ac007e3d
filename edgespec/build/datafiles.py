"""A spec's data files side by side: what is in each, and whether its quality data was trained on (edge)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgespec.build.data import (
    AnyExample,
    Example,
    Unlabelled,
    describe,
    leaks,
    read_examples,
    read_partly_labelled,
    read_texts,
)
from edgespec.diagnostics import Diagnostic, EdgespecError
from edgespec.spec.models import EdgeModel, TextClassification
from edgespec.spec.pipeline import DistillStage, FinetuneStage, HeadStage


def leakage(spec: EdgeModel, root: Path, quality: Sequence[Example], path: str) -> list[Diagnostic]:
    """Warnings, one a file; a training file that cannot be read is another check's business."""
    found: list[Diagnostic] = []
    for name, labelled in training_files(spec).items():
        try:
            data = (root / name).read_bytes()
            training = _read(data, name, spec, labelled=labelled)
        except (OSError, EdgespecError):
            continue
        found += leaks(training, quality, name, path)
    return found


def described(spec: EdgeModel, root: Path) -> dict[str, tuple[str, ...]]:
    """What there is in each data file of the task's examples, in a line or two; files that cannot be read left out."""
    files = training_files(spec)
    if spec.quality is not None:
        files = {**files, spec.quality.data: True}
    found = {}
    for name, labelled in files.items():
        try:
            found[name] = describe(_read((root / name).read_bytes(), name, spec, labelled=labelled))
        except (OSError, EdgespecError):
            continue
    return found


def training_files(spec: EdgeModel) -> dict[str, bool]:
    """The files that the pipeline learns the task from, and whether their rows are the task's own examples; texts that
    are only distilled from need no labels."""
    found: dict[str, bool] = {}
    for stage in (stage.options for stage in spec.model.pipeline):
        if isinstance(stage, HeadStage) or (isinstance(stage, FinetuneStage) and stage.objective == "task"):
            found[stage.train] = True
        elif isinstance(stage, DistillStage) and stage.data is not None:
            found.setdefault(stage.data, False)
    return found


def _read(data: bytes, name: str, spec: EdgeModel, *, labelled: bool) -> Sequence[AnyExample]:
    if labelled:
        return read_examples(data, name, spec.task).unwrap()
    if isinstance(spec.task, TextClassification):
        return read_partly_labelled(data, name, spec.task).unwrap()
    return [Unlabelled(text, line=n) for n, text in enumerate(read_texts(data, name).unwrap(), start=1)]
