from __future__ import annotations

from typing import Any

import pytest

from edgespec.build.evaluation.variants import teacher_of, variants_of
from edgespec.spec.models import EdgeModel
from tests.tiny import tiny_spec

FINETUNE = {"finetune": {"train": "data/t.jsonl"}}
DISTILL = {"distill": {"data": "data/t.jsonl", "student": {"layers": 1}}}
PRUNE = {"prune": {"layers": [0]}}
HEAD = {"head": {"train": "data/t.jsonl"}}


def spec(*stages: Any, method: str = "int8") -> EdgeModel:
    model = {"source": "./models/tiny", "pipeline": list(stages)}
    return EdgeModel.model_validate(tiny_spec(model=model, quantization={"method": method}))


@pytest.mark.parametrize(
    ("stages", "kept"),
    [
        ((FINETUNE, DISTILL, PRUNE), ["finetune"]),
        ((FINETUNE, PRUNE, FINETUNE, HEAD), ["finetune", "head"]),
        ((DISTILL, HEAD), ["head"]),
        ((PRUNE,), []),
        ((FINETUNE,), ["finetune"]),
        ((HEAD,), ["head"]),
    ],
)
def test_the_teacher_is_what_was_there_before_compression(stages: Any, kept: list[str]) -> None:
    teacher = teacher_of(spec(*stages))
    assert [s.kind for s in teacher.model.pipeline] == kept
    assert teacher.quantization.method == "none"
    assert teacher.task == spec(*stages).task


def test_variants_are_each_a_model_of_its_own() -> None:
    def names(*stages: Any, method: str) -> list[str]:
        return [v.name for v in variants_of(spec(*stages, method=method))]

    assert names(FINETUNE, DISTILL, method="int8") == ["teacher", "student", "deployed"]
    assert names(FINETUNE, DISTILL, method="none") == ["teacher", "deployed"]
    assert names(HEAD, method="int4") == ["teacher", "deployed"]
    assert names(HEAD, method="none") == ["deployed"]
    assert variants_of(spec(FINETUNE, DISTILL))[1].what == "./models/tiny, finetune, distill, float32"
