"""Fine-tuning up to the tool: what is refused, what ms-swift is told, what is made of what it wrote."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from edgespec.build import checkpoint, swift
from edgespec.build.data import Labelled, Pair
from edgespec.build.quantised import array_of
from edgespec.build.stages import finetune
from edgespec.build.stages.stage import Job
from edgespec.build.swift import environment, last_checkpoint, require, write_arguments
from edgespec.build.swift_data import count_long, labelled_rows, pair_loss, pair_rows, read_conversation_rows
from edgespec.build.swift_model import complete, fits
from edgespec.build.weights_file import read_tensors
from edgespec.diagnostics import Diagnostic, EdgespecError
from edgespec.records import replace
from edgespec.spec.models import EdgeModel, TextClassification
from edgespec.spec.pipeline import FinetuneStage
from tests.build.tiny_lm import write_conversations, write_tiny_qwen
from tests.tiny import EXAMPLES, WIDTH, tiny_spec, write_examples, write_tiny_bert
from tests.unit.build.tools import EMBEDDING, check, job_of

Refused = Callable[[str, Callable[[], object]], Diagnostic]
LABELS = tuple(EXAMPLES)


def job(project: Path, *, source: str = "tiny", task: Any = None, **options: Any) -> Job:
    settings = FinetuneStage.model_validate({"train": "data/train.jsonl", **options})
    data = {k: v for k, v in (("train", settings.train), ("validation", settings.validation)) if v is not None}
    return job_of(project, finetune.STAGE, settings, source=f"./models/{source}", task=task, data=data)


def write_pairs(project: Path, *scores: float) -> str:
    rows = [{"text_a": f"a {i}", "text_b": f"b {i}", "score": score} for i, score in enumerate(scores)]
    (project / "data" / "pairs.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return "data/pairs.jsonl"


# --- what is refused


def test_a_good_one_passes(project: Path) -> None:
    check(job(project, method="lora", lora={"rank": 4}))
    check(job(project, method="qlora", bits=8, validation="data/train.jsonl"))


def test_options_of_another_method(project: Path, refused: Refused) -> None:
    assert "`lora` is an option of" in refused("ES557", lambda: check(job(project, lora={"rank": 4}))).detail
    assert "`bits` is an option of" in refused("ES557", lambda: check(job(project, method="lora", bits=4))).detail


def test_an_encoder_that_loses_heads_first(project: Path, refused: Refused) -> None:
    """Known before anything runs, from the stages that come before; also of a source that lost them already."""

    def after(*before: dict[str, Any]) -> Job:
        pipeline = [*before, {"finetune": {"train": "data/train.jsonl"}}]
        plain = job(project)
        model = {"source": plain.spec.model.source, "pipeline": pipeline}
        spec = EdgeModel.model_validate({**tiny_spec(source=plain.spec.model.source), "model": model})
        return replace(plain, spec=spec, step=replace(plain.step, where=("model", "pipeline", len(before), "finetune")))

    heads = {"prune": {"heads": 0.5}}
    said = refused("ES551", lambda: check(after(heads))).detail
    assert "fewer heads" in said and "`finetune`" in said and "after this one" in said
    check(after({"prune": {"ffn": 0.5}}))
    check(after(heads, {"distill": {"data": "data/train.jsonl", "student": {"layers": 1}}}))
    path = project / "models" / "tiny" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "num_attention_heads": 1, "head_dim": WIDTH // 2}))
    refused("ES551", lambda: check(job(project)))


def test_data_is_read_before_anything_runs(project: Path, refused: Refused) -> None:
    write_examples(project / "data" / "train.jsonl", {"refund": ["a", "b", "c"], "delivery": ["d"]})
    assert "other" in refused("ES526", lambda: check(job(project))).detail
    (project / "data" / "validation.jsonl").write_text('{"text": "x", "label": "spam"}\n')
    write_examples(project / "data" / "train.jsonl")
    found = refused("ES525", lambda: check(job(project, validation="data/validation.jsonl")))
    assert found.source is not None
    assert found.source.path == "data/validation.jsonl"


def test_models_that_the_tool_does_not_take(project: Path, refused: Refused) -> None:
    write_tiny_bert(project / "models" / "distil", "distilbert")
    found = refused("ES551", lambda: check(job(project, source="distil")))
    assert "bert, roberta, xlm-roberta, modernbert, qwen2, qwen3" in found.detail
    write_tiny_bert(project / "models" / "packed", quantization_config={"quant_method": "gptq"})
    assert "is quantised" in refused("ES551", lambda: check(job(project, source="packed"))).detail


def test_more_tokens_than_positions(project: Path, refused: Refused) -> None:
    assert "end at 64" in refused("ES515", lambda: check(job(project, max_tokens=65))).detail
    write_tiny_bert(project / "models" / "roberta", "roberta")
    assert "end at 62" in refused("ES515", lambda: check(job(project, source="roberta", max_tokens=63))).detail


def test_conversations_need_a_language_model(project: Path, refused: Refused) -> None:
    write_conversations(project / "data" / "chat.jsonl")
    options = {"train": "data/chat.jsonl", "objective": "messages"}
    assert "BertModel" in refused("ES557", lambda: check(job(project, **options))).detail
    write_tiny_qwen(project / "models" / "qwen")
    check(job(project, source="qwen", **options))
    with pytest.raises(EdgespecError) as caught:
        check(job(project, source="qwen", objective="messages"))
    assert {d.code for d in caught.value.diagnostics} & {"ES522", "ES523"}


def test_embeddings_of_bert(project: Path, refused: Refused) -> None:
    train = write_pairs(project, 1, 1)
    found = refused("ES551", lambda: check(job(project, task=EMBEDDING, train=train)))
    assert "modernbert, qwen2, qwen3" in found.detail
    assert "distill" in found.detail
    write_tiny_qwen(project / "models" / "qwen")
    check(job(project, source="qwen", task=EMBEDDING, train=train))


def test_scores_that_are_no_cosines(project: Path, refused: Refused) -> None:
    write_tiny_qwen(project / "models" / "qwen")
    for scores, word in (((1, 5), "has the score 5"), ((0, 0), "nothing in it is alike")):
        train = write_pairs(project, *scores)
        found = refused("ES556", lambda train=train: check(job(project, source="qwen", task=EMBEDDING, train=train)))
        assert word in found.detail


def test_keywords_are_not_trained(project: Path, refused: Refused) -> None:
    task = {"type": "keyword-extraction", "max_tokens": 16}
    assert "embedding" in refused("ES557", lambda: check(job(project, task=task))).detail


# --- what the tool is told


def told(project: Path, *, gpu: bool = False, **options: Any) -> dict[str, Any]:
    work = finetune.work_of(job(project, **options))
    arguments = finetune.training_arguments(work, gpu=gpu) | work.model_arguments(Path("/m"))
    return dict(arguments)


def test_full_training(project: Path) -> None:
    found = told(project, epochs=2.5, batch_size=4, seed=9)
    wanted = {
        "tuner_type": "full", "num_train_epochs": 2.5, "learning_rate": 5e-5, "per_device_train_batch_size": 4,
        "seed": 9, "data_seed": 9, "use_cpu": True, "torch_dtype": "float32", "model_type": "bert", "template": "dummy",
        "max_length": 32, "truncation_strategy": "right", "save_only_model": True, "use_chat_template": False,
    }  # fmt: skip
    assert wanted.items() <= found.items()
    assert not {"quant_method", "lora_rank"} & set(found)


def test_adapters(project: Path) -> None:
    lora = told(project, method="lora", lora={"rank": 4, "alpha": 8, "dropout": 0})
    assert {"tuner_type": "lora", "lora_rank": 4, "lora_alpha": 8, "learning_rate": 1e-4}.items() <= lora.items()
    assert "quant_method" not in lora
    qlora = told(project, method="qlora", learning_rate=0.01, max_tokens=20)
    assert {"quant_method": "bnb", "quant_bits": 4, "learning_rate": 0.01, "max_length": 20}.items() <= qlora.items()


def test_on_a_gpu(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swift, "_has_bf16", lambda: True)
    found = told(project, gpu=True)
    assert "use_cpu" not in found
    assert found["bf16"] is True


def test_conversations_keep_the_chat_template(project: Path) -> None:
    write_tiny_qwen(project / "models" / "qwen")
    write_conversations(project / "data" / "chat.jsonl")
    found = told(project, source="qwen", train="data/chat.jsonl", objective="messages")
    assert found["template"] == "qwen3"
    assert "use_chat_template" not in found
    assert "task_type" not in found


def test_labels_are_numbers_in_the_tasks_order() -> None:
    task = TextClassification(type="text-classification", labels=("b", "a"))
    rows = labelled_rows([Labelled("x", ("a",)), Labelled("y", ("b",))], task)
    assert [r["label"] for r in rows] == [1, 0]
    assert rows[0]["messages"] == [{"role": "user", "content": "x"}]
    multi = TextClassification(type="text-classification", labels=("b", "a"), multi_label=True)
    assert [r["label"] for r in labelled_rows([Labelled("x", ("a", "b")), Labelled("y", ())], multi)] == [[0, 1], []]


def test_conversations_that_will_be_cut_are_counted(project: Path) -> None:
    write_tiny_qwen(project / "models" / "qwen")
    write_conversations(project / "data" / "chat.jsonl")
    found = job(project, source="qwen", train="data/chat.jsonl", objective="messages")
    rows, _ = read_conversation_rows(found.step.data["train"])
    assert count_long(found.files, rows, 1000) == 0
    assert count_long(found.files, rows, 10) == len(rows)
    some = count_long(found.files, rows, 16)
    assert 0 < some < len(rows)


def test_pairs() -> None:
    pairs = [Pair("x", "y", 0.5), Pair("z", "w", 1.0)]
    assert pair_rows(pairs)[0] == {
        "messages": [{"role": "user", "content": "x"}],
        "positive_messages": [[{"role": "user", "content": "y"}]],
        "label": 0.5,
    }
    assert pair_loss(pairs, "f") == "cosine_similarity"
    assert pair_loss(pairs[1:], "f") == "infonce"


def test_the_argument_file_is_yaml(tmp_path: Path) -> None:
    arguments = {"model": "/a b: #c", "labels": ["x", "y"], "rate": 1e-05, "merge_lora": True, "text": "é\n"}
    assert yaml.safe_load(write_arguments(tmp_path / "a.yaml", arguments).read_text("utf-8")) == {
        **arguments, "rate": yaml.safe_load("1e-05"),
    }  # fmt: skip
    assert float(yaml.safe_load((tmp_path / "a.yaml").read_text("utf-8"))["rate"]) == 1e-05


def test_the_environment_is_offline_and_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("NPROC_PER_NODE", "8")
    monkeypatch.setenv("MY_OWN", "kept")
    cpu, gpu = environment(tmp_path, gpu=False), environment(tmp_path, gpu=True)
    for found in (cpu, gpu):
        assert found["HF_HUB_OFFLINE"] == found["TRANSFORMERS_OFFLINE"] == found["HF_DATASETS_OFFLINE"] == "1"
        assert not {"WANDB_PROJECT", "HF_TOKEN"} & set(found)
        assert found["MY_OWN"] == "kept"
        assert all(found[n].startswith(str(tmp_path)) for n in ("HF_HOME", "MODELSCOPE_CACHE", "TMPDIR"))
    assert cpu["OMP_NUM_THREADS"] == "1"
    assert "NPROC_PER_NODE" not in cpu
    assert gpu["NPROC_PER_NODE"] == "8"
    assert "CUDA_VISIBLE_DEVICES" not in gpu


def test_a_missing_package_says_what_to_install(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert "edgespec[build]" in refused("ES531", lambda: require("swift", package="ms-swift")).detail


# --- models before and after


def test_what_a_classifier_lacks_is_added_from_the_seed(project: Path, tmp_path: Path) -> None:
    def added(seed: int, name: str) -> bytes:
        folder = write_tiny_bert(tmp_path / name)
        assert complete(folder, labels=LABELS, seed=seed)
        return (folder / "model.safetensors").read_bytes()

    first, same, other = added(1, "a"), added(1, "b"), added(2, "c")
    assert first == same != other
    tensors = read_tensors(first)
    assert tensors["pooler.dense.weight"].shape == (WIDTH, WIDTH)
    assert 0.01 < np.std(array_of(tensors["pooler.dense.weight"])) < 0.03
    before = read_tensors((project / "models" / "tiny" / "model.safetensors").read_bytes())
    assert all(bytes(tensors[n].data) == bytes(t.data) for n, t in before.items())


def test_a_pooler_that_is_there_stays(tmp_path: Path) -> None:
    folder = write_tiny_bert(tmp_path / "m", labels=LABELS)
    before = read_tensors((folder / "model.safetensors").read_bytes())
    assert complete(folder, labels=LABELS, seed=1)
    after = read_tensors((folder / "model.safetensors").read_bytes())
    assert {n: bytes(t.data) for n, t in after.items()} == {n: bytes(t.data) for n, t in before.items()}


def test_a_classifier_of_other_labels_goes(tmp_path: Path) -> None:
    folder = write_tiny_bert(tmp_path / "m", labels=["yes", "no"])
    assert not complete(folder, labels=LABELS, seed=1)
    assert not [n for n in read_tensors((folder / "model.safetensors").read_bytes()) if n.startswith("classifier")]


def test_whose_labels_a_classifier_has() -> None:
    classifier = {"architectures": ["BertForSequenceClassification"]}
    assert fits({"architectures": ["BertModel"]}, LABELS)
    assert fits({**classifier, "id2label": {"0": "a", "1": "b"}}, ("a", "b"))
    assert fits({**classifier, "id2label": {"0": "LABEL_0", "1": "LABEL_1"}}, ("a", "b"))
    assert not fits({**classifier, "id2label": {"0": "b", "1": "a"}}, ("a", "b"))
    assert not fits(classifier, LABELS)


def test_the_checkpoint_says_the_tasks_labels(tmp_path: Path) -> None:
    folder = write_tiny_bert(tmp_path / "m", labels=[f"LABEL_{i}" for i in range(3)], torch_dtype="float32")
    own = {"tokenizer.json": b"{}"}
    config = checkpoint.classifier_config(folder, LABELS, multi_label=True)
    checkpoint.tidy_checkpoint(folder, own, config)
    found = json.loads((folder / "config.json").read_text())
    assert found["id2label"] == {"0": LABELS[0], "1": LABELS[1], "2": LABELS[2]}
    assert found["problem_type"] == "multi_label_classification"
    assert found["architectures"] == ["BertForSequenceClassification"]
    assert not {"torch_dtype", "num_labels"} & set(found)
    assert (folder / "tokenizer.json").read_bytes() == b"{}"
    assert not (folder / "tokenizer_config.json").exists()


def test_a_classifier_is_named_after_its_model(tmp_path: Path) -> None:
    for name, wanted in (("BertModel", "Bert"), ("Qwen3ForCausalLM", "Qwen3"), ("BertForMaskedLM", "Bert")):
        (tmp_path / "config.json").write_text(json.dumps({"architectures": [name]}))
        found = checkpoint.classifier_config(tmp_path, LABELS, multi_label=False)["architectures"]
        assert found == [f"{wanted}ForSequenceClassification"]


def test_the_last_checkpoint(tmp_path: Path, refused: Refused) -> None:
    refused("ES558", lambda: last_checkpoint(tmp_path))
    for name in ("checkpoint-9", "checkpoint-25", "checkpoint-25-merged", "last-checkpoint"):
        (tmp_path / name).mkdir()
    assert last_checkpoint(tmp_path).name == "checkpoint-25"
