from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgespec.artifact import Manifest
from edgespec.build.cache import Cache
from edgespec.build.embed import TextEncoder, read_tokenizer
from edgespec.build.pipeline import BuildEvent, Pipeline
from edgespec.build.stages.pack import pack_tokenizer
from edgespec.diagnostics import Diagnostic, EdgespecError
from edgespec.spec.models import EdgeModel
from edgespec.values import UNKNOWN, canonical_json, sha256_hex
from tests.tiny import EXAMPLES, WIDTH, write_examples, write_tiny_bert

Spec = Callable[..., EdgeModel]
Refused = Callable[[str, Callable[[], object]], Diagnostic]
EMBEDDING = {"task": {"type": "embedding", "max_tokens": 16}, "model": {"source": "./models/tiny"}}


def content(pipeline: Pipeline, manifest: Manifest, name: str) -> bytes:
    """A file of the artifact, put together from its chunks as a Worker does it."""
    data = b""
    for chunk in manifest.files[name].chunks:
        path = pipeline.blob(chunk.sha256)
        assert path is not None
        assert path.stat().st_size == chunk.size
        data += path.read_bytes()
    assert sha256_hex(data) == manifest.files[name].sha256
    return data


def encoder(pipeline: Pipeline, manifest: Manifest, source: str = "tiny") -> TextEncoder:
    """The artifact's graph behind the tokenizer of the model that it was made from."""
    raw = pack_tokenizer((pipeline.root / "models" / source / "tokenizer.json").read_bytes())
    return TextEncoder(content(pipeline, manifest, "model.onnx"), read_tokenizer(raw, manifest.task["max_tokens"]))


def ran(events: list[BuildEvent]) -> list[str]:
    return sorted({e.stage for e in events if not e.cached})


def test_from_a_spec_to_an_artifact(pipeline: Pipeline, spec: Spec, events: list[BuildEvent]) -> None:
    before = pipeline.facts(spec())
    assert before.manifest is None
    assert [(s.name, s.cached) for s in before.stages] == [
        ("fetch", True), ("export", False), ("head", False), ("quantize", False), ("pack", False),
    ]  # fmt: skip
    assert events == []

    manifest = pipeline.build(spec())
    assert ran(events) == ["export", "head", "pack", "quantize"]
    after = pipeline.facts(spec())
    assert after.manifest == manifest
    assert all(s.cached for s in after.stages)
    assert (after.key, after.inputs) == (before.key, before.inputs)
    assert [s.key for s in after.stages] == [s.key for s in before.stages]

    raw = pipeline.blob(manifest.digest)
    assert raw is not None
    assert raw.read_bytes() == manifest.encode()
    assert manifest.to_json()["task"] == {
        "type": "text-classification", "labels": ["refund", "delivery", "other"], "multi_label": False,
        "threshold": 0.5, "max_tokens": 32,
    }  # fmt: skip
    assert manifest.to_json()["model"] == {
        "inputs": ["input_ids", "attention_mask", "token_type_ids"], "output": "logits", "dimensions": 3,
        "quantization": "int8",
    }  # fmt: skip

    model = onnx.load_from_string(content(pipeline, manifest, "model.onnx"))
    onnx.checker.check_model(model, full_check=True)
    assert [o.name for o in model.graph.output] == ["logits"]
    assert (model.producer_name, model.doc_string, len(model.metadata_props)) == ("", "", 0)
    kinds = [n.op_type for n in model.graph.node]
    assert kinds.count("MatMulInteger") == 12
    assert kinds.count("Gemm") == 1
    answer = encoder(pipeline, manifest)
    rows = [(label, answer.run(text)) for label, texts in EXAMPLES.items() for text in texts]
    right = sum(["refund", "delivery", "other"][int(row.argmax())] == label for label, row in rows)
    assert right / len(rows) >= 0.9


def test_a_second_build_runs_nothing(pipeline: Pipeline, spec: Spec, events: list[BuildEvent]) -> None:
    first = pipeline.build(spec())
    events.clear()
    assert pipeline.build(spec()) == first
    assert ran(events) == []
    assert {e.stage for e in events} == {"fetch", "export", "head", "quantize", "pack"}


@pytest.mark.parametrize(
    ("change", "runs"),
    [
        ({"task": {"threshold": 0.4}}, ["pack"]),
        ({"task": {"max_tokens": 16}}, ["head", "pack"]),
        ({"cache": {"weights": {"kv": {"chunk": "64KiB"}}}}, ["pack"]),
        ({"quantization": {"method": "none"}}, ["pack", "quantize"]),
        ({"metadata": {"name": "renamed", "labels": {"a": "b"}}}, []),
        ({"worker": {"plan": "free", "engine": "onnxruntime"}}, []),
        ({"regions": {"shards": {"eu": {"jurisdiction": "eu"}}}}, []),
    ],
)
def test_only_what_depends_on_a_change_runs(
    pipeline: Pipeline, spec: Spec, events: list[BuildEvent], change: dict[str, Any], runs: list[str]
) -> None:
    pipeline.build(spec())
    key = pipeline.facts(spec()).key
    task = spec().task.model_dump() | change.get("task", {})
    changed = spec(**{**change, "task": task})
    facts = pipeline.facts(changed)
    assert sorted(s.name for s in facts.stages if not s.cached) == runs
    assert (facts.key == key) == (runs == [])
    events.clear()
    pipeline.build(changed)
    assert ran(events) == runs


def test_an_encoder_is_built_once_for_all_heads(
    pipeline: Pipeline, spec: Spec, events: list[BuildEvent], project: Path
) -> None:
    first = pipeline.build(spec())
    events.clear()
    write_examples(project / "data" / "other.jsonl", {k: v[:4] for k, v in EXAMPLES.items()})
    head = {"head": {"train": "data/other.jsonl"}}
    small = {"weights": {"kv": {"chunk": "64KiB"}}}
    second = pipeline.build(spec(model={"source": "./models/tiny", "pipeline": [head]}))
    assert ran(events) == ["head", "pack"]
    assert second.digest != first.digest
    assert pipeline.build(spec(**EMBEDDING, cache=small)).model.output == "embedding"


def test_models_that_differ_in_their_heads_share_chunks(pipeline: Pipeline, spec: Spec, project: Path) -> None:
    """The head's weights are last in the file: a new head uploads the first chunk, the last, and no other."""
    write_tiny_bert(project / "models" / "tiny", vocab_size=10)  # vocab_size is not read: the table has its own size
    write_examples(project / "data" / "other.jsonl", {k: v[:4] for k, v in EXAMPLES.items()})
    fields: dict[str, Any] = {"quantization": {"method": "none"}, "cache": {"weights": {"kv": {"chunk": "64KiB"}}}}
    one = pipeline.build(spec(**fields)).files["model.onnx"].chunks
    head = {"head": {"train": "data/other.jsonl"}}
    two = (
        pipeline.build(spec(**fields, model={"source": "./models/tiny", "pipeline": [head]})).files["model.onnx"].chunks
    )
    assert len(one) == len(two) >= 2
    assert one[:-1] == two[:-1]
    assert one[-1] != two[-1]


def test_embedding_output_is_not_normalised(pipeline: Pipeline, spec: Spec) -> None:
    manifest = pipeline.build(spec(**EMBEDDING, quantization={"method": "none"}))
    assert (manifest.model.output, manifest.model.dimensions, manifest.model.quantization) == (
        "embedding",
        WIDTH,
        "none",
    )
    assert not any(s.name == "head" for s in pipeline.facts(spec(**EMBEDDING)).stages)
    vector = encoder(pipeline, manifest).run("where is my parcel")
    assert vector.shape == (WIDTH,)
    assert abs(float(np.linalg.norm(vector)) - 1) > 0.1


def test_int8_is_close_to_float32(pipeline: Pipeline, spec: Spec) -> None:
    exact = encoder(pipeline, pipeline.build(spec(**EMBEDDING, quantization={"method": "none"})))
    small = encoder(pipeline, pipeline.build(spec(**EMBEDDING)))
    for texts in EXAMPLES.values():
        for text in texts:
            a, b = exact.run(text), small.run(text)
            assert a @ b / np.linalg.norm(a) / np.linalg.norm(b) > 0.995


def test_multi_label(pipeline: Pipeline, spec: Spec, project: Path) -> None:
    rows = [{"text": t, "labels": [k] if k != "other" else []} for k, texts in EXAMPLES.items() for t in texts]
    (project / "data" / "train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    task = {"type": "text-classification", "labels": ["refund", "delivery"], "multi_label": True, "max_tokens": 32}
    head = {"head": {"train": "data/train.jsonl", "l2": 0.05}}
    manifest = pipeline.build(spec(task=task, model={"source": "./models/tiny", "pipeline": [head]}))
    logits = encoder(pipeline, manifest).run("where is my parcel")
    assert logits.shape == (2,)
    assert logits[1] > 0 > logits[0]


def test_a_tokenizer_without_tables_is_packed_as_json(pipeline: Pipeline, spec: Spec, project: Path) -> None:
    path = project / "models" / "tiny" / "tokenizer.json"
    unusual = {"type": "Split", "pattern": {"Regex": "[xyz]+"}, "behavior": "Isolated", "invert": False}
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "pre_tokenizer": unusual}))
    manifest = pipeline.build(spec())
    raw = content(pipeline, manifest, "tokenizer.json")
    data = json.loads(raw)
    assert data["truncation"] is data["padding"] is None
    assert raw == canonical_json(data).encode()
    assert json.loads(content(pipeline, manifest, "tokenizer_config.json")) == {
        "cls_token": "[CLS]", "mask_token": "[MASK]", "pad_token": "[PAD]", "sep_token": "[SEP]", "unk_token": "[UNK]",
    }  # fmt: skip


# --- classifiers that a model brings


@pytest.mark.parametrize("kind", ["bert", "distilbert", "roberta"])
def test_a_classifier_of_the_model_is_mapped_by_name(pipeline: Pipeline, spec: Spec, project: Path, kind: str) -> None:
    own = ("Delivery", "other", "refund")
    write_tiny_bert(project / "models" / "own", kind, labels=own)
    task = {"type": "text-classification", "max_tokens": 32}
    fields: dict[str, Any] = {"model": {"source": "./models/own"}, "quantization": {"method": "none"}}
    given = pipeline.build(spec(task={**task, "labels": ["Delivery", "other", "refund"]}, **fields))
    mapped = pipeline.build(spec(task={**task, "labels": ["refund", "delivery", "other"]}, **fields))
    a, b = encoder(pipeline, given).run("late parcel"), encoder(pipeline, mapped).run("late parcel")
    np.testing.assert_allclose(a[[2, 0, 1]], b, atol=1e-6)
    assert mapped.model.output == "logits"


def test_labels_without_names_keep_their_order(pipeline: Pipeline, spec: Spec, project: Path) -> None:
    write_tiny_bert(project / "models" / "own", labels=("LABEL_0", "LABEL_1", "LABEL_2"))
    assert pipeline.build(spec(model={"source": "./models/own"})).model.dimensions == 3


@pytest.mark.parametrize("own", [("refund", "delivery"), ("refund", "delivery", "others"), ("a", "b", "c", "d")])
def test_other_labels_are_an_error_that_names_both(
    pipeline: Pipeline, spec: Spec, project: Path, refused: Refused, own: tuple[str, ...]
) -> None:
    write_tiny_bert(project / "models" / "own", labels=own)
    d = refused("ES512", lambda: pipeline.facts(spec(model={"source": "./models/own"})))
    assert f"[{', '.join(own)}]" in d.detail
    assert "[refund, delivery, other]" in d.detail


# --- inputs that cannot work: found before anything is built, in a plan too


def test_a_classification_needs_a_classifier(pipeline: Pipeline, spec: Spec, refused: Refused) -> None:
    d = refused("ES513", lambda: pipeline.facts(spec(model={"source": "./models/tiny"})))
    assert "head: {train: data/train.jsonl}" in d.detail


def test_missing_training_data(pipeline: Pipeline, spec: Spec, project: Path, refused: Refused) -> None:
    (project / "data" / "train.jsonl").unlink()
    assert "data/train.jsonl" in refused("ES500", lambda: pipeline.facts(spec())).detail
    (project / "data" / "train.jsonl").mkdir()
    refused("ES500", lambda: pipeline.facts(spec()))


def test_broken_training_data_is_found_before_the_export(
    pipeline: Pipeline, spec: Spec, project: Path, events: list[BuildEvent]
) -> None:
    path = project / "data" / "train.jsonl"
    lines = path.read_text().splitlines()
    lines[16] = '{"text": "x", "label": "refnd"}'
    lines[3] = "{"
    path.write_text("\n".join(lines))
    for action in (pipeline.facts, pipeline.build):
        with pytest.raises(EdgespecError) as caught:
            action(spec())
        found = [(d.code, str(d.source)) for d in caught.value.diagnostics]
        assert found == [("ES521", "data/train.jsonl:4:2"), ("ES525", "data/train.jsonl:17:24")]
    assert events == []


def test_more_tokens_than_positions(pipeline: Pipeline, spec: Spec, refused: Refused) -> None:
    d = refused("ES515", lambda: pipeline.facts(spec(**{**EMBEDDING, "task": {"type": "embedding", "max_tokens": 65}})))
    assert "Write 64 or less" in d.detail


@pytest.mark.parametrize(
    ("name", "text", "code", "when"),
    [
        ("config.json", "{", "ES510", "facts"),
        ("config.json", '{"model_type": "t5"}', "ES510", "facts"),
        ("1_Pooling/config.json", '{"pooling_mode_max_tokens": true}', "ES510", "facts"),
        ("1_Pooling/config.json", "{}", "ES510", "facts"),
        ("modules.json", '[{"type": "sentence_transformers.models.Dense"}]', "ES510", "facts"),
        ("tokenizer.json", "{}", "ES506", "build"),
        ("tokenizer.json", "{", "ES506", "build"),
        ("tokenizer_config.json", "[1]", "ES506", "build"),
        ("model.safetensors", "", "ES511", "build"),
        ("model.safetensors", "some text that is no model", "ES511", "build"),
    ],
)
def test_broken_files_of_a_model(
    pipeline: Pipeline, spec: Spec, project: Path, refused: Refused, name: str, text: str, code: str, when: str
) -> None:
    path = project / "models" / "tiny" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    refused(code, lambda: getattr(pipeline, when)(spec(**EMBEDDING)))


def test_weights_cut_short(pipeline: Pipeline, spec: Spec, project: Path, refused: Refused) -> None:
    path = project / "models" / "tiny" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    assert "cut short" in refused("ES511", lambda: pipeline.build(spec(**EMBEDDING))).detail


def test_a_tokenizer_of_another_model(pipeline: Pipeline, spec: Spec, project: Path, refused: Refused) -> None:
    path = project / "models" / "tiny" / "tokenizer.json"
    data = json.loads(path.read_text())
    data["model"]["vocab"]["strange"] = 5000
    path.write_text(json.dumps(data))
    assert "5000" in refused("ES506", lambda: pipeline.build(spec(**EMBEDDING))).detail


def test_pooling_by_the_first_token(pipeline: Pipeline, spec: Spec, project: Path) -> None:
    mean = pipeline.build(spec(**EMBEDDING))
    write_tiny_bert(project / "models" / "tiny", pooling="cls")
    cls = pipeline.build(spec(**EMBEDDING))
    write_tiny_bert(project / "models" / "tiny", pooling="mean")
    assert pipeline.build(spec(**EMBEDDING)).files["model.onnx"] == mean.files["model.onnx"] != cls.files["model.onnx"]


def test_a_package_that_is_not_here_yet(pipeline: Pipeline, spec: Spec) -> None:
    facts = pipeline.facts(spec(**{**EMBEDDING, "model": {"source": "package:edgespec-no-such-model"}}))
    assert facts.inputs["source_digest"] is UNKNOWN
    assert facts.key is None
    assert facts.manifest is None
    assert [(s.name, s.key, s.cached) for s in facts.stages] == [
        (n, None, False) for n in ("fetch", "export", "quantize", "pack")
    ]


# --- accidents


def test_an_input_edited_during_its_build_is_noticed(project: Path, tmp_path: Path, spec: Spec) -> None:
    path = project / "data" / "train.jsonl"
    before = path.read_text()

    def edit(event: BuildEvent) -> None:
        if event.stage == "head":
            path.write_text(before + '{"text": "one more", "label": "other"}\n')

    cache = Cache(tmp_path / "cache")
    with pytest.raises(EdgespecError, match=r"ES530.*data/train\.jsonl was edited") as caught:
        Pipeline(project, cache, edit).build(spec())
    assert "not kept" in str(caught.value)
    quiet = Pipeline(project, cache, lambda _: None)
    assert [s.name for s in quiet.facts(spec()).stages if not s.cached] == ["head", "quantize", "pack"]
    path.write_text(before)
    assert [s.name for s in quiet.facts(spec()).stages if not s.cached] == ["head", "quantize", "pack"]
    assert quiet.build(spec()) == Pipeline(project, Cache(tmp_path / "clean"), lambda _: None).build(spec())


def test_weights_edited_during_the_export_are_noticed(project: Path, tmp_path: Path, spec: Spec) -> None:
    def edit(event: BuildEvent) -> None:
        write_tiny_bert(project / "models" / "tiny", seed=event.stage == "export")

    pipeline = Pipeline(project, Cache(tmp_path / "cache"), edit)
    with pytest.raises(EdgespecError, match=r"ES530.*model.safetensors"):
        pipeline.build(spec(**EMBEDDING))
    assert not (tmp_path / "cache" / "v1" / "stages").exists()


def test_killed_at_any_moment_the_next_build_gives_the_same(project: Path, tmp_path: Path, spec: Spec) -> None:
    seen: list[BuildEvent] = []
    expected = Pipeline(project, Cache(tmp_path / "clean"), seen.append).build(spec())

    class Killed(BaseException):
        pass

    for moment in range(len(seen)):
        left = [moment]

        def count(event: BuildEvent, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Killed

        root = tmp_path / f"cache-{moment}"
        with pytest.raises(Killed):
            Pipeline(project, Cache(root), count).build(spec())
        assert Pipeline(project, Cache(root), lambda _: None).build(spec()) == expected
        assert not list(root.rglob(".writing-*"))


def test_damage_in_the_cache_is_repaired(pipeline: Pipeline, project: Path, tmp_path: Path, spec: Spec) -> None:
    manifest = pipeline.build(spec())
    blobs = [p for p in (tmp_path / "cache").rglob("blobs/*/*") if p.is_file()]
    assert len(blobs) > 6
    for path in blobs:
        good = path.read_bytes()
        for bad in (b"", good[:-1], bytes([good[0] ^ 1]) + good[1:]):
            path.write_bytes(bad)
            assert Pipeline(project, Cache(tmp_path / "cache"), lambda _: None).build(spec()) == manifest
        path.write_bytes(good)
    for chunk in manifest.chunks:
        assert pipeline.blob(chunk.sha256) is not None


def test_the_cache_may_be_deleted(pipeline: Pipeline, tmp_path: Path, spec: Spec) -> None:
    manifest = pipeline.build(spec())
    shutil.rmtree(tmp_path / "cache")
    assert pipeline.blob(manifest.digest) is None
    assert pipeline.facts(spec()).manifest is None
    assert pipeline.build(spec()) == manifest


def test_a_blob_that_nobody_made(pipeline: Pipeline) -> None:
    assert pipeline.blob("0" * 64) is None
    assert pipeline.blob("../stat.json") is None
