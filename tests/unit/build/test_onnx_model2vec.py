"""Folders of model2vec: the graph, and the whole build, against model2vec's arithmetic written in numpy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from edgespec.artifact import Manifest
from edgespec.build.cache import Cache
from edgespec.build.embed import TextEncoder, read_tokenizer
from edgespec.build.onnx_import import read_graph
from edgespec.build.onnx_model2vec import export_static, read_static
from edgespec.build.pipeline import Pipeline
from edgespec.build.weights import Tensors
from edgespec.diagnostics import Diagnostic
from edgespec.engine import reference
from edgespec.engine.compile import compile_graph
from edgespec.spec.models import EdgeModel
from tests.tiny import tiny_tokenizer, vocabulary, write_examples

Refused = Callable[[str, Callable[[], object]], Diagnostic]
COLUMNS, ROWS = 24, 40
SIZE = len(vocabulary())
TEXTS = [
    "where is my parcel",
    "refund the order please, now!",
    "a",
    "my ☃ parcel ☃☃ is late ☃",
    "☃",
    "☃ ☃☃",
    "",
    "退款 hello ß",
]
"""The tokenizer knows no snowman. The empty text and those of snowmen only are the zero vector."""
TOLERANCE = 1e-6
"""Of the largest number of the output: sums are in another order than numpy's."""

FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "normalised": {"config": {"normalize": True}},
    "older config": {"config": {"model_type": "x", "architectures": ["StaticModel"]}},
    "half": {"dtype": np.float16},
    "int8": {"dtype": np.int8},
    "weights": {"weights": True, "config": {"normalize": True}},
    "mapping": {"weights": True, "mapping": np.int64, "config": {"normalize": True}},
    "mapping alone": {"mapping": np.int32},
}


def write_static(
    folder: Path,
    tokenizer: Tokenizer | None = None,
    *,
    weights: bool = False,
    mapping: Any = None,
    dtype: Any = np.float32,
    config: dict[str, Any] | None = None,
) -> Path:
    """A folder as model2vec's save_pretrained writes it."""
    rng = np.random.default_rng(5)
    folder.mkdir(parents=True, exist_ok=True)
    table = rng.normal(size=(SIZE if mapping is None else ROWS, COLUMNS)) * (40 if dtype == np.int8 else 1)
    tensors = {"embeddings": table.astype(dtype)}
    if weights:
        tensors["weights"] = rng.uniform(0.05, 1, SIZE)
    if mapping is not None:
        tensors["mapping"] = rng.integers(0, ROWS, SIZE).astype(mapping)
    save_file(tensors, folder / "model.safetensors")
    written = {"model_type": "model2vec", "architectures": ["StaticModel"], "normalize": False, **(config or {})}
    (folder / "config.json").write_text(json.dumps(written))
    modules = [{"idx": 0, "name": "0", "path": ".", "type": "sentence_transformers.models.StaticEmbedding"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "tokenizer.json").write_text((tokenizer or tiny_tokenizer()).to_str(), encoding="utf-8")
    return folder


def encode(folder: Path, texts: list[str]) -> np.ndarray:
    """StaticModel.encode of model2vec 0.10, in float64."""
    tensors = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    unknown = tokenizer.token_to_id("[UNK]")
    found = []
    for text in texts:
        ids = [i for i in tokenizer.encode(text, add_special_tokens=False).ids if i != unknown]
        rows = tensors["embeddings"].astype(np.float64)[tensors["mapping"][ids] if "mapping" in tensors else ids]
        if "weights" in tensors:
            rows = rows * tensors["weights"][ids][:, None]
        mean = rows.mean(0) if ids else np.zeros(COLUMNS)
        found.append(mean / (np.linalg.norm(mean) + 1e-32) if config["normalize"] else mean)
    return np.stack(found)


def exported(folder: Path) -> Any:
    config = json.loads((folder / "config.json").read_text())
    tensors = Tensors((folder / "model.safetensors").read_bytes())
    return export_static(read_static(config, tensors, (folder / "tokenizer.json").read_bytes(), "the model"))


def ids_of(folder: Path, texts: list[str]) -> list[list[int]]:
    tokenizer = read_tokenizer((folder / "tokenizer.json").read_bytes(), 64)
    return [tokenizer.encode(text).ids for text in texts]


def error(found: Any, wanted: np.ndarray) -> float:
    return float(np.abs(np.asarray(found, np.float64) - wanted).max() / np.abs(wanted).max())


@pytest.mark.parametrize("form", FORMS)
def test_graph_and_program_compute_what_model2vec_does(tmp_path: Path, form: str) -> None:
    folder = write_static(tmp_path / "static", **FORMS[form])
    model, wanted = exported(folder), encode(folder, TEXTS)
    assert not wanted[4:7].any()
    assert wanted[:4].any(axis=1).all()
    encoder = TextEncoder(model.SerializeToString(), read_tokenizer((folder / "tokenizer.json").read_bytes(), 64))
    assert error([encoder.run(text) for text in TEXTS], wanted) < TOLERANCE

    compiled = compile_graph(model, quantization="none")
    assert compiled.program is not None, compiled.uncovered
    names = [type(op).__name__ for op in compiled.program.ops]
    assert names == ["Embed", "PoolTokens", *(["L2Norm"] if FORMS[form].get("config", {}).get("normalize") else [])]
    found = reference.run(compiled.program.encode(), ids_of(folder, TEXTS))
    assert error(found, wanted) < TOLERANCE

    small = compile_graph(model, quantization="int8").program
    assert small is not None
    assert error(reference.run(small.encode(), ids_of(folder, TEXTS)), wanted) < 0.02


@pytest.mark.parametrize("form", FORMS)
def test_model2vec_itself_agrees(tmp_path: Path, form: str) -> None:
    model2vec = pytest.importorskip("model2vec", reason="pip install model2vec")
    folder = write_static(tmp_path / "static", **FORMS[form])
    theirs = np.stack([model2vec.StaticModel.from_pretrained(folder).encode(text) for text in TEXTS])
    # model2vec adds up in the table's own type.
    bound = 2e-3 if FORMS[form].get("dtype") == np.float16 else TOLERANCE
    assert error(theirs, encode(folder, TEXTS)) < bound
    found = reference.run(
        compile_graph(exported(folder), quantization="none").program.encode(),  # type: ignore[union-attr]
        ids_of(folder, TEXTS),
    )
    assert error(found, theirs.astype(np.float64)) < bound


def test_texts_of_a_padded_batch_are_those_alone(tmp_path: Path) -> None:
    import onnxruntime

    folder = write_static(tmp_path / "static", weights=True)
    session = onnxruntime.InferenceSession(exported(folder).SerializeToString(), providers=["CPUExecutionProvider"])
    rows = ids_of(folder, TEXTS)
    longest = max(map(len, rows))
    ids = np.array([row + [7] * (longest - len(row)) for row in rows])
    mask = np.array([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    (found,) = session.run(None, {"input_ids": ids, "attention_mask": mask})
    assert error(found, encode(folder, TEXTS)) < TOLERANCE


def test_flat_ids_and_offsets_are_refused_with_a_way_out(refused: Refused) -> None:
    from onnx import TensorProto, helper

    inputs = [helper.make_tensor_value_info(n, TensorProto.INT64, ["n"]) for n in ("input_ids", "offsets")]
    out = helper.make_tensor_value_info("out", TensorProto.INT64, ["n"])
    nodes = [helper.make_node("Gather", ["input_ids", "offsets"], ["out"])]
    graph = helper.make_graph(nodes, "g", inputs, [out])
    raw = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    detail = str(refused("ES514", lambda: read_graph(raw, "./model.onnx")).detail)
    assert "offsets" in detail
    assert "model.safetensors" in detail


def test_unigram_tokenizers_have_an_unknown_id(tmp_path: Path) -> None:
    pieces = [(token, -float(i)) for i, token in enumerate(vocabulary())]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=1, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    folder = write_static(tmp_path / "static", tokenizer)
    model = exported(folder)
    encoder = TextEncoder(model.SerializeToString(), read_tokenizer(tokenizer.to_str().encode(), 64))
    assert not encoder.run("☃").any()
    assert encoder.run("parcel").any()
    assert error([encoder.run(text) for text in TEXTS], encode(folder, TEXTS)) < TOLERANCE


def spec(**fields: Any) -> EdgeModel:
    return EdgeModel.model_validate({
        "apiVersion": "edgespec/v1",
        "kind": "EdgeModel",
        "metadata": {"name": "static"},
        "model": {"source": "./models/static"},
        "task": {"type": "embedding", "max_tokens": 32},
        "quantization": {"method": "none"},
        **fields,
    })  # fmt: skip


def content(pipeline: Pipeline, manifest: Manifest, name: str) -> bytes:
    paths = [pipeline.blob(chunk.sha256) for chunk in manifest.files[name].chunks]
    return b"".join(path.read_bytes() for path in paths if path is not None)


@pytest.fixture
def built(tmp_path: Path) -> Pipeline:
    write_static(tmp_path / "project" / "models" / "static", weights=True, mapping=np.int64)
    write_examples(tmp_path / "project" / "data" / "train.jsonl")
    return Pipeline(tmp_path / "project", Cache(tmp_path / "cache"), lambda _: None)


def test_from_a_folder_to_an_artifact_of_the_edge_engine(built: Pipeline) -> None:
    folder = built.root / "models" / "static"
    manifest = built.build(spec())
    assert manifest.engine == "edge"
    assert manifest.model.dimensions == COLUMNS
    assert sorted(manifest.files) == ["model.edge", "tokenizer.bin"]
    found = reference.run(content(built, manifest, "model.edge"), ids_of(folder, TEXTS))
    assert error(found, encode(folder, TEXTS)) < TOLERANCE


def test_a_head_is_fitted_on_it(built: Pipeline) -> None:
    task = {"type": "text-classification", "labels": ["refund", "delivery", "other"], "max_tokens": 32}
    model = {"source": "./models/static", "pipeline": [{"head": {"train": "data/train.jsonl"}}]}
    manifest = built.build(spec(task=task, model=model))
    ids = ids_of(built.root / "models" / "static", ["refund my money please", "where is my parcel"])
    found = reference.run(content(built, manifest, "model.edge"), ids)
    assert [int(row.argmax()) for row in found] == [0, 1]


def test_it_has_no_classifier_of_its_own(built: Pipeline, refused: Refused) -> None:
    task = {"type": "text-classification", "labels": ["a", "b"], "max_tokens": 32}
    refused("ES513", lambda: built.build(spec(task=task)))


@pytest.mark.parametrize(
    ("tensors", "code", "said"),
    [
        ({"weights": np.ones(SIZE)}, "ES511", "no tensor 'embeddings'"),
        ({"embeddings": np.ones(SIZE, np.float32)}, "ES511", "1 dimensions"),
        ({"embeddings": np.ones((SIZE, 8), np.bool_)}, "ES511", "'embeddings' is BOOL"),
        ({"embeddings": np.ones((SIZE - 1, 8), np.float32)}, "ES506", f"{SIZE - 1} tokens"),
        ({"embeddings": np.ones((SIZE, 8), np.float32), "weights": np.ones(3)}, "ES511", "3 numbers"),
        ({"embeddings": np.ones((4, 8), np.float32), "mapping": np.full(SIZE, 4)}, "ES511", "'mapping' names rows"),
        ({"embeddings": np.ones((4, 8), np.float32), "mapping": np.full(SIZE, -1)}, "ES511", "'mapping' names rows"),
        ({"embeddings": np.ones((4, 8), np.float32), "mapping": np.full(SIZE, 0.5)}, "ES511", "'mapping' names rows"),
    ],
)
def test_files_that_do_not_belong_together(
    built: Pipeline, refused: Refused, tensors: dict[str, np.ndarray], code: str, said: str
) -> None:
    save_file(tensors, built.root / "models" / "static" / "model.safetensors")
    assert said in str(refused(code, lambda: built.build(spec())).detail)
