"""Why a stage runs, told from the inputs of what is deployed."""

from __future__ import annotations

from typing import Any

import pytest

from edgespec.build.reasons import why
from edgespec.build.stages import head
from edgespec.build.stages.stage import Step

STEP = Step("head", head.STAGE, ("export",), inputs={})
TASK = {"labels": ["a", "b"], "multi_label": False, "max_tokens": 64}
OPTIONS = {"train": "a.jsonl", "train_digest": "1", "l2": 1.0}


def inputs(
    options: dict[str, Any] | None = None, task: dict[str, Any] | None = None, numpy: str = "2.0"
) -> dict[str, Any]:
    pipeline = {} if options is None else {"1-head": options}
    return {"pipeline": pipeline, "task": task or TASK, "tools": {"numpy": numpy, "onnx": "1"}}


@pytest.mark.parametrize(
    ("now", "before", "said"),
    [
        (inputs(OPTIONS), inputs(OPTIONS), ""),
        (inputs(OPTIONS), None, ""),
        (inputs(OPTIONS), inputs(None), "new"),
        (inputs(OPTIONS), {**inputs({**OPTIONS, "l2": 0.5})}, "l2 changed"),
        (inputs({**OPTIONS, "train": "b.jsonl", "train_digest": "2"}), inputs(OPTIONS), "train changed"),
        (inputs(OPTIONS, {**TASK, "max_tokens": 8}), inputs(OPTIONS), "max_tokens changed"),
        (inputs(OPTIONS, numpy="2.1"), inputs(OPTIONS), "numpy upgraded"),
        (inputs({**OPTIONS, "l2": 2.0}, numpy="2.1"), inputs(OPTIONS), "l2 changed, numpy upgraded"),
        (inputs(OPTIONS), {"pipeline": {"1-head": OPTIONS}}, ""),
    ],
)
def test_what_changed_is_named_once(now: Any, before: Any, said: str) -> None:
    assert why(STEP, "1-head", now, before) == said
