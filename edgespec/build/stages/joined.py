"""A stage's graph with the head on it, where the pipeline fits one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgespec.build.stages.stage import Job

if TYPE_CHECKING:
    from onnx import ModelProto


def joined(job: Job, stage: str) -> ModelProto:
    import numpy as np
    import onnx

    from edgespec.build.graph import join_head

    model = onnx.load_from_string(job.output(stage, "model.onnx"))
    if "head" not in job.entries:
        return model
    kernel = np.frombuffer(job.output("head", "kernel"), "<f4").reshape(job.notes("head")["shape"])
    bias = np.frombuffer(job.output("head", "bias"), "<f4")
    return join_head(model, kernel, bias)
