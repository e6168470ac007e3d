"""quantize: the exported model in int8, or as it is."""

from __future__ import annotations

from edgespec.build.stages.stage import Inputs, Result, Run, Stage


def _run(run: Run) -> Result:
    raw = run.output("export", "model.onnx")
    notes = run.notes("export")
    if run.spec.quantization.method == "none":
        return Result({"model.onnx": raw}, notes)
    import onnx

    from edgespec.build.graph import encode
    from edgespec.build.quantization import is_quantised, to_int8

    model = onnx.load_from_string(raw)
    if is_quantised(model):
        run.say("quantize", "the model is quantised already; it is taken as it is")
        return Result({"model.onnx": raw}, notes)
    run.say("quantize", "int8, one scale a column of each matrix and a row of each table")
    return Result({"model.onnx": encode(to_int8(model))}, notes)


def _depends(inputs: Inputs) -> Inputs:
    return {"method": inputs["quantization"]}


STAGE = Stage("quantize", 1, ("export",), _depends, _run, tools=("numpy", "onnx", "onnxruntime"))
