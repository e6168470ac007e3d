"""head: a linear classifier on frozen embeddings.

Multinomial logistic regression, or one sigmoid a label, with an L2 penalty on the weights (not on the bias) as in
scikit-learn, on embeddings of length 1. The optimum is unique: it depends on no start and no seed. The seed shuffles
the folds of the cross-validation that the progress line reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from edgespec.build.stages.stage import Inputs, Job, Result, Stage, part
from edgespec.diagnostics import Checked

if TYPE_CHECKING:
    from edgespec.build.data import Example, Labelled

FOLDS: Final = 5


def _depends(inputs: Inputs) -> Inputs:
    task = part(inputs, "task")
    return {k: task[k] for k in ("labels", "multi_label", "max_tokens")}


def _read(job: Job) -> Checked[tuple[Example, ...]]:
    from edgespec.build.data import read_examples

    train = job.step.data["train"]
    return read_examples(train.read(), train.name, job.spec.task, training=True)


def _check(job: Job) -> None:
    _read(job).unwrap()


def _examples(job: Job) -> list[Labelled]:
    from edgespec.build.data import Labelled

    checked = _read(job)
    found = [e for e in checked.unwrap() if isinstance(e, Labelled)]
    if warned := list(checked.diagnostics):
        more = f" (and {len(warned) - 1} more)" if len(warned) > 1 else ""
        job.say(f"{warned[0]}{more}")
    return found


def _run(job: Job) -> Result:
    import numpy as np

    from edgespec.build.embed import TextEncoder, normalise_rows, read_tokenizer
    from edgespec.build.logistic import Problem, cross_validate, fit, round_weights

    head, train, task = job.step.options, job.step.data["train"], job.task
    examples = _examples(job)
    message = f"embedding {len(examples)} examples of {train.name}"
    job.say(message, 0.0)
    tokenizer = read_tokenizer(job.files.tokenizer.read(), task.max_tokens)
    encoder = TextEncoder(job.output("export", "model.onnx"), tokenizer)
    x = normalise_rows(encoder.run_all([e.text for e in examples], lambda done: job.say(message, done)))
    index = {label: i for i, label in enumerate(task.labels)}
    y = np.zeros((len(examples), len(index)))
    for row, example in enumerate(examples):
        y[row, [index[label] for label in example.labels]] = 1
    problem = Problem(x.astype(np.float64), y, head.l2, task.multi_label)
    kernel, bias = round_weights(*fit(problem))
    score = cross_validate(problem, folds=FOLDS, seed=head.seed, threshold=task.threshold)
    if score is not None:
        job.say(f"fitted on {len(examples)} examples; {FOLDS}-fold accuracy {score:.3f} in float32", 1.0)
    outputs = {"kernel": kernel.astype("<f4").tobytes(), "bias": bias.astype("<f4").tobytes()}
    return Result(outputs, {"shape": list(kernel.shape)})


STAGE = Stage("head", 2, _depends, _run, check_data=_check, tools=("numpy", "onnxruntime", "tokenizers"))
