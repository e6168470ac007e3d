"""gptq: the layers' matrices in 4 or 8 bits, rounded so that their answers to real texts change least
(https://arxiv.org/abs/2210.17323), by `swift export`. The result holds the tool's own packed integers."""

from __future__ import annotations

from typing import Final

from edgespec.build.problems import fail
from edgespec.build.quantising import (
    calibration_texts,
    check_shapes,
    compare,
    kind_for,
    need_calibration,
    options_of,
    refuse_options,
    repack,
    say_few,
    tensors_in,
    tool_arguments,
    write_packed,
)
from edgespec.build.stages.stage import Inputs, Job, Needs, Result, Stage, checkpoint_outputs, part
from edgespec.build.swift import GPTQ_BLOCKS, TOOLS, has_gpu, require, run_swift, start_log
from edgespec.build.swift_data import said, write_rows

BITS: Final = 4
"""Where the spec does not say."""
PARTS: Final = ("qweight", "qzeros", "scales", "g_idx")


def _depends(inputs: Inputs) -> Inputs:
    return {"max_tokens": part(inputs, "task")["max_tokens"]}


def _check_data(job: Job) -> None:
    refuse_options(job, bits=(4, 8), why_bits="")
    need_calibration(job)


def _check(job: Job) -> None:
    options = options_of(job)
    kind, _ = kind_for(job)
    check_shapes(job, kind, inputs=options.group_size, outputs=32)


def _run(job: Job) -> Result:
    from edgespec.build.quantised import gptq_float, gptq_version, groups_in_order, matrices

    require("swift", package="ms-swift")
    require("gptqmodel", "optimum", package="gptqmodel")
    options, gpu = options_of(job), has_gpu()
    bits = options.bits or BITS
    kind, config = kind_for(job)
    texts = calibration_texts(job)
    say_few(job, texts)
    start_log(job)
    with job.workspace() as folder:
        original = job.checkout(folder / "model")
        rows = write_rows(folder / "texts.jsonl", [{"messages": said(t)} for t in texts])
        arguments = tool_arguments(job, kind, config, original) | {
            "quant_method": "gptq", "quant_bits": bits, "group_size": options.group_size, "dataset": str(rows),
            "quant_n_samples": len(texts), "quant_batch_size": 1, "external_plugins": str(GPTQ_BLOCKS),
            "output_dir": str(folder / "out"), "dataset_num_proc": 1,
        }  # fmt: skip
        job.say(f"GPTQ to {bits} bits in groups of {options.group_size}, on {len(texts)} texts", 0.0)
        run_swift(
            job, "export", arguments, folder, gpu=gpu, bars=r"^Quantizing .*blocks", span=(0.0, 0.9), otherwise="ES573"
        )
        source, made = tensors_in(original), tensors_in(folder / "out")
        version = gptq_version(made, bits)
        tensors, modules = repack(source, made, matrices(made), PARTS)
        if not groups_in_order(tensors, options.group_size):
            raise fail("ES573", f"the tool put rows into other groups than of {options.group_size} in their order.")
        notes = compare(source, modules, bits, lambda name: gptq_float(tensors, name, bits, version))
        note = {
            "quant_method": "gptq", "bits": bits, "group_size": options.group_size, "sym": True, "desc_act": False,
            # Of the tensors, not what the tool says: version 1 stores zero points less one.
            "checkpoint_format": "gptq" if version == 1 else "gptq_v2",
        }  # fmt: skip
        packed = write_packed(folder / "packed", original, tensors, note)
        return Result(checkpoint_outputs(packed), {**note, **notes, "matrices": len(modules), "deterministic": not gpu})


STAGE = Stage(
    "gptq",
    1,
    _depends,
    _run,
    check=_check,
    check_data=_check_data,
    tools=(*TOOLS, "gptqmodel", "optimum"),
    makes_checkpoint=True,
    needs=Needs(cpus=2, memory=8 * 2**30),
)
