"""head: a linear classifier on frozen embeddings.

Multinomial logistic regression, or one sigmoid a label, with an L2 penalty on the weights (not on the bias) as in
scikit-learn, on embeddings of length 1. The optimum is unique: it depends on no start and no seed. The seed shuffles
the folds of the cross-validation that the progress line reports.
"""

from __future__ import annotations

from edgespec.build.data import Example, Labelled, read_examples, warnings_of
from edgespec.build.stages.stage import Inputs, Result, Run, Stage
from edgespec.spec.models import HeadStage, TextClassification

FOLDS = 5


def _depends(inputs: Inputs) -> Inputs:
    task = inputs["task"]
    assert isinstance(task, dict)
    return {"head": inputs["head"], **{k: task[k] for k in ("labels", "multi_label", "max_tokens")}}


def _examples(run: Run) -> tuple[Labelled, ...]:
    assert run.train is not None
    checked = read_examples(run.train.read(), run.train.name, run.spec.task, training=True)
    found: tuple[Example, ...] = checked.unwrap()
    if warned := warnings_of(checked.diagnostics):
        run.say("head", f"warning: {warned[0]}" + (f" (and {len(warned) - 1} more)" if len(warned) > 1 else ""))
    return tuple(e for e in found if isinstance(e, Labelled))


def _check(run: Run) -> None:
    assert run.train is not None
    read_examples(run.train.read(), run.train.name, run.spec.task, training=True).unwrap()


def _run(run: Run) -> Result:
    import numpy as np

    from edgespec.build.embed import TextEncoder, normalise_rows, read_tokenizer
    from edgespec.build.logistic import Problem, cross_validate, fit, round_weights

    task, head = run.spec.task, run.spec.head
    assert isinstance(task, TextClassification)
    assert isinstance(head, HeadStage)
    examples = _examples(run)
    run.say("head", f"embedding {len(examples)} examples of {head.train}", 0.0)
    encoder = TextEncoder(
        run.output("export", "model.onnx"), read_tokenizer(run.files.tokenizer.read(), task.max_tokens)
    )
    x = normalise_rows(
        encoder.run_all([e.text for e in examples], lambda f: run.say("head", f"embedding {head.train}", f))
    )
    index = {label: i for i, label in enumerate(task.labels)}
    y = np.zeros((len(examples), len(index)))
    for row, example in enumerate(examples):
        y[row, [index[label] for label in example.labels]] = 1
    problem = Problem(x.astype(np.float64), y, head.l2, task.multi_label)
    kernel, bias = round_weights(*fit(problem))
    score = cross_validate(problem, folds=FOLDS, seed=head.seed)
    if score is not None:
        run.say("head", f"fitted on {len(examples)} examples; {FOLDS}-fold accuracy {score:.3f} in float32", 1.0)
    outputs = {"kernel": kernel.astype("<f4").tobytes(), "bias": bias.astype("<f4").tobytes()}
    return Result(outputs, {"shape": list(kernel.shape)})


STAGE = Stage("head", 1, ("export",), _depends, _run, _check, ("numpy", "onnxruntime", "tokenizers"))
