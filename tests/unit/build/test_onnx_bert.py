"""The exporter against an independent forward pass in numpy; against torch where it is installed."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from edgespec.build.graph import encode
from edgespec.build.onnx_bert import export_classifier, export_embedding, read_config
from edgespec.build.weights import Tensors
from edgespec.diagnostics import EdgespecError
from tests.tiny import tiny_config, tiny_weights, vocabulary, write_tiny_bert
from tests.unit.build import reference

KINDS = ("bert", "distilbert", "roberta", "xlm-roberta")
LABELS = ("a", "b", "c")


def batch(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Three rows, two of them padded."""
    rng = np.random.default_rng(3)
    ids = rng.integers(5, len(vocabulary(kind)), (3, 9))
    mask = np.ones_like(ids)
    for row, length in ((1, 6), (2, 2)):
        ids[row, length:] = 1 if "roberta" in kind else 0
        mask[row, length:] = 0
    return ids, mask


def run(model: onnx.ModelProto, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
    raw = encode(model)
    onnx.checker.check_model(onnx.load_from_string(raw), full_check=True)
    session = onnxruntime.InferenceSession(raw, providers=["CPUExecutionProvider"])
    feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    return session.run(None, {i.name: feeds[i.name] for i in session.get_inputs()})[0]


def read(folder: Path) -> Tensors:
    return Tensors((folder / "model.safetensors").read_bytes())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_embedding_is_the_reference(tmp_path: Path, kind: str, pooling: str) -> None:
    write_tiny_bert(tmp_path, kind)
    ids, mask = batch(kind)
    model = export_embedding(read_config(tiny_config(kind), "c"), read(tmp_path), pooling, "w")
    hidden = reference.hidden_state(tiny_weights(kind), kind, ids, mask)
    expected = reference.mean_pool(hidden, mask) if pooling == "mean" else hidden[:, 0]
    np.testing.assert_allclose(run(model, ids, mask), expected, atol=2e-5)
    assert [o.name for o in model.graph.output] == ["embedding"]
    assert model.opset_import[0].version == 17
    assert model.ir_version <= 9


@pytest.mark.parametrize("kind", KINDS)
def test_classifier_is_the_reference_in_the_order_asked_for(tmp_path: Path, kind: str) -> None:
    write_tiny_bert(tmp_path, kind, labels=LABELS)
    config = read_config(tiny_config(kind, LABELS), "c")
    assert config.labels == LABELS
    ids, mask = batch(kind)
    weights = tiny_weights(kind, LABELS)
    prefix = {"bert": "bert.", "distilbert": "distilbert."}.get(kind, "roberta.")
    expected = reference.logits(weights, kind, reference.hidden_state(weights, kind, ids, mask, prefix))
    found = run(export_classifier(config, read(tmp_path), [2, 0, 1], "w"), ids, mask)
    np.testing.assert_allclose(found, expected[:, [2, 0, 1]], atol=2e-5)


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu"])
def test_activations(tmp_path: Path, activation: str) -> None:
    write_tiny_bert(tmp_path)
    ids, mask = batch("bert")
    config = read_config(tiny_config("bert", hidden_act=activation), "c")
    hidden = reference.hidden_state(tiny_weights(), "bert", ids, mask, activation=activation)
    found = run(export_embedding(config, read(tmp_path), "mean", "w"), ids, mask)
    np.testing.assert_allclose(found, reference.mean_pool(hidden, mask), atol=2e-5)


@pytest.mark.parametrize("dtype", ["F16", "BF16", "F64"])
def test_other_precisions_of_weights(dtype: str) -> None:
    weights = tiny_weights()
    header, body = {}, b""
    for name, value in weights.items():
        if dtype == "BF16":
            raw = (value.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        else:
            raw = value.astype({"F16": np.float16, "F64": np.float64}[dtype]).tobytes()
        header[name] = {"dtype": dtype, "shape": list(value.shape), "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    tensors = Tensors(len(text).to_bytes(8, "little") + text + body)
    ids, mask = batch("bert")
    found = run(export_embedding(read_config(tiny_config(), "c"), tensors, "mean", "w"), ids, mask)
    expected = reference.mean_pool(reference.hidden_state(weights, "bert", ids, mask), mask)
    np.testing.assert_allclose(found, expected, atol={"F64": 2e-5, "F16": 5e-3, "BF16": 5e-2}[dtype])


def test_older_names_of_layer_norm_and_a_prefix(tmp_path: Path) -> None:
    renamed = {
        "bert." + n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v
        for n, v in tiny_weights().items()
    }
    write_tiny_bert(tmp_path / "new")
    write_tiny_bert(tmp_path / "old", weights=renamed)
    config = read_config(tiny_config(), "c")
    new, old = (encode(export_embedding(config, read(tmp_path / n), "mean", "w")) for n in ("new", "old"))
    assert new == old


def test_every_matrix_is_a_constant_that_the_quantiser_sees(tmp_path: Path) -> None:
    write_tiny_bert(tmp_path)
    model = export_embedding(read_config(tiny_config(), "c"), read(tmp_path), "mean", "w")
    constants = {t.name for t in model.graph.initializer}
    products = [n for n in model.graph.node if n.op_type == "MatMul" and n.input[1] in constants]
    assert len(products) == 6 * 2
    names = [n.name for n in model.graph.node]
    assert len(set(names)) == len(names)
    assert all(t.HasField("raw_data") for t in model.graph.initializer)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model_type": "deberta-v2"}, "bert, distilbert, roberta, xlm-roberta"),
        ({"model_type": None}, "None"),
        ({"position_embedding_type": "relative_key"}, "relative_key"),
        ({"hidden_act": "silu"}, "silu"),
        ({"num_attention_heads": 5}, "attention heads"),
        ({"hidden_size": "wide"}, "no number"),
    ],
)
def test_unsupported_configurations_say_what_is(change: dict[str, object], says: str) -> None:
    with pytest.raises(EdgespecError, match="ES510") as caught:
        read_config(tiny_config("bert") | change, "config.json of ./m")
    assert says in str(caught.value)
    assert "config.json of ./m" in str(caught.value)


def test_missing_and_misshapen_tensors_are_named(tmp_path: Path) -> None:
    config = read_config(tiny_config(), "c")
    weights = tiny_weights()
    name = "encoder.layer.1.output.dense.weight"
    for broken, says in (
        ({k: v for k, v in weights.items() if k != name}, "no tensor"),
        ({**weights, name: weights[name][:, :5]}, "32x5, config.json says 32x48"),
    ):
        write_tiny_bert(tmp_path, weights={k: np.ascontiguousarray(v) for k, v in broken.items()})
        with pytest.raises(EdgespecError, match="ES511") as caught:
            export_embedding(config, read(tmp_path), "mean", "model.safetensors of ./m")
        assert name in str(caught.value)
        assert says in str(caught.value)


@pytest.mark.skipif(
    not (importlib.util.find_spec("torch") and importlib.util.find_spec("transformers")),
    reason="torch and transformers are not installed: pip install 'edgespec[build]'",
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore")
def test_against_transformers_itself(tmp_path: Path, kind: str) -> None:
    import torch
    from transformers import AutoModel, AutoModelForSequenceClassification

    ids, mask = batch(kind)
    tensors = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}
    write_tiny_bert(tmp_path / "encoder", kind)
    encoder = AutoModel.from_pretrained(tmp_path / "encoder", attn_implementation="eager").eval()
    with torch.no_grad():
        hidden = encoder(**tensors).last_hidden_state.numpy()
    model = export_embedding(read_config(tiny_config(kind), "c"), read(tmp_path / "encoder"), "mean", "w")
    np.testing.assert_allclose(run(model, ids, mask), reference.mean_pool(hidden, mask), atol=2e-5)

    write_tiny_bert(tmp_path / "classifier", kind, labels=LABELS)
    classifier = AutoModelForSequenceClassification.from_pretrained(tmp_path / "classifier").eval()
    with torch.no_grad():
        expected = classifier(**tensors).logits.numpy()
    config = read_config(tiny_config(kind, LABELS), "c")
    found = run(export_classifier(config, read(tmp_path / "classifier"), [0, 1, 2], "w"), ids, mask)
    np.testing.assert_allclose(found, expected, atol=2e-5)
