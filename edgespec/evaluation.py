"""An evaluation as a document: what was measured, of which variants of a model, on which data. Pure.

`edgespec eval --json` prints it; its JSON Schema is schemas/evaluation.schema.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

FORMAT: Final = "edgespec.evaluation/v1"
TEACHER: Final = "teacher"
STUDENT: Final = "student"
DEPLOYED: Final = "deployed"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Data(_Strict):
    path: str
    sha256: str
    """Of its text with LF line ends; of its bytes for Parquet."""
    examples: int
    described: tuple[str, ...]
    """What there is, in a line or two."""


class LabelResult(_Strict):
    label: str
    precision: float
    recall: float
    f1: float
    support: int
    """Examples that expect the label."""


class BinResult(_Strict):
    """Answers whose confidence is in (low, high]."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


class CalibrationResult(_Strict):
    ece: float
    """Expected calibration error, 15 bins of equal width."""
    brier: float
    bins: tuple[BinResult, ...]


class Slice(_Strict):
    """The metrics of a part of the examples."""

    name: str
    """A language, or a range of tokens."""
    examples: int
    metrics: dict[str, float]


class Mistake(_Strict):
    """An example that was answered wrongly."""

    line: int
    """In the data file: a line, or a row of a Parquet file."""
    text: str
    expected: tuple[str, ...]
    given: tuple[str, ...]
    score: float
    """Of what was given, or of the surest wrong label."""


class VariantResult(_Strict):
    variant: Literal["teacher", "student", "deployed"]
    what: str
    """How it is made, in words."""
    artifact: str
    """The manifest's SHA-256."""
    size: int
    """Bytes of the artifact."""
    computed_by: str
    """What ran the model: the edge engine in Node, its numpy reference, onnxruntime, or workerd."""
    metrics: dict[str, float]
    labels: tuple[LabelResult, ...] = ()
    """Of text-classification, in the task's order."""
    confusion: tuple[tuple[int, ...], ...] = ()
    """Of one label an example: rows are what was expected, columns what was given, in the task's order."""
    calibration: CalibrationResult | None = None
    by_language: tuple[Slice, ...] = ()
    by_length: tuple[Slice, ...] = ()
    """By tokens of the text as the deployed model counts them."""
    mistakes: tuple[Mistake, ...] = ()
    """The surest ones first."""


class LeftOut(_Strict):
    variant: str
    why: str


class EvaluationDocument(_Strict):
    format: Literal["edgespec.evaluation/v1"]
    name: str
    """The spec's."""
    task: str
    edgespec: str
    data: Data
    variants: tuple[VariantResult, ...] = Field(min_length=1)
    """The teacher first, what is deployed last."""
    gates: dict[str, dict[str, float]] = Field(default_factory=dict)
    """`quality.metrics` as the spec has them; empty for other data than `quality.data`."""
    left_out: tuple[LeftOut, ...] = ()

    def find(self, variant: str) -> VariantResult | None:
        return next((v for v in self.variants if v.variant == variant), None)


def floor_of(gate: Mapping[str, Any], teacher: float | None) -> float:
    """The least value that passes a gate: its minimum, or what the teacher has less the allowed drop, if that is more.

    Raises ValueError when a drop is to be measured and there is no teacher's value.
    """
    floors = [] if gate.get("min") is None else [float(gate["min"])]
    if gate.get("max_drop") is not None:
        if teacher is None:
            raise ValueError("a drop needs the teacher's value")
        floors.append(round(teacher - float(gate["max_drop"]), 6))
    return max(floors)
