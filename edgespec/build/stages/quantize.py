"""quantize: the exported model in int8, or as it is: for onnxruntime."""

from __future__ import annotations

from edgespec.build.stages.stage import Inputs, Job, Result, Stage


def _run(job: Job) -> Result:
    import onnx

    from edgespec.build.graph import encode
    from edgespec.build.packed_graph import is_packed, without_eight_bits
    from edgespec.build.quantization import is_quantised, quantise_tables, to_int8

    raw, notes = job.output("export", "model.onnx"), job.notes("export")
    plain = job.spec.quantization.method == "none"
    model = onnx.load_from_string(raw)
    if is_packed(model):
        model = without_eight_bits(model)
        if not plain:
            job.say("int8, one scale a row of each table; the quantised matrices are taken as they are")
            quantise_tables(model)
        return Result({"model.onnx": encode(model)}, notes)
    if plain:
        return Result({"model.onnx": raw}, notes)
    if is_quantised(model):
        job.say("the model is quantised already; it is taken as it is")
        return Result({"model.onnx": raw}, notes)
    job.say("int8, one scale a column of each matrix and a row of each table")
    return Result({"model.onnx": encode(to_int8(model))}, notes)


def _depends(inputs: Inputs) -> Inputs:
    return {"method": inputs["quantization"]}


STAGE = Stage("quantize", 2, _depends, _run, tools=("numpy", "onnx", "onnxruntime"))
