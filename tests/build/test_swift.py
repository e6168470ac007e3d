"""ms-swift for real, on tiny models made on the spot: training, merging, quantising. A start of the tool costs 15 s, so
each run serves several tests, and two run at a time."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgespec.build.cache import Cache
from edgespec.build.events import BuildEvent
from edgespec.build.gkd import distil
from edgespec.build.packed import Checkpoint
from edgespec.build.quantised import array_of, bnb_float, gptq_float, gptq_version, matrices, unpack
from edgespec.build.sources import find
from edgespec.build.stages import awq, bnb, finetune, gptq
from edgespec.build.stages.stage import Job, Result, Stage, Step
from edgespec.build.weights_file import RawTensor, read_tensors
from edgespec.diagnostics import EdgespecError
from edgespec.spec.models import EdgeModel
from edgespec.spec.pipeline import DistillStage, FinetuneStage, Quantization
from tests.build.tiny_lm import lm_weights, write_conversations, write_tiny_qwen
from tests.tiny import EXAMPLES, tiny_spec, tiny_weights, write_examples, write_tiny_bert

pytestmark = pytest.mark.skipif(importlib.util.find_spec("swift") is None, reason="needs edgespec[build]")
LABELS = tuple(EXAMPLES)
TASK = {"type": "text-classification", "labels": list(LABELS), "max_tokens": 32}
TRAIN = {"train": "data/train.jsonl", "epochs": 40, "batch_size": 6, "learning_rate": 0.003, "seed": 3}


@dataclass(slots=True)
class Run:
    result: Result
    events: list[BuildEvent]
    log: str

    def tensors(self) -> dict[str, RawTensor]:
        return read_tensors(bytes(self.result.outputs["model.safetensors"]))

    def config(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads(bytes(self.result.outputs["config.json"]))
        return found

    def write(self, folder: Path) -> Path:
        for name, data in self.result.outputs.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        return folder


@dataclass(slots=True)
class Project:
    root: Path
    events: list[BuildEvent] = field(default_factory=list)

    def job(
        self, stage: Stage, options: Any, source: str, data: Mapping[str, str], task: Mapping[str, Any] = TASK
    ) -> Job:
        cache = Cache(self.root / "cache")
        spec = EdgeModel.model_validate(tiny_spec(stage.name, source=f"./models/{source}", task=dict(task)))
        files = {field: cache.input(self.root / path, path, text=True) for field, path in data.items()}
        step = Step(name=stage.name, stage=stage, parents=("fetch",), options=options, data=files)
        model = find(spec.model.source, self.root, cache)
        assert model is not None
        return Job(spec, model, cache, self.events.append, step, self.root)

    def run(self, job: Job, work: Callable[[Job], Result] | None = None) -> Run:
        job.step.stage.check_data(job)
        job.step.stage.check(job)
        result = (work or job.step.stage.run)(job)
        return Run(result, self.events, job.log_path().read_text(encoding="utf-8", errors="replace"))


def new_project(root: Path) -> Project:
    write_tiny_bert(root / "models" / "bert")
    write_tiny_bert(root / "models" / "classifier", labels=LABELS)
    write_tiny_qwen(root / "models" / "qwen")
    write_tiny_qwen(root / "models" / "small", layers=1, seed=1)
    write_examples(root / "data" / "train.jsonl")
    write_conversations(root / "data" / "chat.jsonl")
    return Project(root)


def tune(project: Project, source: str, **options: Any) -> Run:
    settings = FinetuneStage.model_validate({**TRAIN, **options})
    data = {k: v for k, v in (("train", settings.train), ("validation", settings.validation)) if v is not None}
    return project.run(project.job(finetune.STAGE, settings, source, data))


def quantise(project: Project, stage: Stage, source: str, **options: Any) -> Run:
    data = {} if stage is bnb.STAGE else {"calibration.data": "data/train.jsonl"}
    calibration = {"calibration": {"data": "data/train.jsonl"}} if data else {}
    settings = Quantization.model_validate({"method": stage.name, **calibration, **options})
    return project.run(project.job(stage, settings, source, data))


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Run]]:
    """Starts every run at once, two at a time, each in a project of its own; gives a run when it is there."""

    def project(name: str) -> Project:
        return new_project(tmp_path_factory.mktemp(name) / "project")

    def full(name: str) -> Run:
        return tune(project(name), "bert", validation="data/train.jsonl")

    def qlora() -> tuple[Run, Run]:
        """The article's way: QLoRA, merge, GPTQ."""
        place = project("qlora")
        tuned = tune(place, "qwen", method="qlora", bits=4, epochs=20)
        tuned.write(place.root / "models" / "tuned")
        return tuned, quantise(place, gptq.STAGE, "tuned", group_size=32)

    def chat() -> Run:
        options = {"train": "data/chat.jsonl", "objective": "messages", "method": "lora", "max_tokens": 64,
                   "epochs": 30, "learning_rate": 0.01}  # fmt: skip
        return tune(project("chat"), "qwen", **options)

    def gkd() -> Run:
        place = project("gkd")
        options = DistillStage.model_validate({"method": "gkd", "data": "data/chat.jsonl", "source": "./models/small"})
        job = place.job(finetune.STAGE, options, "qwen", {"data": "data/chat.jsonl"})
        small = find("./models/small", place.root, job.cache)
        assert small is not None
        step = Step(name="distill", stage=job.step.stage, parents=(), options=options, data=job.step.data,
                    models={"source": small})  # fmt: skip
        job.step = step
        return Run(distil(job), place.events, job.log_path().read_text(encoding="utf-8", errors="replace"))

    def broken() -> str:
        place = project("broken")
        weights = tiny_weights()
        weights["encoder.layer.1.output.LayerNorm.weight"][:] = np.nan
        write_tiny_bert(place.root / "models" / "broken", weights=weights)
        with pytest.raises(EdgespecError) as caught:
            tune(place, "broken")
        (diagnostic,) = caught.value.diagnostics
        return f"{diagnostic.code} {diagnostic.detail}"

    short = tempfile.TemporaryDirectory(prefix="es-", dir="/tmp")  # ms-swift binds a socket in it: 108 characters
    tempfile.tempdir = short.name
    jobs: dict[str, Callable[[], Any]] = {
        "full": lambda: full("full"),
        "again": lambda: full("again"),
        "qlora": qlora,
        "chat": chat,
        "gkd": gkd,
        "awq": lambda: quantise(project("awq"), awq.STAGE, "qwen", group_size=32),
        "bnb": lambda: quantise(project("bnb"), bnb.STAGE, "classifier"),
        "broken": broken,
    }
    with ThreadPoolExecutor(2) as pool:
        futures: dict[str, Future[Any]] = {name: pool.submit(job) for name, job in jobs.items()}
        try:
            yield lambda name: futures[name].result()
        finally:
            for future in futures.values():
                future.cancel()
            tempfile.tempdir = None
            short.cleanup()


def answers(folder: Path) -> dict[str, str]:
    """What a classifier's checkpoint says of each example, by transformers, which did not train it."""
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    found = {}
    with torch.no_grad():
        for text in (t for texts in EXAMPLES.values() for t in texts):
            logits = model(input_ids=torch.tensor([tokenizer.encode(text).ids])).logits
            found[text] = model.config.id2label[int(logits.argmax())]
    return found


def wrong(found: Mapping[str, str]) -> int:
    return sum(found[text] != label for label, texts in EXAMPLES.items() for text in texts)


def test_a_classifier_under_the_tasks_labels(start: Callable[[str], Run], tmp_path: Path) -> None:
    run = start("full")
    config = run.config()
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["id2label"] == {str(i): label for i, label in enumerate(LABELS)}
    assert config["label2id"] == {label: i for i, label in enumerate(LABELS)}
    assert wrong(answers(run.write(tmp_path))) == 0
    assert set(run.result.outputs) == {
        "config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors",
    }  # fmt: skip
    assert run.result.notes["deterministic"] is True
    assert run.result.notes["measures"]["eval_acc"] == 1.0


def test_its_progress(start: Callable[[str], Run]) -> None:
    run = start("full")
    steps = [e for e in run.events if e.message.startswith("step ")]
    assert steps[-1].message.startswith("step 120 of 120, loss ")
    assert "validation accuracy 1" in steps[-1].message
    assert [e.fraction for e in steps if e.fraction is not None] == sorted(e.fraction or 0 for e in steps)
    assert steps[-1].fraction == 1.0
    assert 'model_type: "bert"' in run.log
    assert "num_train_epochs" in run.log


def test_the_same_inputs_give_the_same_bytes(start: Callable[[str], Run]) -> None:
    first, second = start("full"), start("again")
    assert {n: bytes(d) for n, d in first.result.outputs.items()} == {
        n: bytes(d) for n, d in second.result.outputs.items()
    }
    assert first.result.notes == second.result.notes


def test_qlora_merged_into_float(start: Callable[[str], Any], tmp_path: Path) -> None:
    run: Run = start("qlora")[0]
    tensors = run.tensors()
    assert {t.dtype for t in tensors.values()} == {"F32"}
    assert "quantization_config" not in run.config()
    assert run.config()["architectures"] == ["Qwen3ForSequenceClassification"]
    base = lm_weights(int(run.config()["vocab_size"]))
    name = "model.layers.0.self_attn.q_proj.weight"
    change = array_of(tensors[name]) - base[name]
    assert np.linalg.matrix_rank(change, tol=1e-4) in range(1, 9)  # an adapter of rank 8, over exact float weights
    np.testing.assert_array_equal(array_of(tensors["model.embed_tokens.weight"]), base["model.embed_tokens.weight"])
    assert wrong(answers(run.write(tmp_path))) <= 1


def test_gptq_of_what_was_merged(start: Callable[[str], Any]) -> None:
    tuned, packed = start("qlora")
    tensors = packed.tensors()
    note = packed.config()["quantization_config"]
    assert note == {
        "quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True, "desc_act": False,
        "checkpoint_format": "gptq",
    }  # fmt: skip
    assert gptq_version(tensors, 4) == 1
    names = matrices(tensors)
    assert len(names) == 14  # seven matrices in each of two layers
    floats = tuned.tensors()
    for name in names:
        wanted = array_of(floats[f"{name}.weight"])
        error = np.linalg.norm(gptq_float(tensors, name, 4, 1) - wanted) / np.linalg.norm(wanted)
        assert error < 0.2
        assert np.linalg.norm(gptq_float(tensors, name, 4, 2) - wanted) / np.linalg.norm(wanted) > 0.25
    kept = {n for n in floats if n.removesuffix(".weight") not in names}
    assert all(bytes(tensors[n].data) == bytes(floats[n].data) for n in kept)
    assert packed.config()["id2label"] == tuned.config()["id2label"]
    assert any(e.message.startswith("step 2 of 2") for e in packed.events)


def test_a_language_model_on_conversations(start: Callable[[str], Run], tmp_path: Path) -> None:
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM

    run = start("chat")
    assert run.config()["architectures"] == ["Qwen3ForCausalLM"]
    folder = run.write(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def likely(answer: str, text: str) -> float:
        prompt = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
        before, after = tokenizer.encode(prompt).ids, tokenizer.encode(answer).ids
        with torch.no_grad():
            scores = model(input_ids=torch.tensor([before + after])).logits[0].log_softmax(-1)
        return float(sum(scores[len(before) - 1 + i, token] for i, token in enumerate(after)))

    right = sum(
        max(LABELS, key=lambda answer: likely(answer, text)) == label
        for label, texts in EXAMPLES.items()
        for text in texts
    )
    assert right >= 16  # of 18; chance is 6


def test_gkd_keeps_the_students_shape(start: Callable[[str], Run]) -> None:
    run = start("gkd")
    assert run.config()["num_hidden_layers"] == 1
    assert run.config()["architectures"] == ["Qwen3ForCausalLM"]
    before = lm_weights(int(run.config()["vocab_size"]), 1, seed=1)
    after = run.tensors()
    assert set(before) == set(after)
    name = "model.layers.0.mlp.up_proj.weight"
    assert np.abs(array_of(after[name]) - before[name]).max() > 1e-5
    assert run.result.notes["measures"]["loss"] > 0


def awq_float(tensors: Mapping[str, RawTensor], name: str, group_size: int) -> np.ndarray:
    """A matrix of AWQ in float32, [N, K]: eight columns a word in the order 0, 2, 4, 6, 1, 3, 5, 7."""
    order = np.argsort([0, 2, 4, 6, 1, 3, 5, 7])

    def columns(words: np.ndarray) -> np.ndarray:
        return unpack(words, 4, axis=1).reshape(len(words), -1, 8)[:, :, order].reshape(len(words), -1)

    values, zeros = (columns(array_of(tensors[f"{name}.{part}"])) for part in ("qweight", "qzeros"))
    scales = array_of(tensors[f"{name}.scales"]).astype(np.float32)
    groups = np.arange(len(values)) // group_size
    return np.ascontiguousarray(((values - zeros[groups]) * scales[groups]).T)


def test_awq_says_what_the_float_model_says(start: Callable[[str], Run], tmp_path: Path) -> None:
    """On the CPU. Channels were scaled before they were rounded, so no matrix agrees by itself: the answers do."""
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    run = start("awq")
    tensors = run.tensors()
    assert run.config()["quantization_config"] == {
        "quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm",
    }  # fmt: skip
    names = matrices(tensors)
    assert len(names) == 14
    source = write_tiny_qwen(tmp_path / "float")
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        wanted = model(input_ids=ids).logits
        state = load_file(source / "model.safetensors")
        for name, tensor in tensors.items():
            if name in state:
                state[name] = torch.from_numpy(array_of(tensor).astype(np.float32))
        for name in names:
            state[f"{name}.weight"] = torch.from_numpy(awq_float(tensors, name, 32))
        model.load_state_dict({**state, "lm_head.weight": state["model.embed_tokens.weight"]})
        found = model(input_ids=ids).logits
    assert float(torch.nn.functional.cosine_similarity(found.flatten(), wanted.flatten(), dim=0)) > 0.97


def test_bnb_keeps_the_classifier_in_float(start: Callable[[str], Run]) -> None:
    run = start("bnb")
    tensors = run.tensors()
    name = "bert.encoder.layer.0.intermediate.dense"
    assert tensors[f"{name}.weight"].dtype == "I8"
    assert tensors[f"{name}.SCB"].shape == (tensors[f"{name}.weight"].shape[0],)
    assert tensors[f"{name}.bias"].dtype == "F32"
    assert tensors["classifier.weight"].dtype == "F32"
    assert run.result.notes["error_worst"] < 0.02
    assert run.config()["architectures"] == ["BertForSequenceClassification"]


def test_nan_stops_the_run(start: Callable[[str], Any]) -> None:
    found = start("broken")
    assert found.startswith("ES554 ")
    assert "at step 1" in found


def test_other_code_reads_the_packed_tensors_alike(start: Callable[[str], Any]) -> None:
    """The reader that the export uses, written from the formats' papers."""
    runs = {"gptq": start("qlora")[1], "awq": start("awq"), "bnb": start("bnb")}
    for method, run in runs.items():
        tensors = run.tensors()
        found = Checkpoint(bytes(run.result.outputs["model.safetensors"])).packed
        assert sorted(found) == matrices(tensors, ".SCB" if method == "bnb" else ".qweight")
        for name, packed in found.items():
            assert packed.method == method
            wanted = {
                "gptq": lambda n=name, t=tensors: gptq_float(t, n, 4, 1),
                "awq": lambda n=name, t=tensors: awq_float(t, n, 32),
                "bnb": lambda n=name, t=tensors: bnb_float(t, n),
            }[method]()
            np.testing.assert_allclose(packed.floats(), wanted, rtol=1e-6)


def test_nothing_stays_in_temporary_folders(start: Callable[[str], Any]) -> None:
    for name in ("full", "again", "qlora", "chat", "gkd", "awq", "bnb", "broken"):
        start(name)
    assert list(Path(tempfile.gettempdir()).glob("edgespec-*")) == []
