"""compile: the exported model with its head as a program of the engine edge, its weights as small as the spec says."""

from __future__ import annotations

from edgespec.build.problems import fail
from edgespec.build.stages.joined import joined
from edgespec.build.stages.stage import Inputs, Job, Result, Stage
from edgespec.engine.version import VERSION


def _run(job: Job) -> Result:
    from edgespec.engine.compile import compile_graph

    quantization = job.spec.quantization
    job.say(f"writing the program, weights in {quantization.method}")
    model = joined(job, "export")
    compiled = compile_graph(model, quantization=quantization.rounding, group=quantization.group_size)
    if compiled.program is None:
        listed = "; ".join(str(u) for u in compiled.uncovered)
        raise fail("ES542", f"{job.spec.name}: the engine edge has nothing for {listed}. This is a bug in edgespec; "
                   "until it is mended, use `worker: {engine: onnxruntime}`.")  # fmt: skip
    return Result({"model.edge": compiled.program.encode()}, job.notes("export"))


def _depends(inputs: Inputs) -> Inputs:
    return {"quantization": inputs["quantization"], "program_format": VERSION}


STAGE = Stage("compile", 3, _depends, _run, tools=("numpy", "onnx"))
