"""bnb: bitsandbytes' LLM.int8 by `swift export`: the layers' matrices as int8 rows with one scale each, the row's
largest weight over 127. No data is looked at."""

from __future__ import annotations

from typing import Final

from edgespec.build.quantising import (
    compare,
    kind_for,
    refuse_options,
    repack,
    tensors_in,
    tool_arguments,
    write_packed,
)
from edgespec.build.stages.stage import Inputs, Job, Needs, Result, Stage, checkpoint_outputs
from edgespec.build.swift import BNB_HEADS, TOOLS, has_gpu, require, run_swift, start_log
from edgespec.build.swift_models import refuse_pruned_heads

PARTS: Final = ("weight", "SCB")


def _depends(_: Inputs) -> Inputs:
    return {}


def _check_data(job: Job) -> None:
    refuse_options(
        job,
        "group_size",
        "calibration",
        bits=(8,),
        why_bits="Its 4 bits (nf4) are no integers with a scale: no engine at the edge multiplies by them. Take "
        "`method: int4`, `gptq` or `awq` for 4 bits.",
    )
    refuse_pruned_heads(job, "ES572")


def _check(job: Job) -> None:
    kind_for(job)


def _run(job: Job) -> Result:
    from edgespec.build.quantised import bnb_float, matrices

    require("swift", package="ms-swift")
    require("bitsandbytes", package="bitsandbytes")
    gpu = has_gpu()
    kind, config = kind_for(job)
    start_log(job)
    with job.workspace() as folder:
        original = job.checkout(folder / "model")
        arguments = tool_arguments(job, kind, config, original) | {
            "quant_method": "bnb", "quant_bits": 8, "external_plugins": str(BNB_HEADS),
            "output_dir": str(folder / "out"),
        }  # fmt: skip
        job.say("int8 rows by bitsandbytes", 0.0)
        run_swift(job, "export", arguments, folder, gpu=gpu, span=(0.0, 0.9), otherwise="ES573")
        source, made = tensors_in(original), tensors_in(folder / "out")
        tensors, modules = repack(source, made, matrices(made, ".SCB"), PARTS)
        notes = compare(source, modules, 8, lambda name: bnb_float(tensors, name))
        note = {"quant_method": "bitsandbytes", "load_in_8bit": True, "bits": 8}
        packed = write_packed(folder / "packed", original, tensors, note)
        return Result(checkpoint_outputs(packed), {**note, **notes, "matrices": len(modules), "deterministic": not gpu})


STAGE = Stage(
    "bnb",
    1,
    _depends,
    _run,
    check=_check,
    check_data=_check_data,
    tools=(*TOOLS, "bitsandbytes"),
    makes_checkpoint=True,
    needs=Needs(cpus=1, memory=8 * 2**30),
)
