"""The stages of `model.pipeline`, as users write them: each turns a model into another, in the order of the list.

Rates are per optimiser step, sizes are parts of a whole (0 to 1) or counts; `seed` makes a stage repeatable. A field
that is `None` takes the value that the stage's documentation states (docs/build.md).
"""

# Annotations are not postponed here: pydantic would evaluate each of them from its text at every start.

from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from edgespec.spec.types import RelativePath, Strict, Whole, unique

Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]
Epochs = Annotated[float, Field(gt=0, le=1000)]
LearningRate = Annotated[float, Field(gt=0, le=1)]
BatchSize = Annotated[int, Field(ge=1, le=4096)]
MaxTokens = Annotated[int, Field(ge=4, le=8192)]
Part = Annotated[float, Field(gt=0, le=1)]
"""How much of something is kept."""
Count = Annotated[int, Field(ge=1, le=100_000)]


class HeadStage(Strict):
    """A linear classifier fitted on the frozen embeddings of a labelled data file."""

    train: RelativePath
    """`{"text": ..., "label": ...}`, or `"labels": [...]` for a multi-label task."""
    seed: Seed = 0
    l2: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Strength of the L2 penalty (scikit-learn's 1/C)."""


class Adapter(Strict):
    """A LoRA adapter (https://arxiv.org/abs/2106.09685), merged into the model after training."""

    rank: Annotated[int, Field(ge=1, le=512)] = 8
    alpha: Annotated[int, Field(ge=1, le=1024)] = 32
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.05


class FinetuneStage(Strict):
    """Training on the task's own examples, by ms-swift: all weights, a LoRA adapter, or one over quantised weights.

    A text-classification task trains a classifier, an embedding task trains the encoder on pairs; `messages` trains a
    causal language model on conversations, whatever the task.
    """

    tool: Literal["ms-swift"] = "ms-swift"
    method: Literal["full", "lora", "qlora"] = "full"
    objective: Literal["task", "messages"] = "task"
    train: RelativePath
    validation: RelativePath | None = None
    """Only measured on, while training."""
    epochs: Epochs = 1.0
    learning_rate: LearningRate | None = None
    """Default 5e-5 for `full`, 1e-4 for adapters."""
    batch_size: BatchSize = 16
    max_tokens: MaxTokens | None = None
    """Default: the task's."""
    lora: Adapter | None = None
    """For `lora` and `qlora`."""
    bits: Annotated[Literal[4, 8], Whole] | None = None
    """For `qlora`: the frozen weights while training, 4 by default. The merged model is float again."""
    seed: Seed = 0


class Vocabulary(Strict):
    """Which entries of the vocabulary stay; letters, digits, signs and special tokens always do, so that every text
    can still be written."""

    corpus: RelativePath | None = None
    """The texts whose tokens are counted."""
    keep: Annotated[int, Field(ge=1)] | None = None
    """The most frequent so many tokens of the corpus; all that occur by default."""
    scripts: Annotated[tuple[str, ...], AfterValidator(unique)] = ()
    """Unicode scripts, such as Latin or Han: entries written in others go."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.corpus is None and not self.scripts:
            raise ValueError("needs `corpus` or `scripts`")
        if self.keep is not None and self.corpus is None:
            raise ValueError("`keep` counts tokens of a `corpus`: name one")
        return self


class Student(Strict):
    """The smaller encoder; what is not given is the teacher's. With another width, heads keep their columns and the
    feed-forward part its ratio to the width."""

    layers: Annotated[int, Field(ge=1, le=128)] | tuple[Annotated[int, Field(ge=0, le=127)], ...] | None = None
    """How many, initialised anew where the width differs and else spread over the teacher's; or which of the
    teacher's layers it starts from, counted from 0."""
    width: Annotated[int, Field(ge=8, le=8192)] | None = None
    """Columns of the hidden state. Another than the teacher's starts from random layers."""
    heads: Annotated[int, Field(ge=1, le=128)] | None = None
    inner: Annotated[int, Field(ge=8, le=65536)] | None = None
    """Columns of the feed-forward part."""
    embedding: Literal["pca", "random"] = "pca"
    """How a narrower embedding table starts: the teacher's, projected on its main directions; or at random."""
    vocabulary: Vocabulary | None = None
    """Which entries of the teacher's vocabulary it has. The teacher reads the texts with all of its own."""


class DistillStage(Strict):
    """A smaller model that learns from the one that comes in, its teacher."""

    method: Literal["encoder", "static", "gkd"] = "encoder"
    """`encoder`: logits and hidden states into a smaller encoder. `static`: one vector a token, by model2vec.
    `gkd`: a causal language model into a smaller one of the same vocabulary, by ms-swift."""
    data: RelativePath | None = None
    """Texts, with or without labels; `encoder` and `gkd` need it."""
    student: Student | None = None
    """For `encoder`."""
    source: Annotated[str, StringConstraints(min_length=1)] | None = None
    """For `gkd`: the student, written like `model.source`."""
    temperature: Annotated[float, Field(gt=0, le=100)] = 2.0
    alpha: Annotated[float, Field(ge=0, le=1)] = 0.7
    """How much the teacher counts against the labels of `data`; without labels it counts whole."""
    hidden: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Weight of the distance between hidden states."""
    dimensions: Annotated[int, Field(ge=8, le=4096)] | None = None
    """For `static`: columns of the table, 256 by default."""
    epochs: Epochs = 1.0
    learning_rate: LearningRate | None = None
    """Default 5e-4 for a student that starts at random, else 1e-4."""
    batch_size: BatchSize = 32
    max_tokens: MaxTokens | None = None
    seed: Seed = 0


class PruneStage(Strict):
    """Parts of the model that go, without training: fine-tune or distil after it."""

    vocabulary: Vocabulary | None = None
    layers: Annotated[tuple[Annotated[int, Field(ge=0, le=1023)], ...], AfterValidator(unique)] | None = None
    """Which stay, counted from 0."""
    heads: Part | None = None
    """The part of each layer's attention heads that stays, the most important first."""
    ffn: Part | None = None
    """The part of each feed-forward layer's columns that stays, the most important first."""
    weights: Part | None = None
    """The part of each matrix's weights that stays, the largest first; the others become 0."""
    data: RelativePath | None = None
    """Texts on which importance is measured; without it, by the size of the weights."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if all(getattr(self, name) is None for name in ("vocabulary", "layers", "heads", "ffn", "weights")):
            raise ValueError("prunes nothing: give vocabulary, layers, heads, ffn or weights")
        return self


class Stage(Strict):
    """One stage of the pipeline, written as a mapping with one key."""

    finetune: FinetuneStage | None = None
    distill: DistillStage | None = None
    prune: PruneStage | None = None
    head: HeadStage | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        found = sorted(self.model_fields_set)
        if len(found) != 1 or getattr(self, found[0]) is None:
            known = ", ".join(type(self).model_fields)
            what = f"has {' and '.join(found)}" if len(found) > 1 else "is empty"
            raise ValueError(f"a stage is one of {known}; this one {what}")
        return self

    @property
    def kind(self) -> str:
        return next(iter(self.model_fields_set))

    @property
    def options(self) -> HeadStage | FinetuneStage | DistillStage | PruneStage:
        found: Any = getattr(self, self.kind)
        return found  # type: ignore[no-any-return]


class Calibration(Strict):
    """Texts that a quantiser looks at."""

    data: RelativePath
    samples: Annotated[int, Field(ge=1, le=100_000)] = 128


BITS: Final = {"gptq": (4, 8), "awq": (4,), "bnb": (8,)}
"""Bits of a weight that each method knows here."""


class Quantization(Strict):
    method: Literal["none", "fp16", "int8", "int4", "gptq", "awq", "bnb"] = "int8"
    """fp16 and int4 round to nearest; gptq and awq look at `calibration`, bnb is bitsandbytes' int8. onnxruntime runs
    none and int8, and gptq and awq as MatMulNBits; the engine edge runs all."""
    bits: Annotated[Literal[4, 8], Whole] | None = None
    """For gptq: 4 or 8. The other methods have one width."""
    group_size: Annotated[Literal[32, 64, 128], Whole] = 32
    """int4, gptq and awq: how many weights of a row share a scale."""
    calibration: Calibration | None = None
    """For gptq and awq."""

    @property
    def width(self) -> int:
        """Bits of a weight, for the methods whose tool is told."""
        return self.bits or BITS[self.method][0]

    @property
    def grouped(self) -> bool:
        return self.method in ("int4", "gptq", "awq")

    @property
    def rounding(self) -> Literal["none", "fp16", "int8", "int4"]:
        """How weights are rounded that no tool has made integers of."""
        match self.method:
            case "gptq" | "awq" | "bnb":
                return "int8"
            case method:
                return method

    @property
    def by_tool(self) -> bool:
        """Whether a tool makes the integers, from the float model, before it is exported."""
        return self.method in BITS


def _by_name(value: object) -> object:
    return {"method": value} if isinstance(value, str) else value


Layers = Annotated[int, Field(ge=1, le=128)] | tuple[Annotated[int, Field(ge=0, le=127)], ...]


class Tune(Strict):
    """A grid that `edgespec tune` tries. It changes nothing that is built or deployed: the choice is written into the
    fields that it varies."""

    data: RelativePath | None = None
    """What the variants are measured on; `quality.data` by default."""
    metric: str | None = None
    """What they are compared by; the first of `quality.metrics` by default."""
    tolerance: Annotated[float, Field(ge=0, le=1)] = 0.01
    """How much of the metric the choice may lose against the best that fits, for fewer bytes."""
    quantization: tuple[Annotated[Quantization, BeforeValidator(_by_name)], ...] = ()
    """`int8`, or a mapping as under `quantization`."""
    layers: tuple[Layers, ...] = ()
    """How many, or which; of the student, or of a prune stage."""
    vocabulary: Annotated[tuple[Count, ...], AfterValidator(unique)] = ()
    """Tokens kept by a prune stage, or in the vocabulary of a student."""
    dimensions: Annotated[tuple[Annotated[int, Field(ge=8, le=8192)], ...], AfterValidator(unique)] = ()
    """Columns of the student, or of a static model."""
