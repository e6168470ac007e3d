"""distill: a smaller model that learns from the one that comes in.

`encoder`: the student is a smaller encoder that copies what its teacher says. A classifier is copied by its logits,
unless a head is fitted afterwards; then, and where there is no classifier, by its embeddings. `static`: one vector a
token, by model2vec. `gkd`: a causal language model into a smaller one, by ms-swift.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from edgespec.build.problems import fail
from edgespec.build.stages.stage import Inputs, Job, Needs, Result, Stage, part
from edgespec.spec.models import TextClassification
from edgespec.spec.pipeline import DistillStage, Student

if TYPE_CHECKING:
    from edgespec.build.surgery.checkpoint import Checkpoint
    from edgespec.build.surgery.student import Shape
    from edgespec.build.torch.distilling import Recipe
    from edgespec.build.weights import FloatArray

COMMON: Final = frozenset({"method", "seed"})
TRAINED: Final = frozenset({"data", "temperature", "alpha", "epochs", "learning_rate", "batch_size", "max_tokens"})
ALLOWED: Final = {
    "encoder": COMMON | TRAINED | {"student", "hidden"},
    "static": COMMON | {"dimensions"},
    "gkd": COMMON | TRAINED | {"source"},
}
"""Options of each method."""
NEW_RATE: Final = 5e-4
KEPT_RATE: Final = 1e-4
DIMENSIONS: Final = 256
MODEL2VEC: Final = ("model2vec", "skeletoken", "sklearn")
"""What model2vec's distillation imports."""
CORPUS: Final = "student.vocabulary.corpus"


def _depends(inputs: Inputs) -> Inputs:
    task = part(inputs, "task")
    wanted = ("type", "labels", "multi_label", "max_tokens")
    return {**{k: task[k] for k in wanted if k in task}, "copies": "embedding" if _head_follows(inputs) else "model"}


def _head_follows(inputs: Inputs) -> bool:
    from edgespec.build.stages.stage import fits_head

    return fits_head(inputs)


# --- before anything runs


def _check_data(job: Job) -> None:
    from edgespec.build.torch.runtime import need

    options: DistillStage = job.step.options
    if strange := sorted(options.model_fields_set - ALLOWED[options.method]):
        owners = [m for m, names in ALLOWED.items() if strange[0] in names]
        raise fail(
            "ES563", f"`{strange[0]}` is not an option of the method {options.method}, but of {' and '.join(owners)}."
        )
    if options.method == "gkd":
        from edgespec.build import gkd

        return gkd.check_data(job)
    if options.method == "encoder":
        if options.data is None:
            raise fail("ES563", "the method encoder needs `data`: texts to learn from, with or without labels.")
        if options.student is None or not options.student.model_fields_set - {"embedding"}:
            raise fail("ES563", "the method encoder needs a `student`, such as `student: {layers: 2, width: 128}`.")
        _examples(job)
        _check_vocabulary(job, options.student)
    need("torch", "transformers", *(MODEL2VEC if options.method == "static" else ()))
    return None


def _check_vocabulary(job: Job, student: Student) -> None:
    from edgespec.build.data import read_texts
    from edgespec.build.surgery.smaller_vocabulary import check_scripts

    if student.vocabulary is None:
        return
    if job.step.options.hidden:
        raise fail(
            "ES563",
            "`hidden` compares the states of one token in teacher and student, which cut texts into other tokens once "
            "the student has a `vocabulary` of its own. Take `hidden` out, or prune the vocabulary before.",
        )
    check_scripts(student.vocabulary.scripts)
    if (corpus := job.step.data.get(CORPUS)) is not None:
        read_texts(corpus.read(), corpus.name).unwrap()


def _check(job: Job) -> None:
    from edgespec.build.surgery.student import shape_of
    from edgespec.build.surgery.vocabulary import read_entries

    options: DistillStage = job.step.options
    source = job.spec.model.source
    if job.files.is_onnx:
        raise fail("ES561", f"{source} is an ONNX file: distill works on a model in Hugging Face layout.")
    if options.method == "gkd":
        from edgespec.build import gkd

        return gkd.check(job)
    config = _config(job)
    if config.get("quantization_config"):
        raise fail("ES561", f"{source} is quantised already, and nothing learns from that here. Take the float model.")
    if options.method == "encoder":
        shape_of(_student(options), config, source)
        if _student(options).vocabulary is not None:
            read_entries(json.loads(job.files.tokenizer.read()), source)
        if _copies_logits(job, config):
            _label_order(job, config)
    return None


def _student(options: DistillStage) -> Student:
    if options.student is None:
        raise TypeError("no student")
    return options.student


def _config(job: Job) -> dict[str, Any]:
    if job.files.config is None:
        raise fail("ES561", f"{job.spec.model.source} has no config.json.")
    found = json.loads(job.files.config.read())
    if not isinstance(found, dict):
        raise fail("ES510", f"config.json of {job.spec.model.source} is no object.")
    return found


def _copies_logits(job: Job, config: Mapping[str, Any]) -> bool:
    from edgespec.build.surgery.labels import is_classifier

    return isinstance(job.spec.task, TextClassification) and job.spec.head is None and is_classifier(config)


def _label_order(job: Job, config: Mapping[str, Any]) -> list[int]:
    from edgespec.build.stages.export import label_order
    from edgespec.build.surgery.labels import own_labels

    return label_order(own_labels(config), job.task.labels, job.spec.model.source)


def _examples(job: Job) -> tuple[list[str], FloatArray]:
    """Texts, and [texts, labels]: 1 or 0, NaN where nobody has said."""
    import numpy as np

    from edgespec.build.data import Labelled, read_partly_labelled, read_texts

    file, task = job.step.data["data"], job.spec.task
    if not isinstance(task, TextClassification):
        texts = list(read_texts(file.read(), file.name).unwrap())
        return texts, np.full((len(texts), 0), np.nan, np.float32)
    examples = read_partly_labelled(file.read(), file.name, task).unwrap()
    places = {label: i for i, label in enumerate(task.labels)}
    labels = np.full((len(examples), len(places)), np.nan, np.float32)
    for row, example in enumerate(examples):
        if isinstance(example, Labelled):
            labels[row] = 0
            labels[row, [places[label] for label in example.labels]] = 1
    return [e.text for e in examples], labels


# --- the run


def _run(job: Job) -> Result:
    options: DistillStage = job.step.options
    if options.method == "gkd":
        from edgespec.build.gkd import distil

        return distil(job)
    return _run_static(job) if options.method == "static" else _run_encoder(job)


def _run_encoder(job: Job) -> Result:
    from edgespec.build.surgery.student import shape_of
    from edgespec.build.torch.batches import tokenise
    from edgespec.build.torch.distilling import distil
    from edgespec.build.torch.models import load_model, model_files
    from edgespec.build.torch.runtime import repeatable

    options: DistillStage = job.step.options
    config = _config(job)
    logits = _copies_logits(job, config)
    shape = shape_of(_student(options), config, job.spec.model.source)
    texts, labels = _examples(job)
    tokens = options.max_tokens or job.spec.task.max_tokens
    recipe = _recipe(job, shape, logits=logits)
    job.say(f"distilling {job.spec.model.source} into {_say_shape(shape)}", 0.0)
    with job.workspace() as folder, repeatable(options.seed):
        checkpoint = _check_out(job, folder / "teacher", logits=logits)
        teacher = load_model(folder / "teacher", classifier=logits)
        rows = tokenise(folder / "teacher", texts, tokens)
        answers = _answers(job, teacher, rows, texts, tokens, recipe)
        cut, own = _cut_vocabulary(job, checkpoint)
        if cut:
            (folder / "tokenizer.json").write_bytes(cut["tokenizer.json"])
            rows = tokenise(folder, texts, tokens)
        student = _make_student(folder, checkpoint, shape, job, max(tokens, job.spec.task.max_tokens), logits=logits)
        notes = distil(teacher, student, rows, answers, labels, recipe, job.say)
        files = model_files(student, _written_config(student, job, logits=logits))
    kept = {f.name: f.read() for f in job.files.all if f not in job.files.weights}
    if job.files.pooling is not None:
        kept[job.files.pooling.name] = _pooling(job.files.pooling.read(), shape.width)
    size = sum(p.numel() for p in student.parameters())
    shown = ", ".join(f"{name} {value:g}" for name, value in notes.items())
    job.say(f"a student of {size:,} parameters: {shown}", 1.0)
    return Result({**kept, **cut, **files}, {**notes, **own, "texts": len(texts), "parameters": size})


def _answers(
    job: Job, teacher: Any, rows: Sequence[Sequence[int]], texts: Sequence[str], tokens: int, recipe: Recipe
) -> FloatArray:
    from edgespec.build.teaching import taught
    from edgespec.build.torch.distilling import teach

    answers, known = taught(job, texts, tokens, recipe.pooling, lambda: teach(teacher, rows, recipe.pooling, job.say))
    if known:
        job.say(f"what the teacher says of {len(texts)} texts is in the cache")
    return answers


def _cut_vocabulary(job: Job, checkpoint: Checkpoint) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The tokenizer's files and notes of a student with fewer entries, whose rows are taken out of `checkpoint`;
    nothing where it has its teacher's vocabulary."""
    from edgespec.build.data import read_texts
    from edgespec.build.surgery.smaller_vocabulary import prune_vocabulary, say_vocabulary

    options = _student(job.step.options).vocabulary
    if options is None:
        return {}, {}
    corpus = job.step.data.get(CORPUS)
    texts = read_texts(corpus.read(), corpus.name).unwrap() if corpus is not None else ()
    files, notes = prune_vocabulary(job.files, checkpoint, options, texts, job.spec.model.source)
    job.say(f"the student: {say_vocabulary(notes)}")
    return files, {"vocabulary": notes}


def _say_shape(shape: Shape) -> str:
    start = f"from its layers {', '.join(map(str, shape.kept))}" if shape.kept else "from new layers"
    return f"{shape.layers} layers of {shape.width} columns, {shape.heads} heads, {shape.inner} inner columns, {start}"


def _check_out(job: Job, folder: Path, *, logits: bool) -> Checkpoint:
    """The teacher's files in `folder`, a classifier with the task's labels in the task's order; its checkpoint."""
    from edgespec.build.surgery.checkpoint import encode, encode_json, read_checkpoint
    from edgespec.build.surgery.labels import order_labels

    job.checkout(folder)
    checkpoint = read_checkpoint([f.read() for f in job.files.weights], _config(job))
    if logits:
        order_labels(checkpoint, _label_order(job, checkpoint.config), job.task.labels)
        for file in folder.glob("*.safetensors"):
            file.unlink()
        (folder / "model.safetensors").write_bytes(encode(checkpoint.tensors))
        (folder / "config.json").write_bytes(encode_json(checkpoint.config))
    return checkpoint


def _make_student(folder: Path, checkpoint: Checkpoint, shape: Shape, job: Job, tokens: int, *, logits: bool) -> Any:
    """The student before training: some of the teacher's layers, or new ones under the teacher's vectors."""
    from edgespec.build.surgery import student as start
    from edgespec.build.surgery.checkpoint import encode, encode_json
    from edgespec.build.surgery.families import family_of
    from edgespec.build.surgery.parts import keep_layers
    from edgespec.build.torch.models import load_model, new_model

    source = job.spec.model.source
    table = None
    if shape.kept is not None:
        keep_layers(checkpoint, family_of(checkpoint.config, source), shape.kept)
    elif _student(job.step.options).embedding == "pca":
        table = start.projected(checkpoint, shape.width)
    if shape.kept is None:
        config = start.new_config(checkpoint.config, shape, source)
        config["max_position_embeddings"] = start.positions_for(config, tokens)
        return new_model(config, table, classifier=logits)
    start.cut_positions(checkpoint, tokens)
    target = folder / "student"
    target.mkdir()
    (target / "config.json").write_bytes(encode_json(checkpoint.config))
    (target / "model.safetensors").write_bytes(encode(checkpoint.tensors))
    return load_model(target, classifier=logits)


def _recipe(job: Job, shape: Shape, *, logits: bool) -> Recipe:
    from edgespec.build.stages.export import pooling_of
    from edgespec.build.torch.distilling import Recipe

    options: DistillStage = job.step.options
    task = job.spec.task
    return Recipe(
        pooling=None if logits else pooling_of(job.files, job.spec.model.source),
        multi_label=isinstance(task, TextClassification) and task.multi_label,
        temperature=options.temperature,
        alpha=options.alpha,
        hidden=options.hidden,
        epochs=options.epochs,
        learning_rate=options.learning_rate or (NEW_RATE if shape.kept is None else KEPT_RATE),
        batch_size=options.batch_size,
        seed=options.seed,
    )


def _written_config(student: Any, job: Job, *, logits: bool) -> dict[str, Any]:
    from edgespec.build.surgery.labels import label_config
    from edgespec.build.torch.models import own_config

    config = {**own_config(student), "architectures": [type(student).__name__]}
    if not logits:
        return {k: v for k, v in config.items() if k not in ("id2label", "label2id", "problem_type")}
    kind = "multi_label_classification" if job.task.multi_label else "single_label_classification"
    return {**config, **label_config(job.task.labels), "problem_type": kind}


def _pooling(data: bytes, width: int) -> bytes:
    """sentence-transformers' 1_Pooling/config.json for a student of that width."""
    from edgespec.build.surgery.checkpoint import encode_json

    found = json.loads(data)
    return encode_json({**found, "word_embedding_dimension": width}) if "word_embedding_dimension" in found else data


def _run_static(job: Job) -> Result:
    from edgespec.build.torch.runtime import repeatable
    from edgespec.build.torch.static import distil_static

    options: DistillStage = job.step.options
    dimensions = options.dimensions or DIMENSIONS
    job.say(f"reading every token of {job.spec.model.source} into {dimensions} columns", 0.0)
    with job.workspace() as folder, repeatable(options.seed):
        job.checkout(folder / "teacher")
        files, notes = distil_static(folder / "teacher", dimensions, job.log_path())
    job.say(f"a table of {notes['tokens']:,} tokens and {notes['dimensions']} columns", 1.0)
    return Result(files, notes)


_MORE_TOOLS: Final = {"static": ("model2vec",), "gkd": ("ms-swift",)}
STAGE: Final = Stage(
    "distill",
    1,
    _depends,
    _run,
    _check,
    _check_data,
    tools=("torch", "transformers"),
    tools_for=lambda options: _MORE_TOOLS.get(options.method, ()),
    makes_checkpoint=True,
    needs=Needs(memory=4 * 2**30),
)
