"""awq: a causal language model's matrices in 4 bits, its channels scaled so that those that matter lose least
(https://arxiv.org/abs/2306.00978), by gptqmodel. The result holds the tool's own packed integers."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Final

from edgespec.build.problems import fail
from edgespec.build.quantising import (
    calibration_texts,
    check_shapes,
    kind_for,
    need_calibration,
    options_of,
    refuse_options,
    say_few,
    tensors_in,
    write_packed,
)
from edgespec.build.stages.stage import Inputs, Job, Needs, Result, Stage, checkpoint_outputs, part
from edgespec.build.swift import has_gpu, require, run_logged, start_log
from edgespec.build.swift_models import is_language_model
from edgespec.build.weights_file import RawTensor

PARTS: Final = ("qweight", "qzeros", "scales")
MULTIPLE: Final = 64
"""gptqmodel searches its clipping in batches of so many outputs, and takes no rest."""


def _depends(inputs: Inputs) -> Inputs:
    return {"max_tokens": part(inputs, "task")["max_tokens"]}


def _check_data(job: Job) -> None:
    refuse_options(job, bits=(4,), why_bits="Take `method: gptq` or `int8` for 8.")
    need_calibration(job)


def _check(job: Job) -> None:
    options, source = options_of(job), job.spec.model.source
    kind, config = kind_for(job)
    if not kind.causal or not is_language_model(config):
        names = ", ".join(config.get("architectures") or ["no architectures"])
        raise fail(
            "ES572",
            f"awq quantises causal language models, and {source} is none (config.json: {names}). Take "
            "`method: gptq` with the same calibration, or `int4`.",
        )
    check_shapes(job, kind, inputs=options.group_size, outputs=MULTIPLE)


def _run(job: Job) -> Result:
    from edgespec.build.quantised import matrices

    require("gptqmodel", package="gptqmodel")
    options, gpu = options_of(job), has_gpu()
    texts = calibration_texts(job)
    say_few(job, texts)
    start_log(job)
    with job.workspace() as folder:
        original = job.checkout(folder / "model")
        task = {
            "model": str(original), "texts": texts, "group_size": options.group_size, "seed": 0,
            "max_length": job.spec.task.max_tokens, "output": str(folder / "out"),
        }  # fmt: skip
        (folder / "job.json").write_text(json.dumps(task, ensure_ascii=False), encoding="utf-8")
        job.say(f"AWQ to 4 bits in groups of {options.group_size}, on {len(texts)} texts", 0.0)
        command = [sys.executable, "-m", "edgespec.build.plugins.awq", str(folder / "job.json")]
        run_logged(job, command, folder, "gptqmodel", gpu=gpu, bars=r"Quantizing", span=(0.0, 0.9), otherwise="ES573")
        tensors = with_originals(tensors_in(original), tensors_in(folder / "out"))
        modules = matrices(tensors)
        if not modules:
            raise fail("ES573", "the tool packed nothing.")
        note = {
            "quant_method": "awq", "bits": 4, "group_size": options.group_size, "zero_point": True, "version": "gemm",
        }  # fmt: skip
        packed = write_packed(folder / "packed", original, tensors, note)
        return Result(checkpoint_outputs(packed), {**note, "matrices": len(modules), "deterministic": not gpu})


def with_originals(source: Mapping[str, RawTensor], made: Mapping[str, RawTensor]) -> dict[str, RawTensor]:
    """What the tool made, with the source's own numbers where it only rounded them to half precision: it scales norms,
    and leaves the embedding as it is."""
    import numpy as np

    from edgespec.build.quantised import array_of

    out = dict(made)
    for name in sorted(set(source) & set(made)):
        before, after = array_of(source[name]), array_of(made[name])
        if before.shape == after.shape and np.array_equal(before.astype(np.float16), after.astype(np.float16)):
            out[name] = source[name]
    return out


STAGE = Stage(
    "awq",
    1,
    _depends,
    _run,
    check=_check,
    check_data=_check_data,
    tools=("gptqmodel", "torch", "transformers"),
    makes_checkpoint=True,
    needs=Needs(cpus=2, memory=16 * 2**30),
)
