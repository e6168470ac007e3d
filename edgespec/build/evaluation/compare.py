"""Measure a spec's model and what it is compared with on one data file (edge).

Answers are kept in the build cache under the artifact, the data, what answered and the code's version: a model is
asked once about the same examples. The metrics are computed of them every time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from edgespec import __version__
from edgespec.artifact import Manifest
from edgespec.build.cache import Cache, Entry, InputFile
from edgespec.build.data import Example, describe, read_examples
from edgespec.build.evaluate import Answer, Infer, answers_to, score
from edgespec.build.evaluation import result
from edgespec.build.evaluation.variants import Variant, teacher_of, variants_of
from edgespec.build.events import BuildEvent, Progress
from edgespec.build.pipeline import Pipeline
from edgespec.build.problems import fail
from edgespec.diagnostics import EdgespecError
from edgespec.evaluation import FORMAT, Data, EvaluationDocument, LeftOut, VariantResult
from edgespec.spec.models import EdgeModel
from edgespec.values import canonical_json, digest

ANSWERS_VERSION: Final = 1
"""Raised whenever the same model would be answered for in another way."""
STAGE: Final = "evaluate"
"""Where the cache keeps answers."""

Say = Callable[[str], None]


class Answering(Protocol):
    """Who answers for an artifact."""

    version: str
    """Part of the cache's key: another one may give other answers."""

    def open(
        self, spec: EdgeModel, manifest: Manifest, pipeline: Pipeline
    ) -> AbstractContextManager[tuple[str, Infer]]:
        """Its name, for people, and its `infer`, for as long as the context lasts."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One variant's answers to the examples."""

    manifest: Manifest
    computed_by: str
    answers: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Evaluator:
    root: Path
    cache: Cache
    pipeline: Callable[[Progress], Pipeline]
    """Builds the variants."""
    answering: Answering
    say: Say

    def evaluate(self, spec: EdgeModel, path: str, *, compare: bool = True) -> EvaluationDocument:
        """`path` is the data file, relative to the project. With `compare` the teacher and the float32 student too;
        one that cannot be built or asked is left out with the reason, but for the deployed one, which raises."""
        data = self.data(path)
        examples = read_examples(data.read(), path, spec.task).unwrap()
        variants = variants_of(spec) if compare else (Variant("deployed", spec, variants_of(spec)[-1].what),)
        found: dict[str, tuple[Variant, Measured]] = {}
        left_out: list[LeftOut] = []
        for variant in variants:
            try:
                found[variant.name] = variant, self.measure(variant.spec, data, examples, variant.name)
            except EdgespecError as why:
                if variant.name == "deployed":
                    raise
                reasons = "; ".join(d.detail or d.summary for d in why.diagnostics)
                left_out.append(LeftOut(variant=variant.name, why=reasons))
        tokens = [int(a.get("tokens", 0)) for a in found["deployed"][1].answers]
        described = Data(path=path, sha256=data.sha256, examples=len(examples), described=describe(examples))
        return EvaluationDocument(
            format=FORMAT,
            name=spec.name,
            task=spec.task.type,
            edgespec=__version__,
            data=described,
            variants=tuple(_result(v, m, examples, tokens) for v, m in found.values()),
            gates=gates_of(spec) if spec.quality is not None and path == spec.quality.data else {},
            left_out=tuple(left_out),
        )

    def teacher(self, spec: EdgeModel, path: str) -> Mapping[str, float]:
        """The metrics of the model before compression, on the same data."""
        data = self.data(path)
        examples = read_examples(data.read(), path, spec.task).unwrap()
        return score(examples, self.measure(teacher_of(spec), data, examples, "teacher").answers, spec.task)

    def data(self, path: str) -> InputFile:
        try:
            return self.cache.data_file(self.root, path)
        except OSError as why:
            detail = f"{path}: {why.strerror or why}. Paths are relative to edgespec.yaml."
            raise fail("ES580", detail) from None

    def measure(self, spec: EdgeModel, data: InputFile, examples: Sequence[Example], name: str) -> Measured:
        """Builds the model where it is not in the cache, and asks it where its answers are not."""

        def tell(event: BuildEvent) -> None:
            if not event.cached:
                self.say(f"{name} of {spec.name}: {event.stage}: {event.message}")

        pipeline = self.pipeline(tell)
        manifest = pipeline.build(spec)
        key = digest(
            {
                "artifact": manifest.digest,
                "data": data.sha256,
                "answering": self.answering.version,
                "version": ANSWERS_VERSION,
            }
        )
        known = self._known(key)
        if known is not None:
            return Measured(manifest, *known)
        self.say(f"{name} of {spec.name}: answering {len(examples)} examples of {data.name}")
        with self.answering.open(spec, manifest, pipeline) as (computed_by, infer):
            answers = answers_to(examples, infer)
        _check(answers, name)
        blob = self.cache.put(canonical_json([dict(a) for a in answers]).encode())
        self.cache.commit(STAGE, key, Entry({"answers.json": blob}, {"computed_by": computed_by}))
        return Measured(manifest, computed_by, tuple(answers))

    def _known(self, key: str) -> tuple[str, tuple[Answer, ...]] | None:
        entry = self.cache.entry(STAGE, key)
        raw = self.cache.read(entry.outputs["answers.json"]) if entry is not None else None
        if entry is None or raw is None:
            return None
        answers: list[dict[str, Any]] = json.loads(raw)
        return str(entry.notes["computed_by"]), tuple(answers)


def gates_of(spec: EdgeModel) -> dict[str, dict[str, float]]:
    """`quality.metrics` with what each of them asks."""
    metrics = spec.quality.metrics if spec.quality is not None else {}
    return {name: t.model_dump(exclude_none=True) for name, t in sorted(metrics.items())}


def _check(answers: Sequence[Answer], name: str) -> None:
    """A model that overflowed answers with numbers that are none; nothing can be measured of them."""
    try:
        canonical_json([dict(a) for a in answers])
    except ValueError:
        detail = f"the {name} gave numbers that are not finite. Its weights are broken, or training diverged."
        raise fail("ES581", detail) from None


def _result(variant: Variant, measured: Measured, examples: Sequence[Example], tokens: Sequence[int]) -> VariantResult:
    task, answers = variant.spec.task, measured.answers
    return VariantResult(
        variant=variant.name,
        what=variant.what,
        artifact=measured.manifest.digest,
        size=measured.manifest.size,
        computed_by=measured.computed_by,
        metrics=score(examples, answers, task),
        labels=result.labels_of(examples, answers, task),
        confusion=result.confusion_of(examples, answers, task),
        calibration=result.calibration_of(examples, answers, task),
        by_language=result.languages_of(examples, answers, task),
        by_length=result.lengths_of(examples, answers, task, tokens),
        mistakes=result.mistakes_of(examples, answers, task),
    )
