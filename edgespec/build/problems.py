"""The errors of a build: one stable code and one fixed summary each; the detail says why and what to do.

ES50x sources, ES51x models, ES52x data, ES53x the build itself and its cache.
"""

from __future__ import annotations

from typing import Final

from edgespec.diagnostics import Diagnostic, EdgespecError, Severity, SourceRange
from edgespec.records import replace

SUMMARIES: Final = {
    "ES500": "a file that the spec names is missing",
    "ES501": "the model source is not understood",
    "ES502": "the model cannot be fetched from its hub",
    "ES503": "the model package cannot be installed",
    "ES504": "no model in this place",
    "ES505": "the model has no tokenizer",
    "ES506": "the tokenizer cannot be used",
    "ES510": "the model is of a kind that cannot be built",
    "ES511": "the model's weights are broken",
    "ES512": "the model's labels are not the task's labels",
    "ES513": "the task and the pipeline do not fit together",
    "ES514": "the ONNX graph cannot be used",
    "ES515": "max_tokens is more than the model can take",
    "ES516": "the model is too large",
    "ES520": "the data set has no examples",
    "ES521": "the line cannot be read",
    "ES522": "a field is missing",
    "ES523": "an unknown field",
    "ES524": "a field has the wrong type or is empty",
    "ES525": "the label is not one of the task's",
    "ES526": "a label has too few examples",
    "ES527": "the example is in the data twice",
    "ES528": "more problems of the same kind",
    "ES529": "the file cannot be read",
    "ES530": "an input changed while it was being built",
    "ES531": "a Python package that builds need is missing",
    "ES532": "the build cache cannot be used",
    "ES533": "onnxruntime cannot run the model",
    "ES534": "the artifact cannot be made again",
    "ES535": "a chunk is missing",
    "ES536": "the build cache is in use",
    "ES540": "the engine edge does not cover the model",
    "ES541": "the quantisation needs the engine edge",
    "ES542": "the engine edge cannot run the model",
    "ES550": "the training tool failed",
    "ES551": "the training tool does not take the model",
    "ES552": "a GPU is needed",
    "ES553": "not enough memory",
    "ES554": "the loss is not a number",
    "ES555": "the tool was killed",
    "ES556": "the examples cannot be trained on",
    "ES557": "the options of the training do not fit together",
    "ES558": "the tool wrote no model",
    "ES560": "the model cannot be loaded",
    "ES561": "the student does not fit its teacher",
    "ES562": "the distillation diverged",
    "ES563": "the options of the distillation do not fit together",
    "ES564": "model2vec failed",
    "ES565": "the model is of a kind that cannot be pruned",
    "ES566": "the vocabulary cannot be pruned",
    "ES567": "the layers cannot be pruned",
    "ES568": "the options of the pruning do not fit together",
    "ES570": "the quantisation's options do not fit together",
    "ES571": "the quantisation needs calibration data",
    "ES572": "the method cannot quantise the model",
    "ES573": "the quantising tool failed",
    "ES575": "the exported graph answers otherwise than the model",
    "ES576": "torch cannot export the model",
    "ES577": "the quantised weights cannot be read",
    "ES580": "the quality data cannot be measured",
    "ES581": "the model gave answers that cannot be measured",
    "ES582": "nothing to compare with",
    "ES583": "the quality data was trained on",
    "ES584": "the engine edge cannot be run here",
    "ES585": "the shared build cache cannot be used",
    "ES586": "the shared build cache is damaged",
    "ES587": "the executor cannot be used",
    "ES588": "a stage died on the executor",
}


def problem(code: str, detail: str, source: SourceRange | None = None) -> Diagnostic:
    return Diagnostic(Severity.ERROR, code, SUMMARIES[code], detail, source)


def caution(code: str, detail: str, source: SourceRange | None = None) -> Diagnostic:
    return Diagnostic(Severity.WARNING, code, SUMMARIES[code], detail, source)


def fail(code: str, detail: str, source: SourceRange | None = None, *, at: tuple[str | int, ...] = ()) -> EdgespecError:
    """The error to raise; `at` is the field of the spec that it is about."""
    return EdgespecError(replace(problem(code, detail, source), at=at))
