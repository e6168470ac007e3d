"""head: a linear classifier on frozen embeddings.

Multinomial logistic regression, or one sigmoid a label, with an L2 penalty on the weights (not on the bias) as in
scikit-learn, on embeddings of length 1. The optimum is unique: it depends on no start and no seed. The seed shuffles
the folds of the cross-validation that the progress line reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from edgespec.build.stages.stage import Inputs, Result, Run, Stage, part
from edgespec.diagnostics import Checked

if TYPE_CHECKING:
    from edgespec.build.data import Example, Labelled

FOLDS: Final = 5


def _depends(inputs: Inputs) -> Inputs:
    task = part(inputs, "task")
    return {"head": inputs["head"], **{k: task[k] for k in ("labels", "multi_label", "max_tokens")}}


def _read(run: Run) -> Checked[tuple[Example, ...]]:
    from edgespec.build.data import read_examples

    _, train = run.head
    return read_examples(train.read(), train.name, run.spec.task, training=True)


def _check(run: Run) -> None:
    _read(run).unwrap()


def _examples(run: Run) -> list[Labelled]:
    from edgespec.build.data import Labelled

    checked = _read(run)
    found = [e for e in checked.unwrap() if isinstance(e, Labelled)]
    if warned := list(checked.diagnostics):
        more = f" (and {len(warned) - 1} more)" if len(warned) > 1 else ""
        run.say("head", f"{warned[0]}{more}")
    return found


def _run(run: Run) -> Result:
    import numpy as np

    from edgespec.build.embed import TextEncoder, normalise_rows, read_tokenizer
    from edgespec.build.logistic import Problem, cross_validate, fit, round_weights

    (head, train), task = run.head, run.classification
    examples = _examples(run)
    message = f"embedding {len(examples)} examples of {train.name}"
    run.say("head", message, 0.0)
    tokenizer = read_tokenizer(run.files.tokenizer.read(), task.max_tokens)
    encoder = TextEncoder(run.output("export", "model.onnx"), tokenizer)
    x = normalise_rows(encoder.run_all([e.text for e in examples], lambda done: run.say("head", message, done)))
    index = {label: i for i, label in enumerate(task.labels)}
    y = np.zeros((len(examples), len(index)))
    for row, example in enumerate(examples):
        y[row, [index[label] for label in example.labels]] = 1
    problem = Problem(x.astype(np.float64), y, head.l2, task.multi_label)
    kernel, bias = round_weights(*fit(problem))
    score = cross_validate(problem, folds=FOLDS, seed=head.seed, threshold=task.threshold)
    if score is not None:
        run.say("head", f"fitted on {len(examples)} examples; {FOLDS}-fold accuracy {score:.3f} in float32", 1.0)
    outputs = {"kernel": kernel.astype("<f4").tobytes(), "bias": bias.astype("<f4").tobytes()}
    return Result(outputs, {"shape": list(kernel.shape)})


STAGE = Stage("head", 1, ("export",), _depends, _run, _check, ("numpy", "onnxruntime", "tokenizers"))
