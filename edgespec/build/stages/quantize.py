"""quantize: the exported model in int8, or as it is."""

from __future__ import annotations

from edgespec.build.stages.stage import Inputs, Job, Result, Stage


def _run(job: Job) -> Result:
    raw = job.output("export", "model.onnx")
    notes = job.notes("export")
    if job.spec.quantization.method == "none":
        return Result({"model.onnx": raw}, notes)
    import onnx

    from edgespec.build.graph import encode
    from edgespec.build.quantization import is_quantised, to_int8

    model = onnx.load_from_string(raw)
    if is_quantised(model):
        job.say("the model is quantised already; it is taken as it is")
        return Result({"model.onnx": raw}, notes)
    job.say("int8, one scale a column of each matrix and a row of each table")
    return Result({"model.onnx": encode(to_int8(model))}, notes)


def _depends(inputs: Inputs) -> Inputs:
    return {"method": inputs["quantization"]}


STAGE = Stage("quantize", 1, _depends, _run, tools=("numpy", "onnx", "onnxruntime"))
