"""finetune: the model trained on the task's own examples, by ms-swift: all weights, or an adapter that is merged after.

A classifier for text-classification, an encoder on pairs for embedding, a causal language model with
`objective: messages`. The result is a checkpoint in float32.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from edgespec.build import checkpoint
from edgespec.build.data import Pair
from edgespec.build.problems import fail
from edgespec.build.stages.stage import Inputs, Job, Needs, Result, Stage, checkpoint_outputs, part
from edgespec.build.swift import (
    BNB_HEADS,
    COMMON,
    TOOLS,
    Argument,
    device_arguments,
    has_gpu,
    last_checkpoint,
    require,
    run_swift,
    start_log,
)
from edgespec.build.swift_data import (
    Row,
    count_long,
    pair_loss,
    read_conversation_rows,
    read_task_rows,
    write_rows,
)
from edgespec.build.swift_model import complete
from edgespec.build.swift_models import (
    KINDS,
    Kind,
    is_language_model,
    is_quantised,
    kind_of,
    read_config,
    refuse_pruned_heads,
)
from edgespec.diagnostics import Checked
from edgespec.spec.models import Embedding, TextClassification
from edgespec.spec.pipeline import Adapter, FinetuneStage

RATES: Final = {"full": 5e-5, "lora": 1e-4, "qlora": 1e-4}
MERGE_FROM: Final = 0.85
"""Where the merge starts on the stage's bar."""
_POOLED: Final = {False: "cls_token", True: "lasttoken"}
"""What ms-swift makes an embedding of: the first token of an encoder, the last one of a decoder."""


Objective: TypeAlias = Literal["classes", "pairs", "messages"]


@dataclass(frozen=True, slots=True)
class Work:
    """What is trained, and how ms-swift calls it."""

    options: FinetuneStage
    kind: Kind
    objective: Objective
    max_tokens: int

    @property
    def adapter(self) -> bool:
        return self.options.method != "full"

    def model_arguments(self, folder: Path) -> dict[str, Argument]:
        """The model, as every command that loads it must be told."""
        pairs = self.objective == "pairs"
        found: dict[str, Argument] = {
            "model": str(folder),
            "model_type": (self.kind.embeds_as or "") if pairs else self.kind.model_type,
            "template": self.kind.template,
            "max_length": self.max_tokens,
        }
        if self.objective != "messages":
            found["use_chat_template"] = False
        if pairs:
            found["task_type"] = "embedding"
        return found


def _depends(inputs: Inputs) -> Inputs:
    task = part(inputs, "task")
    return {k: task[k] for k in ("type", "labels", "multi_label", "max_tokens") if k in task}


# --- before anything runs


def options_of(job: Job) -> FinetuneStage:
    if not isinstance(job.step.options, FinetuneStage):
        raise TypeError("the options are not finetune's")
    return job.step.options


def work_of(job: Job) -> Work:
    """Raises ES55x for a model that cannot be trained so."""
    options, source = options_of(job), job.spec.model.source
    config = read_config(job.files, source)
    work = Work(options, kind_of(config, source), objective_of(job), options.max_tokens or job.spec.task.max_tokens)
    if is_quantised(config):
        raise fail("ES551", f"{source} is quantised; training needs the float weights that it was made from.")
    if work.objective == "messages" and not is_language_model(config):
        raise fail(
            "ES557",
            f"`objective: messages` trains a causal language model, and {source} is none (config.json: "
            f"{', '.join(config.get('architectures') or ['no architectures'])}). Leave `objective` out to train on "
            "the task's examples, or take a model such as Qwen3ForCausalLM.",
        )
    if work.objective == "pairs" and work.kind.embeds_as is None:
        raise fail(
            "ES551",
            f"ms-swift does not train embeddings of {config.get('model_type')}; it does of "
            f"{', '.join(k for k, v in KINDS.items() if v.embeds_as)}. Start from one of these, make the model smaller "
            "with `distill`, which needs texts only, or leave `finetune` out.",
        )
    refuse_pruned_heads(job, "ES551")
    _check_positions(work, config, source)
    return work


def objective_of(job: Job) -> Objective:
    """What is trained, from the options and the task."""
    task = job.spec.task
    if options_of(job).objective == "messages":
        return "messages"
    if isinstance(task, TextClassification):
        return "classes"
    if isinstance(task, Embedding):
        return "pairs"
    raise fail(
        "ES557",
        f"nothing trains {task.type}: it ranks by embeddings. Fine-tune a model with an `embedding` task and name its "
        "checkpoint here, or leave `finetune` out.",
    )


def _check_positions(work: Work, config: Mapping[str, Any], source: str) -> None:
    positions = config.get("max_position_embeddings")
    if not isinstance(positions, int):
        return
    most = positions - 2 if config.get("model_type") in ("roberta", "xlm-roberta") else positions
    if work.max_tokens > most:
        raise fail("ES515", f"max_tokens is {work.max_tokens}, the positions of {source} end at {most}.")


def _check_data(job: Job) -> None:
    options = options_of(job)
    if options.method == "full" and options.lora is not None:
        raise fail("ES557", "`lora` is an option of `method: lora` and `qlora`; `full` trains all weights. Remove it.")
    if options.method != "qlora" and options.bits is not None:
        raise fail(
            "ES557",
            f"`bits` is an option of `method: qlora`; `{options.method}` trains on float weights. Remove it; what the "
            "model is quantised to afterwards is `quantization`.",
        )
    refuse_pruned_heads(job, "ES551")
    for field in ("train", "validation"):
        if field in job.step.data:
            _, checked = _rows(job, field)
            if field == "train" and objective_of(job) == "pairs":
                _pairs_loss(job, checked)


def _rows(job: Job, field: str) -> tuple[list[Row], Checked[Any]]:
    file = job.step.data[field]
    if objective_of(job) == "messages":
        return read_conversation_rows(file)
    task = job.spec.task
    if not isinstance(task, TextClassification | Embedding):
        raise TypeError(task.type)
    return read_task_rows(file, task, training=field == "train")


def _pairs_loss(job: Job, checked: Checked[Any]) -> str:
    return pair_loss([e for e in checked.unwrap() if isinstance(e, Pair)], job.step.data["train"].name)


# --- the run


def training_arguments(work: Work, *, gpu: bool) -> dict[str, Argument]:
    """What of the options the tool is told, under its names; neither model nor data."""
    options = work.options
    found: dict[str, Argument] = {
        **COMMON,
        **device_arguments(gpu=gpu),
        "tuner_type": "full" if options.method == "full" else "lora",
        "num_train_epochs": options.epochs,
        "learning_rate": options.learning_rate or RATES[options.method],
        "per_device_train_batch_size": options.batch_size,
        "per_device_eval_batch_size": options.batch_size,
        "gradient_checkpointing": gpu,
        "seed": options.seed,
        "data_seed": options.seed,
    }
    if work.adapter:
        lora = options.lora or Adapter()
        found |= {"lora_rank": lora.rank, "lora_alpha": lora.alpha, "lora_dropout": lora.dropout}
    if options.method == "qlora":
        found |= {"quant_method": "bnb", "quant_bits": options.bits or 4, "bnb_4bit_compute_dtype": "float32"}
        found["external_plugins"] = str(BNB_HEADS)
    return found


def class_arguments(task: TextClassification) -> dict[str, Argument]:
    kind = "multi" if task.multi_label else "single"
    return {
        "task_type": "seq_cls",
        "num_labels": len(task.labels),
        "problem_type": f"{kind}_label_classification",
    }


def _run(job: Job) -> Result:
    require("swift", package="ms-swift")
    work = work_of(job)
    if work.options.method == "qlora":
        require("bitsandbytes", package="bitsandbytes")
    gpu = has_gpu()
    start_log(job)
    with job.workspace() as folder:
        source = job.checkout(folder / "model")
        original = {n: (source / n).read_bytes() for n in checkpoint.KEPT if (source / n).is_file()}
        arguments = work.model_arguments(source)
        labels = job.task.labels if work.objective == "classes" else None
        if not complete(source, labels=labels, seed=work.options.seed):
            job.say("the model's own classifier has other labels: a new one is trained")
        if labels is not None:
            arguments |= class_arguments(job.task)
        arguments |= training_arguments(work, gpu=gpu) | _data_arguments(job, work, folder)
        arguments["output_dir"] = str(folder / "out")
        job.say(f"training by ms-swift ({work.options.method}), on the {'GPU' if gpu else 'CPU'}", 0.0)
        end = MERGE_FROM if work.adapter else 1.0
        reader = run_swift(job, "sft", arguments, folder, gpu=gpu, span=(0.0, end))
        made = last_checkpoint(folder / "out")
        if work.adapter:
            made = _merge(job, work, made, source, folder, gpu=gpu)
        _tidy(job, work, made, original)
        measures = {k: round(v, 6) for k, v in sorted(reader.measures.items())}
        notes = {"tool": "ms-swift", "method": work.options.method, "deterministic": not gpu, "measures": measures}
        return Result(checkpoint_outputs(made), notes)


def _data_arguments(job: Job, work: Work, folder: Path) -> dict[str, Argument]:
    rows, checked = _rows(job, "train")
    for warned in list(checked.diagnostics)[:3]:
        job.say(str(warned))
    found: dict[str, Argument] = {"dataset": str(write_rows(folder / "train.jsonl", rows)), "eval_strategy": "no"}
    if "validation" in job.step.data:
        kept, _ = _rows(job, "validation")
        found |= {"val_dataset": str(write_rows(folder / "validation.jsonl", kept)), "eval_strategy": "epoch"}
    if work.objective == "pairs":
        found["loss_type"] = _pairs_loss(job, checked)
    if work.objective == "messages":
        # Cut at the right, a conversation would lose the answer, and with it all that there is to learn.
        found["truncation_strategy"] = "left"
        _say_long(job, rows, work.max_tokens)
    return found


def _say_long(job: Job, rows: Sequence[Row], most: int) -> None:
    """Tells how many conversations are cut."""
    if long := count_long(job.files, rows, most):
        job.say(
            f"{long} of {len(rows)} conversations are longer than max_tokens ({most}): they lose their beginnings, the "
            "answers stay"
        )


def _merge(job: Job, work: Work, adapter: Path, source: Path, folder: Path, *, gpu: bool) -> Path:
    """The adapter added to the float weights. The tool is not shown the run's own arguments: with those of a QLoRA
    run it would quantise what it has merged."""
    job.say("merging the adapter into the float weights", MERGE_FROM)
    arguments = work.model_arguments(source)
    if work.objective == "classes":
        arguments |= class_arguments(job.task)
    arguments |= {
        "adapters": str(adapter), "load_args": False, "merge_lora": True, "torch_dtype": "float32",
        "output_dir": str(folder / "merged"), "seed": work.options.seed,
    }  # fmt: skip
    run_swift(job, "export", arguments, folder, gpu=gpu, span=(MERGE_FROM, 1.0))
    return folder / "merged"


def _tidy(job: Job, work: Work, made: Path, original: Mapping[str, bytes]) -> None:
    if work.objective == "classes":
        config = checkpoint.classifier_config(made, job.task.labels, multi_label=job.task.multi_label)
    else:
        config = checkpoint.plain_config(made)
    files = dict(original)
    if work.objective == "pairs":
        files["1_Pooling/config.json"] = _pooling(work, config)
    checkpoint.tidy_checkpoint(made, files, config)


def _pooling(work: Work, config: Mapping[str, Any]) -> bytes:
    mode = _POOLED[work.kind.causal]
    every = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
    data = {"word_embedding_dimension": config.get("hidden_size"), **{f"pooling_mode_{m}": m == mode for m in every}}
    return (json.dumps(data, indent=2) + "\n").encode()


def _check(job: Job) -> None:
    work_of(job)


STAGE = Stage(
    "finetune",
    1,
    _depends,
    _run,
    check=_check,
    check_data=_check_data,
    tools=(*TOOLS, "bitsandbytes"),
    makes_checkpoint=True,
    needs=Needs(cpus=1, memory=8 * 2**30),
)
