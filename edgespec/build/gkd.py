"""Distillation of causal language models by ms-swift: generalised knowledge distillation (GKD,
https://arxiv.org/abs/2306.13649) from the model that comes in, the teacher, into a smaller one of the same vocabulary.

The student learns the teacher's whole distribution of each next token: over the answers of the data, and, half of the
time, over answers that it writes itself. Texts without answers leave only the latter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from edgespec.build import checkpoint
from edgespec.build.problems import fail
from edgespec.build.sources import ModelFiles
from edgespec.build.stages.stage import Job, Result, checkpoint_outputs
from edgespec.build.swift import COMMON, Argument, device_arguments, has_gpu, last_checkpoint, run_swift, start_log
from edgespec.build.swift import require as require_package
from edgespec.build.swift_data import Row, read_conversation_rows, read_text_rows, write_rows
from edgespec.build.swift_models import Kind, is_language_model, is_quantised, kind_of, read_config, shapes_of
from edgespec.diagnostics import EdgespecError
from edgespec.spec.pipeline import DistillStage

RATE: Final = 1e-4
ON_POLICY: Final = 0.5
"""How often the student writes the answer that it is taught on, where the data has answers."""
ANSWER: Final = 64
"""Tokens at most that the student writes."""
_COLUMNS: Final = frozenset({"ES522", "ES523"})
"""The reader's codes for a file that has other columns than `messages`."""


def check_data(job: Job) -> None:
    """Raises ES52x and ES557, from options and data."""
    options = _options(job)
    if options.alpha == 0:
        raise fail("ES557", "`alpha: 0` leaves the teacher out; that is `finetune` with `objective: messages`.")
    if options.source is None:
        raise fail(
            "ES557",
            "`method: gkd` needs a student: a smaller causal language model of the teacher's vocabulary, as "
            "`source: ./models/small`, written like `model.source`.",
        )
    if "data" not in job.step.data:
        raise fail("ES557", '`method: gkd` needs `data`: a file of {"messages": [...]} or of texts to answer.')
    _rows(job)


def check(job: Job) -> None:
    """Raises ES551 and ES557, from the two models."""
    kinds_of(job)


def kinds_of(job: Job) -> tuple[Kind, Kind]:
    """Teacher's and student's kinds. Raises for two that cannot learn from one another."""
    files = job.step.models["source"]
    teacher_name, student_name = job.spec.model.source, str(_options(job).source)
    teacher, student = read_config(job.files, teacher_name), read_config(files, student_name)
    for config, name in ((teacher, teacher_name), (student, student_name)):
        if not is_language_model(config) or is_quantised(config):
            raise fail(
                "ES557",
                f"`method: gkd` distils one causal language model in float into another; {name} is none (config.json: "
                f"{', '.join(config.get('architectures') or ['no architectures'])}). Encoders: `method: encoder`.",
            )
    found = kind_of(teacher, teacher_name), kind_of(student, student_name)
    own, other = read_vocabulary(files), read_vocabulary(job.files)
    if own != other or student.get("vocab_size") != teacher.get("vocab_size"):
        raise fail(
            "ES557",
            f"{student_name} ({len(own):,} tokens, {student.get('vocab_size')} outputs) and {teacher_name} "
            f"({len(other):,} tokens, {teacher.get('vocab_size')} outputs) differ in their vocabularies; GKD compares "
            "the distributions of the next token, one by one. Take a student of the teacher's family.",
        )
    small, large = (
        sum(math.prod(shape) for shape in shapes_of(f, name).values())
        for f, name in ((files, student_name), (job.files, teacher_name))
    )
    if small >= large:
        raise fail(
            "ES557",
            f"the student {student_name} has {small:,} parameters, its teacher {large:,}: distillation makes a model "
            "smaller. Are the two swapped?",
        )
    return found


def read_vocabulary(files: ModelFiles) -> Mapping[str, int]:
    """Tokens with their ids, added ones too."""
    from edgespec.build.embed import read_tokenizer

    found: Mapping[str, int] = read_tokenizer(files.tokenizer.read(), None).get_vocab()
    return found


def _options(job: Job) -> DistillStage:
    if not isinstance(job.step.options, DistillStage):
        raise TypeError("the options are not distill's")
    return job.step.options


def _rows(job: Job) -> tuple[list[Row], bool]:
    """The data, and whether it has answers."""
    file = job.step.data["data"]
    try:
        return read_conversation_rows(file)[0], True
    except EdgespecError as why:
        if not {d.code for d in why.diagnostics} & _COLUMNS:
            raise
    return read_text_rows(file, 10**9), False


def distil(job: Job) -> Result:
    """Trains the student and gives its checkpoint. Raises ES55x."""
    require_package("swift", package="ms-swift")
    require_package("msgspec", package="msgspec")
    options, (teacher, student), gpu = _options(job), kinds_of(job), has_gpu()
    rows, answered = _rows(job)
    start_log(job)
    with job.workspace() as folder:
        small = _checkout(job.step.models["source"], folder / "student")
        original = {n: (small / n).read_bytes() for n in checkpoint.KEPT if (small / n).is_file()}
        arguments = training_arguments(options, gpu=gpu, answered=answered) | {
            "model": str(small), "model_type": student.model_type, "template": student.template,
            "teacher_model": str(job.checkout(folder / "teacher")), "teacher_model_type": teacher.model_type,
            "max_length": options.max_tokens or job.spec.task.max_tokens,
            "dataset": str(write_rows(folder / "data.jsonl", rows)), "output_dir": str(folder / "out"),
            # The tool leaves out a batch that is not full, and would be left with none.
            "per_device_train_batch_size": min(options.batch_size, len(rows)),
        }  # fmt: skip
        job.say(f"GKD by ms-swift on {len(rows)} {'conversations' if answered else 'texts'}", 0.0)
        reader = run_swift(job, "rlhf", arguments, folder, gpu=gpu)
        made = last_checkpoint(folder / "out")
        checkpoint.tidy_checkpoint(made, original, checkpoint.plain_config(made))
        measures = {k: round(v, 6) for k, v in sorted(reader.measures.items())}
        notes = {"tool": "ms-swift", "method": "gkd", "deterministic": not gpu, "measures": measures}
        return Result(checkpoint_outputs(made), notes)


def training_arguments(options: DistillStage, *, gpu: bool, answered: bool) -> dict[str, Argument]:
    """What of the options the tool is told. `alpha` is the teacher's part of the loss; the tool takes the labels'
    weight against a teacher that counts once."""
    return {
        **COMMON,
        **device_arguments(gpu=gpu),
        "rlhf_type": "gkd",
        "truncation_strategy": "left",  # cut at the right, a conversation would lose its answer
        "tuner_type": "full",
        "lmbda": ON_POLICY if answered else 1.0,
        "sft_alpha": (1 - options.alpha) / options.alpha if answered else 0.0,
        "temperature": options.temperature,
        "max_completion_length": ANSWER,
        "num_train_epochs": options.epochs,
        "learning_rate": options.learning_rate or RATE,
        "per_device_train_batch_size": options.batch_size,
        "gradient_checkpointing": gpu,
        "eval_strategy": "no",
        "seed": options.seed,
        "data_seed": options.seed,
    }


def _checkout(files: ModelFiles, folder: Path) -> Path:
    for file in files.all:
        target = folder / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read())
    return folder


__all__ = ["check", "check_data", "distil"]
