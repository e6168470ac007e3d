"""Distillation and what else torch does to checkpoints, on tiny models."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from edgespec.build.graph import encode  # noqa: E402
from edgespec.build.onnx_bert import export_classifier, export_embedding, read_config  # noqa: E402
from edgespec.build.stages import distill, prune  # noqa: E402
from edgespec.build.stages.stage import Result  # noqa: E402
from edgespec.build.torch import distilling  # noqa: E402
from edgespec.build.torch.batches import pad, shuffled, tokenise  # noqa: E402
from edgespec.build.torch.distilling import Recipe, logits_loss  # noqa: E402
from edgespec.build.torch.models import load_model, model_files, own_config  # noqa: E402
from edgespec.build.torch.runtime import repeatable  # noqa: E402
from edgespec.build.weights import Tensors  # noqa: E402
from edgespec.diagnostics import Diagnostic  # noqa: E402
from edgespec.spec.pipeline import DistillStage, PruneStage  # noqa: E402
from tests.tiny import EXAMPLES, HEADS, WIDTH, tiny_weights, write_tiny_bert  # noqa: E402
from tests.unit.build.conftest import refused as refused  # noqa: E402
from tests.unit.build.test_onnx_bert import KINDS, batch  # noqa: E402
from tests.unit.build.tools import check, job_of  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
Refused = Callable[[str, Callable[[], object]], Diagnostic]
LABELS = tuple(EXAMPLES)
TASK = {"type": "text-classification", "labels": list(LABELS), "max_tokens": 16}
EMBEDDING = {"type": "embedding", "max_tokens": 16}
HINTS = {
    "refund": ("refund", "money", "return", "pay", "payment"),
    "delivery": ("parcel", "package", "delivery", "track", "shipment", "late"),
    "other": ("weather", "music", "cat", "dog", "joke", "hello"),
}
FILL = ("the", "a", "my", "is", "to", "please", "where", "old", "new", "blue", "what", "i")


def sentences(count: int, seed: int) -> list[tuple[str, str]]:
    rng = random.Random(seed)
    out = []
    for _ in range(count):
        label = rng.choice(LABELS)
        words = [*rng.choices(FILL, k=rng.randint(2, 6)), rng.choice(HINTS[label])]
        rng.shuffle(words)
        out.append((" ".join(words), label))
    return out


TRAIN, TEST = sentences(240, 1), sentences(120, 2)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """models/tiny: a classifier that knows its task, with its labels in another order than the task's."""
    root = tmp_path_factory.mktemp("project")
    folder = write_tiny_bert(root / "models" / "tiny", labels=LABELS[::-1], pooling="mean")
    rows = tokenise(folder, [text for text, _ in TRAIN], 16)
    wanted = torch.tensor([LABELS[::-1].index(label) for _, label in TRAIN])
    with repeatable(0):
        model = load_model(folder, classifier=True)
        optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
        for places in shuffled(rows, 16, torch.Generator().manual_seed(0)) * 4:
            loss = model(**pad([rows[i] for i in places], 0, torch.device("cpu")), labels=wanted[places]).loss
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        for name, data in model_files(model, {**own_config(model), "architectures": [type(model).__name__]}).items():
            (folder / name).write_bytes(data)
    write_lines(root, "texts", [{"text": text} for text, _ in TRAIN])
    write_lines(root, "labelled", [{"text": text, "label": label} for text, label in TRAIN])
    write_lines(root, "mixed", [{"text": t, **({"label": la} if i % 2 else {})} for i, (t, la) in enumerate(TRAIN)])
    return root


def write_lines(root: Path, name: str, rows: list[dict[str, Any]]) -> None:
    (root / "data").mkdir(exist_ok=True)
    (root / "data" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def distilled(
    root: Path,
    task: Any = TASK,
    source: str = "./models/tiny",
    *,
    fresh: bool = True,
    said: list[str] | None = None,
    **options: Any,
) -> Result:
    """`said` gets what the stage tells; with `fresh` the teacher is asked anew."""
    settings = DistillStage.model_validate(options)
    data = {} if settings.data is None else {"data": settings.data}
    if settings.student is not None and settings.student.vocabulary is not None:
        data |= {distill.CORPUS: settings.student.vocabulary.corpus} if settings.student.vocabulary.corpus else {}
    job = job_of(root, distill.STAGE, settings, source=source, task=task, data=data)
    job.fresh = fresh
    if said is not None:
        job.progress = lambda event: said.append(event.message)
    if task is TASK:  # tests.tiny gives every spec a head
        job.spec = job.spec.model_copy(update={"model": job.spec.model.model_copy(update={"pipeline": ()})})
    check(job)
    return distill.STAGE.run(job)


def write(result: Result, folder: Path) -> Path:
    for name, data in result.outputs.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def config(result: Result) -> dict[str, Any]:
    return dict(json.loads(bytes(result.outputs["config.json"])))


def predictions(folder: Path, texts: list[str]) -> list[str]:
    """By edgespec's own exporter and onnxruntime: nothing of what is tested."""
    said = read_config(json.loads((folder / "config.json").read_text()), "c")
    assert said.labels is not None
    weights = Tensors((folder / "model.safetensors").read_bytes())
    session = onnxruntime.InferenceSession(encode(export_classifier(said, weights, range(len(said.labels)), "w")))
    found = []
    for ids in tokenise(folder, texts, 16):
        row = np.array([ids])
        feeds = {"input_ids": row, "attention_mask": np.ones_like(row), "token_type_ids": np.zeros_like(row)}
        found.append(said.labels[int(session.run(None, feeds)[0].argmax())])
    return found


def agreement(a: list[str], b: list[str]) -> float:
    return float(np.mean([x == y for x, y in zip(a, b, strict=True)]))


SMALL: dict[str, Any] = {"student": {"layers": 1, "width": 16}}


@pytest.fixture(scope="module")
def taught(project: Path) -> Iterator[tuple[Result, Result]]:
    """The same narrow student twice, from texts without labels."""
    options: dict[str, Any] = {
        "data": "data/texts.jsonl",
        "epochs": 30,
        "learning_rate": 5e-3,
        "batch_size": 16,
        **SMALL,
    }
    yield distilled(project, **options), distilled(project, **options)


def test_a_narrow_student_learns_what_its_teacher_says(
    project: Path, taught: tuple[Result, Result], tmp_path: Path
) -> None:
    texts = [text for text, _ in TEST]
    teacher = predictions(project / "models/tiny", texts)
    assert agreement(teacher, [label for _, label in TEST]) > 0.9
    untaught = distilled(project, data="data/texts.jsonl", epochs=0.01, learning_rate=1e-9, **SMALL)
    assert agreement(predictions(write(untaught, tmp_path / "untaught"), texts), teacher) < 0.6
    assert agreement(predictions(write(taught[0], tmp_path / "taught"), texts), teacher) > 0.85
    assert taught[0].notes["agreement"] > 0.85
    said = config(taught[0])
    assert [said["id2label"][str(i)] for i in range(3)] == list(LABELS)
    assert said["architectures"] == ["BertForSequenceClassification"]
    assert (said["hidden_size"], said["num_attention_heads"], said["intermediate_size"]) == (16, 2, 24)
    assert said["max_position_embeddings"] == 16


def test_the_same_bytes_twice(taught: tuple[Result, Result]) -> None:
    assert taught[0].outputs == taught[1].outputs
    assert taught[0].notes == taught[1].notes


def test_the_teacher_is_asked_once_for_all_its_students(project: Path) -> None:
    """What it says is kept, for texts, labels and a length; a student that finds it there is the same."""
    options: dict[str, Any] = {"data": "data/texts.jsonl", "epochs": 0.2, **SMALL}
    asked: list[str] = []
    first = distilled(project, said=asked, **options)
    assert any("the teacher reads" in message for message in asked)
    kept: list[str] = []
    assert distilled(project, said=kept, fresh=False, **options).outputs == first.outputs
    assert not any("the teacher reads" in message for message in kept) and any("in the cache" in m for m in kept)
    for changed in ({"data": "data/more.jsonl"}, {"max_tokens": 6}):
        write_lines(project, "more", [{"text": text} for text, _ in TRAIN[1:]])
        again: list[str] = []
        distilled(project, said=again, fresh=False, **{**options, **changed})
        assert any("the teacher reads" in message for message in again), changed


def test_the_same_answers_on_any_number_of_processors(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project / "models" / "tiny"
    rows, model = tokenise(folder, [text for text, _ in TRAIN], 16), load_model(folder, classifier=True)
    found = []
    for count in (1, 3):
        monkeypatch.setattr(distilling, "processors", lambda count=count: count)
        with repeatable(0):
            found.append(distilling.teach(model, rows, None, lambda *_: None))
    assert found[0].shape == (len(TRAIN), len(LABELS)) and found[0].tobytes() == found[1].tobytes()


def test_a_student_with_a_vocabulary_of_its_own(project: Path, tmp_path: Path) -> None:
    """The teacher reads with all of its entries: what it says, and what is kept of it, is the same as for a student
    that has them too."""
    options: dict[str, Any] = {"data": "data/texts.jsonl", "learning_rate": 5e-3, "batch_size": 16}
    write_lines(project, "corpus", [{"text": text} for text, _ in TRAIN[:10]])
    distilled(project, epochs=0.01, **options, **SMALL)
    said: list[str] = []
    student = {**SMALL["student"], "vocabulary": {"corpus": "data/corpus.jsonl"}}
    result = distilled(project, said=said, fresh=False, epochs=30, student=student, **options)
    assert any("in the cache" in message for message in said)
    before = json.loads((project / "models/tiny/tokenizer.json").read_bytes())["model"]["vocab"]
    after = json.loads(bytes(result.outputs["tokenizer.json"]))["model"]["vocab"]
    assert len(after) < len(before) and set(after) < set(before)
    assert config(result)["vocab_size"] == len(after) == result.notes["vocabulary"]["after"]
    texts = [text for text, _ in TEST]
    found = predictions(write(result, tmp_path / "student"), texts)
    assert agreement(found, predictions(project / "models/tiny", texts)) > 0.8


def test_layers_of_the_teacher_under_a_vocabulary_of_its_own(project: Path, tmp_path: Path) -> None:
    """Untrained, with all of the layers and every entry that the texts need, it says what its teacher says."""
    student = {"layers": [0, 1], "vocabulary": {"corpus": "data/texts.jsonl"}}
    result = distilled(project, data="data/texts.jsonl", student=student, learning_rate=1e-12, epochs=0.1)
    texts = [text for text, _ in TRAIN[:40]]
    folder = write(result, tmp_path / "student")
    assert predictions(folder, texts) == predictions(project / "models/tiny", texts)
    assert result.notes["vocabulary"]["after"] < result.notes["vocabulary"]["before"]
    assert result.notes["vocabulary"]["alike"] == len(TRAIN)


def test_layers_of_the_teacher(project: Path) -> None:
    """Before it learns, the student is the teacher's layers, its classifier in the order of the task."""
    result = distilled(project, data="data/mixed.jsonl", student={"layers": [1]}, learning_rate=1e-12, epochs=0.1)
    own, before = Tensors(bytes(result.outputs["model.safetensors"])), read(project / "models/tiny")
    names = {n: n.replace("layer.0.", "layer.1.") for n in own.names()}
    assert len(names) == len(before.names()) - 16
    for name, old in names.items():
        expected = before.get(old)[::-1] if name.startswith("classifier") else before.get(old)
        np.testing.assert_allclose(own.get(name), expected[: len(own.get(name))], atol=1e-6)


def read(folder: Path) -> Tensors:
    return Tensors((folder / "model.safetensors").read_bytes())


def test_hidden_states_and_labels(project: Path) -> None:
    options: dict[str, Any] = {"data": "data/mixed.jsonl", "learning_rate": 5e-3, "batch_size": 16, **SMALL}
    result = distilled(project, hidden=0.1, epochs=25, **options)
    plain = distilled(project, data="data/texts.jsonl", epochs=0.1, **SMALL)
    assert result.notes["agreement"] > 0.8
    read_names = Tensors(bytes(result.outputs["model.safetensors"])).names()
    assert read_names == Tensors(bytes(plain.outputs["model.safetensors"])).names()  # no projection is left


@pytest.mark.parametrize("task", [EMBEDDING, {**TASK}], ids=["embedding", "classifier with a head after it"])
def test_embeddings(project: Path, task: Any) -> None:
    options: dict[str, Any] = {"data": "data/texts.jsonl", "batch_size": 16, "learning_rate": 5e-3, **SMALL}
    before = distilled(project, task, epochs=0.01, **options)
    after = distilled(project, task, epochs=10, **options)
    assert after.notes["similarity"] > max(0.8, before.notes["similarity"])
    assert config(after)["architectures"] == ["BertModel"] and "id2label" not in config(after)
    assert json.loads(bytes(after.outputs["1_Pooling/config.json"]))["word_embedding_dimension"] == 16
    model = export_embedding(
        read_config(config(after), "c"), Tensors(bytes(after.outputs["model.safetensors"])), "mean", "w"
    )
    assert [d.dim_value for d in model.graph.output[0].type.tensor_type.shape.dim][-1] == 16


def test_multi_label(project: Path, tmp_path: Path) -> None:
    rows = [{"text": text, "labels": [label] if label != "other" else []} for text, label in TRAIN]
    write_lines(project, "multi", rows)
    task = {**TASK, "multi_label": True}
    settings = DistillStage.model_validate({"data": "data/multi.jsonl", "epochs": 2, **SMALL})
    job = job_of(project, distill.STAGE, settings, task=task, data={"data": "data/multi.jsonl"})
    job.spec = job.spec.model_copy(update={"model": job.spec.model.model_copy(update={"pipeline": ()})})
    assert config(distill.STAGE.run(job))["problem_type"] == "multi_label_classification"


def test_the_loss_by_hand() -> None:
    """One text with a label and one without: numbers from the formulas."""
    given, its = np.array([[1.0, -1.0], [0.5, 0.0]]), np.array([[2.0, 0.0], [0.0, 3.0]])
    recipe = Recipe(None, False, 2.0, 0.7, 0.0, 1, 1e-3, 1, 0)

    def softmax(x: np.ndarray) -> np.ndarray:
        e = np.exp(x)
        return e / e.sum()

    def kl(row: int) -> float:
        p, q = softmax(its[row] / 2), softmax(given[row] / 2)
        return float((p * np.log(p / q)).sum())

    expected = (0.7 * 4 * kl(0) - 0.3 * np.log(softmax(given[0])[1]) + 4 * kl(1)) / 2
    known = torch.tensor([[0.0, 1.0], [float("nan")] * 2])
    assert float(logits_loss(torch.tensor(given), torch.tensor(its), known, recipe)) == pytest.approx(expected)


# --- pruned heads


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_with_fewer_heads_is_loaded_as_it_is_exported(tmp_path: Path, kind: str) -> None:
    write_tiny_bert(tmp_path / "models" / "tiny", kind)
    result = prune.STAGE.run(job_of(tmp_path, prune.STAGE, PruneStage(heads=0.75, ffn=0.5)))
    folder = write(result, tmp_path / "pruned")
    ids, mask = batch(kind)
    said = read_config(config(result), "c")
    assert (said.heads, said.depth) == (3, WIDTH // HEADS)
    session = onnxruntime.InferenceSession(encode(export_embedding(said, read(folder), "cls", "w")))
    feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    exported = session.run(None, {i.name: feeds[i.name] for i in session.get_inputs()})[0]
    with torch.no_grad():
        model = load_model(folder, classifier=False)
        loaded = model(input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask)).last_hidden_state[:, 0]
    np.testing.assert_allclose(loaded.numpy(), exported, atol=2e-5)


def test_a_model_with_fewer_heads_can_teach_and_learn(project: Path, tmp_path: Path) -> None:
    job = job_of(project, prune.STAGE, PruneStage(heads=0.5))
    write(prune.STAGE.run(job), project / "models" / "narrow")
    result = distilled(project, data="data/labelled.jsonl", source="./models/narrow", student={"layers": 1}, epochs=8)
    assert config(result)["head_dim"] == WIDTH // HEADS and config(result)["num_attention_heads"] == HEADS // 2
    found = predictions(write(result, tmp_path / "student"), [text for text, _ in TEST])
    assert agreement(found, [label for _, label in TEST]) > 0.6


def test_importance_is_measured_on_texts(tmp_path: Path) -> None:
    """A head whose output is as large as the others' by its matrices, but whose values are the bias alone and cancel
    it, says nothing: only texts tell."""
    weights = tiny_weights()
    depth = WIDTH // HEADS
    for layer in range(2):
        at = f"encoder.layer.{layer}.attention"
        part = slice(depth, 2 * depth)
        weights[f"{at}.self.value.weight"][part] = 0
        weights[f"{at}.self.value.bias"][part] = 0
        weights[f"{at}.output.dense.weight"][:, part] *= 100
        weights[f"encoder.layer.{layer}.intermediate.dense.bias"][3] = -1e4  # gelu gives 0 for every text
        weights[f"encoder.layer.{layer}.output.dense.weight"][:, 3] = 1e4
    write_tiny_bert(tmp_path / "models" / "tiny", weights=weights)
    write_lines(tmp_path, "texts", [{"text": text} for text, _ in TRAIN[:40]])
    settings = PruneStage(heads=0.75, ffn=47 / 48, data="data/texts.jsonl")
    job = job_of(tmp_path, prune.STAGE, settings, data={"data": "data/texts.jsonl"})
    check(job)
    result = prune.STAGE.run(job)
    kept = Tensors(bytes(result.outputs["model.safetensors"]))
    whole = [h for h in range(HEADS) if h != 1]
    for layer in range(2):
        name = f"encoder.layer.{layer}.attention.self.query.weight"
        rows = np.concatenate([np.arange(h * depth, (h + 1) * depth) for h in whole])
        np.testing.assert_array_equal(kept.get(name), weights[name][rows])
        name = f"encoder.layer.{layer}.output.dense.weight"
        np.testing.assert_array_equal(kept.get(name), np.delete(weights[name], 3, axis=1))


# --- static


def test_static(project: Path, tmp_path: Path) -> None:
    model2vec = pytest.importorskip("model2vec")
    pytest.importorskip("skeletoken")
    pytest.importorskip("sklearn")
    first = distilled(project, EMBEDDING, method="static", dimensions=8)
    assert distilled(project, EMBEDDING, method="static", dimensions=8).outputs == first.outputs
    model = model2vec.StaticModel.from_pretrained(write(first, tmp_path / "static"))
    found = model.encode(["refund my money", "where is my parcel"])
    assert found.shape == (2, 8) and np.isfinite(found).all()
    assert config(first)["model_type"] == "model2vec" and first.notes["dimensions"] == 8


def test_a_static_table_wider_than_the_model(project: Path, refused: Refused) -> None:
    pytest.importorskip("skeletoken")
    pytest.importorskip("sklearn")
    refused("ES561", lambda: distilled(project, EMBEDDING, method="static", dimensions=64))


# --- what is refused


@pytest.mark.parametrize(
    ("student", "said"),
    [
        ({"layers": 3}, "layers 3, its teacher"),
        ({"width": 64}, "width 64"),
        ({"heads": 8}, "heads 8"),
        ({"inner": 64}, "inner 64"),
        ({"width": 20, "heads": 3}, "2 would do"),
        ({"layers": [0, 2]}, "counted from 0 to 1"),
        ({"layers": [0], "width": 16}, "`layers: 1`"),
    ],
)
def test_students_that_cannot_be(project: Path, refused: Refused, student: Any, said: str) -> None:
    found = refused("ES561", lambda: distilled(project, data="data/texts.jsonl", student=student))
    assert said in found.detail


def test_options_that_do_not_fit(project: Path, refused: Refused) -> None:
    assert "not an option of the method encoder, but of static" in (
        refused("ES563", lambda: distilled(project, data="data/texts.jsonl", dimensions=64, **SMALL)).detail
    )
    assert "`data`" in refused("ES563", lambda: distilled(project, **SMALL)).detail
    assert "`student`" in refused("ES563", lambda: distilled(project, data="data/texts.jsonl")).detail
    own = {**SMALL["student"], "vocabulary": {"corpus": "data/texts.jsonl"}}
    found = refused("ES563", lambda: distilled(project, data="data/texts.jsonl", student=own, hidden=0.1))
    assert "`hidden`" in found.detail
    own["vocabulary"] = {"scripts": ["Latinn"]}
    refused("ES568", lambda: distilled(project, data="data/texts.jsonl", student=own))
    write_lines(project, "none", [])
    refused("ES520", lambda: distilled(project, data="data/none.jsonl", **SMALL))
    task = {**TASK, "labels": ["refund", "delivery", "others"]}
    settings = DistillStage.model_validate({"data": "data/texts.jsonl", **SMALL})
    job = job_of(project, distill.STAGE, settings, task=task, data={"data": "data/texts.jsonl"})
    job.spec = job.spec.model_copy(update={"model": job.spec.model.model_copy(update={"pipeline": ()})})
    refused("ES512", lambda: check(job))


def test_a_loss_that_is_no_number(project: Path, refused: Refused) -> None:
    weights = tiny_weights(labels=LABELS)
    weights["classifier.weight"][:] = np.inf
    write_tiny_bert(project / "models" / "broken", labels=LABELS, weights=weights)
    found = refused(
        "ES562", lambda: distilled(project, data="data/texts.jsonl", source="./models/broken", epochs=1, **SMALL)
    )
    assert "step 1" in found.detail and "learning_rate" in found.detail


def test_a_checkpoint_without_its_tensors(project: Path, refused: Refused) -> None:
    weights = tiny_weights(labels=LABELS)
    del weights["bert.encoder.layer.1.output.dense.weight"]
    write_tiny_bert(project / "models" / "partial", labels=LABELS, weights=weights)
    found = refused("ES560", lambda: distilled(project, data="data/texts.jsonl", source="./models/partial", **SMALL))
    assert "layer.1.output.dense.weight" in found.detail
