"""Families that torch exports: torch, onnxruntime and the edge engine's reference give the same answers.

An export takes some seconds, so each family is exported once, and what can be seen on one family is seen on one.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, numpy_helper
from safetensors.numpy import load_file, save

from edgespec.build import torch_export as te
from edgespec.build.cache import Cache
from edgespec.build.graph import encode
from edgespec.build.packed import Checkpoint
from edgespec.build.pipeline import BuildEvent, Pipeline
from edgespec.diagnostics import EdgespecError
from edgespec.engine import format as fmt
from edgespec.engine import pack
from edgespec.engine.compile import compile_graph
from edgespec.records import replace
from edgespec.spec.models import EdgeModel
from tests.engine.models import cosine, edge_rows, error, onnx_rows, program_of, texts
from tests.tiny import tiny_spec, tiny_tokenizer, vocabulary, write_tiny_project
from tests.unit.build.packing import Rounded, gptq, rounded

pytest.importorskip("torch", reason="torch is not installed: pip install torch transformers onnxscript")
pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
pytest.importorskip("onnxscript", reason="the dynamo exporter needs onnxscript: pip install onnxscript")

LABELS = ["refund", "delivery", "other"]
ORDER = (2, 0, 1)
VOCABULARY = len(vocabulary())
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64, "max_position_embeddings": 64, "pad_token_id": 0,
}  # fmt: skip
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "albert": ("Albert", {"embedding_size": 16}),
    "modernbert": ("ModernBert", {"local_attention": 8, "global_attn_every_n_layers": 2, "bos_token_id": 1,
                                  "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}),
    "qwen2": ("Qwen2", {"num_key_value_heads": 2, "num_hidden_layers": 1, "bos_token_id": 1, "eos_token_id": 2}),
    "qwen3": ("Qwen3", {"num_key_value_heads": 2, "head_dim": 16, "bos_token_id": 1, "eos_token_id": 2}),
}  # fmt: skip
WHOLE = {"albert": "logits", "modernbert": "mean", "qwen2": "logits", "qwen3": "last"}


@functools.cache
def saved(family: str, folder: Path, *, classifier: bool) -> Path:
    """A tiny model with weights that matter, in Hugging Face layout, its tokenizer beside it."""
    import torch
    import transformers

    torch.manual_seed(0)
    name, sizes = FAMILIES[family]
    config = getattr(transformers, f"{name}Config")(**{**SIZES, **sizes})
    kind = "Model"
    if classifier:
        kind = "ForSequenceClassification"
        config.id2label = dict(enumerate(LABELS))
        config.label2id = {label: i for i, label in enumerate(LABELS)}
    model = getattr(transformers, name + kind)(config)
    for weight in model.parameters():
        noise = torch.randn_like(weight)
        weight.data = weight.data + noise * 0.1 if weight.dim() == 1 else noise * 0.15
    place = folder / f"{family}-{kind}"
    model.save_pretrained(place)
    (place / "tokenizer.json").write_text(tiny_tokenizer().to_str(pretty=True))
    return place


@dataclass(frozen=True)
class Exported:
    config: te.Config
    wanted: te.Wanted
    tensors: Checkpoint
    model: ModelProto
    off: float


def read(folder: Path) -> tuple[te.Config, Checkpoint]:
    config = te.read_config(json.loads((folder / "config.json").read_text()), "config.json")
    return config, Checkpoint((folder / "model.safetensors").read_bytes())


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def exported(models: Path) -> Callable[[str], Exported]:
    @functools.cache
    def export(family: str) -> Exported:
        what = WHOLE[family]
        config, tensors = read(saved(family, models, classifier=what == "logits"))
        wanted = te.Wanted(None, ORDER) if what == "logits" else te.Wanted(what)
        return Exported(config, wanted, tensors, *te.export(config, tensors, wanted, "tiny", [5, 6, 7]))

    return export


def torch_rows(
    config: te.Config, tensors: Checkpoint, wanted: te.Wanted, ids: list[list[int]]
) -> list[NDArray[np.float32]]:
    """By transformers, and nothing of this package but the loading."""
    import torch

    model = te._load(config, tensors, wanted, "tiny")
    found = []
    for text in ids:
        with torch.no_grad():
            out = model(input_ids=torch.tensor([text]))
        if wanted.pooling is None:
            found.append(out.logits[0].numpy()[list(ORDER)])
        else:
            hidden = out.last_hidden_state[0].numpy()
            found.append(hidden[-1] if wanted.pooling == "last" else hidden.mean(0))
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_three_engines_agree(family: str, exported: Callable[[str], Exported]) -> None:
    each = exported(family)
    assert each.off < 1e-5
    ids = texts(vocabulary=VOCABULARY)
    wanted = torch_rows(each.config, each.tensors, each.wanted, ids)
    assert error(onnx_rows(each.model, ids), wanted) < 5e-6
    compiled = compile_graph(encode(each.model), quantization="none")
    assert error(edge_rows(program_of(compiled), ids), wanted) < 5e-6


@pytest.mark.parametrize("family", FAMILIES)
def test_the_graph_is_canonical(family: str, exported: Callable[[str], Exported]) -> None:
    model = exported(family).model
    onnx.checker.check_model(model, full_check=True)
    assert [i.name for i in model.graph.input] == ["input_ids", "attention_mask"]
    output = "logits" if WHOLE[family] == "logits" else "embedding"
    assert [o.name for o in model.graph.output] == [output]
    assert [n.name for n in model.graph.node] == [f"{n.op_type}.{i}" for i, n in enumerate(model.graph.node)]
    held = [numpy_helper.to_array(t) for t in model.graph.initializer]
    digests = [(a.dtype.str, a.shape, a.tobytes()) for a in held]
    assert len(set(digests)) == len(digests)
    tensors = {t.name for t in model.graph.initializer}
    products = [n for n in model.graph.node if n.op_type in ("MatMul", "Gemm") and n.input[1] in tensors]
    layers = {"albert": 1 + 2 * 6 + 2, "modernbert": 2 * 4, "qwen2": 7 + 1, "qwen3": 2 * 7}[family]
    assert len(products) == layers, "each weight is the constant operand of its product, as quantisers want it"


def test_layers_that_share_weights_share_them_in_the_file(exported: Callable[[str], Exported]) -> None:
    matrices = [t for t in exported("albert").model.graph.initializer if len(t.dims) == 2 and min(t.dims) > 1]
    assert len(matrices) == 3 + 1 + 6 + 2, "tables, the projection, one layer, the pooler and the classifier"


def test_the_same_bytes_again(exported: Callable[[str], Exported]) -> None:
    first = exported("albert")
    exported("modernbert")
    again, _ = te.export(first.config, first.tensors, first.wanted, "tiny", [5, 6, 7])
    assert encode(again) == encode(first.model)


def test_another_answer_is_an_error(exported: Callable[[str], Exported]) -> None:
    each = exported("albert")
    model = te._load(each.config, each.tensors, each.wanted, "tiny")
    te._order_classifier(model, {}, each.wanted)
    te._compare(model, each.model, each.config, each.wanted, "tiny", [])
    other = type(each.model)()
    other.CopyFrom(each.model)
    table = next(t for t in other.graph.initializer if list(t.dims) == [VOCABULARY, 16])
    table.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(table) * np.float32(1.001), table.name))
    with pytest.raises(EdgespecError, match="from torch") as caught:
        te._compare(model, other, each.config, each.wanted, "tiny", [])
    assert next(iter(caught.value.diagnostics)).code == "ES575"


def test_a_text_that_ends_in_padding_is_told(exported: Callable[[str], Exported]) -> None:
    """transformers looks for the last token that is no padding; an engine that gets no padding takes the last."""
    each = exported("qwen2")
    model = te._load(each.config, each.tensors, each.wanted, "tiny")
    te._order_classifier(model, {}, each.wanted)
    with pytest.raises(EdgespecError, match="pad_token_id"):
        te._compare(model, each.model, each.config, each.wanted, "tiny", [7, 8, 0])


def test_weights_that_are_missing(models: Path) -> None:
    folder = saved("qwen3", models, classifier=False)
    config, _ = read(folder)
    tensors = load_file(folder / "model.safetensors")
    del tensors["layers.1.mlp.up_proj.weight"]
    with pytest.raises(EdgespecError, match=r"has no tensor layers\.1\.mlp\.up_proj\.weight") as caught:
        te.export(config, Checkpoint(save(tensors)), te.Wanted("last"), "tiny")
    assert next(iter(caught.value.diagnostics)).code == "ES511"


def test_packed_matrices_of_a_decoder(models: Path) -> None:
    """GPTQ's integers of a layer, in torch's graph and in the program; both answer as torch does with floats."""
    folder = saved("qwen3", models, classifier=False)
    config, _ = read(folder)
    tensors: dict[str, Any] = {n: t for n, t in load_file(folder / "model.safetensors").items() if "layers.1" not in n}
    integers: dict[str, Rounded] = {}
    for name in [n for n in tensors if n.endswith("proj.weight")]:
        module = name.removesuffix(".weight")
        integers[module] = rounded(tensors.pop(name), 32, symmetric=True)
        tensors |= gptq(module, integers[module])
    raw = {k: v for k, v in config.raw.items() if k != "layer_types"}
    raw |= {"quantization_config": {"quant_method": "gptq", "bits": 4}, "num_hidden_layers": 1}
    checkpoint = Checkpoint(save({k: np.ascontiguousarray(v) for k, v in tensors.items()}))
    model, off = te.export(replace(config, raw=raw), checkpoint, te.Wanted("last"), "tiny")
    assert off < 1e-5
    nodes = [n for n in model.graph.node if n.op_type == "MatMulNBits"]
    assert len(nodes) == len(integers) == 7
    stored = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    packed = [stored[n.input[1]].reshape(stored[n.input[1]].shape[0], -1) for n in nodes]
    found = [np.stack([p & 15, p >> 4], -1).reshape(len(p), -1) for p in packed]
    wanted = {r.q.tobytes() for r in integers.values()}
    assert {f.tobytes() for f in found} == wanted

    program = program_of(compile_graph(encode(model), quantization="int8"))
    tensors_ = [program.tensors[op.weight] for op in program.ops if isinstance(op, fmt.Linear)]
    assert {t.dtype for t in tensors_} == {fmt.DType.I4}
    rows = [row.tobytes() for t in tensors_ for row in pack.linear_nibbles(t)[0]]
    assert sorted(rows) == sorted(row.tobytes() for r in integers.values() for row in r.q)


def test_a_build_of_a_decoder(models: Path, tmp_path: Path) -> None:
    """From a spec: last token by default, the engine edge by itself. Its classifier's labels are in another order."""
    project = write_tiny_project(tmp_path / "project")
    (project / "models" / "qwen").symlink_to(saved("qwen2", models, classifier=True))
    task = {"type": "text-classification", "labels": [LABELS[i] for i in ORDER], "max_tokens": 32}
    spec = EdgeModel.model_validate(tiny_spec(task=task, model={"source": "./models/qwen"}))
    said: list[BuildEvent] = []
    pipeline = Pipeline(project, Cache(tmp_path / "cache"), said.append)
    assert pipeline.facts(spec).inputs["engine"] == "edge"
    manifest = pipeline.build(spec)
    assert any("of torch's" in e.message for e in said)
    (chunk,) = manifest.files["model.edge"].chunks
    path = pipeline.blob(chunk.sha256)
    assert path is not None
    program = fmt.decode(path.read_bytes())
    ids = texts(vocabulary=VOCABULARY)
    config, tensors = read(saved("qwen2", models, classifier=True))
    wanted = torch_rows(config, tensors, te.Wanted(None, ORDER), ids)
    assert cosine(edge_rows(program, ids), wanted) > 0.999


def test_what_a_plan_refuses(models: Path, tmp_path: Path) -> None:
    folder = saved("qwen2", models, classifier=True)
    raw = json.loads((folder / "config.json").read_text())
    with pytest.raises(EdgespecError, match="change with a text's length"):
        te.read_config({**raw, "rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "config.json")
    with pytest.raises(EdgespecError, match="max_position_embeddings"):
        te.read_config({k: v for k, v in raw.items() if k != "max_position_embeddings"}, "config.json")
    with pytest.raises(EdgespecError, match="albert, modernbert, qwen2, qwen3"):
        te.read_config({**raw, "model_type": "mamba"}, "config.json")
