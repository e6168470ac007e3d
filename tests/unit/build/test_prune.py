"""Pruning: what stays, what is the same as before, what is refused. Without torch."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from edgespec.build.onnx_bert import export_embedding, read_config
from edgespec.build.stages import prune
from edgespec.build.stages.stage import Result
from edgespec.build.surgery import parts
from edgespec.build.surgery.checkpoint import Checkpoint, Tensor, encode, read_checkpoint
from edgespec.build.surgery.families import FAMILIES
from edgespec.build.surgery.vocabulary import read_entries, select
from edgespec.build.weights import Tensors
from edgespec.diagnostics import Diagnostic
from edgespec.spec.pipeline import PruneStage
from tests.build.tiny_lm import lm_tokenizer, write_tiny_qwen
from tests.tiny import EXAMPLES, HEADS, INNER, LAYERS, WIDTH, WORDS, tiny_weights, write_examples, write_tiny_bert
from tests.unit.build import reference
from tests.unit.build.test_onnx_bert import KINDS, batch, run
from tests.unit.build.tools import check, job_of

Refused = Callable[[str, Callable[[], object]], Diagnostic]
TEXTS = [text for some in EXAMPLES.values() for text in some]
TABLE = "embeddings.word_embeddings.weight"


def pruned(root: Path, source: str = "./models/tiny", **options: Any) -> Result:
    settings = PruneStage.model_validate(options)
    data = {} if settings.data is None else {"data": settings.data}
    if settings.vocabulary is not None and settings.vocabulary.corpus is not None:
        data["vocabulary.corpus"] = settings.vocabulary.corpus
    job = job_of(root, prune.STAGE, settings, source=source, data=data)
    check(job)
    return prune.STAGE.run(job)


def tensors(result: Result) -> dict[str, np.ndarray]:
    read = Tensors(bytes(result.outputs["model.safetensors"]))
    return {name: read.get(name) for name in read.names()}


def config(result: Result) -> dict[str, Any]:
    return dict(json.loads(bytes(result.outputs["config.json"])))


def tokenizer(result: Result) -> Tokenizer:
    return Tokenizer.from_str(bytes(result.outputs["tokenizer.json"]).decode())


def project(root: Path, kind: str = "bert", **more: Any) -> Path:
    write_tiny_bert(root / "models" / "tiny", kind, **more)
    write_examples(root / "data" / "train.jsonl")
    return root


CORPUS = {"vocabulary": {"corpus": "data/train.jsonl"}}


# --- vocabulary


@pytest.mark.parametrize("kind", KINDS)
def test_texts_of_the_corpus_are_cut_alike_and_tokens_keep_their_vectors(tmp_path: Path, kind: str) -> None:
    project(tmp_path, kind)
    result = pruned(tmp_path, **CORPUS)
    old = Tokenizer.from_file(str(tmp_path / "models/tiny/tokenizer.json"))
    new, rows = tokenizer(result), tensors(result)[TABLE]
    for text in TEXTS:
        assert new.encode(text).tokens == old.encode(text).tokens
    assert len(rows) == new.get_vocab_size() == config(result)["vocab_size"] < old.get_vocab_size()
    before = tiny_weights(kind)[TABLE]
    for token, i in new.get_vocab().items():
        np.testing.assert_array_equal(rows[i], before[old.token_to_id(token)])
    assert config(result)["pad_token_id"] == new.token_to_id("[PAD]") == old.token_to_id("[PAD]")
    assert new.token_to_id("music") is not None and new.token_to_id("horse") is None
    assert new.token_to_id("slow") is None
    assert result.notes["vocabulary"]["alike"] == result.notes["vocabulary"]["texts"] == len(TEXTS)


def test_the_most_frequent_stay_and_the_rest_is_spelled(tmp_path: Path) -> None:
    project(tmp_path)
    result = pruned(tmp_path, vocabulary={"corpus": "data/train.jsonl", "keep": 30})
    new = tokenizer(result)
    assert "the" in new.get_vocab() and "shipment" not in new.get_vocab()
    assert new.encode("shipment").tokens == ["[CLS]", "s", *(f"##{c}" for c in "hipment"), "[SEP]"]
    notes = result.notes["vocabulary"]
    assert 0 < notes["alike"] < notes["texts"]


def test_ids_of_special_tokens_follow(tmp_path: Path) -> None:
    project(tmp_path)
    path = tmp_path / "models/tiny/tokenizer.json"
    data = json.loads(path.read_text())
    vocab = data["model"]["vocab"]
    vocab["late"], vocab["[SEP]"] = vocab["[SEP]"], vocab["late"]
    for token in data["added_tokens"]:
        token["id"] = vocab[token["content"]]
    data["post_processor"]["special_tokens"]["[SEP]"]["ids"] = [vocab["[SEP]"]]
    path.write_text(json.dumps(data))
    settings = json.loads((tmp_path / "models/tiny/tokenizer_config.json").read_text())
    settings["added_tokens_decoder"] = {str(vocab[t]): {"content": t} for t in ("[PAD]", "[SEP]")}
    (tmp_path / "models/tiny/tokenizer_config.json").write_text(json.dumps(settings))
    write_config(tmp_path, sep_token_id=vocab["[SEP]"], eos_token_id=[vocab["[SEP]"]])
    result = pruned(tmp_path, **CORPUS)
    new = tokenizer(result).token_to_id("[SEP]")
    assert new != vocab["[SEP]"]
    assert tokenizer(result).encode("hello").ids[-1] == new
    assert config(result)["sep_token_id"] == new and config(result)["eos_token_id"] == [new]
    decoder = json.loads(bytes(result.outputs["tokenizer_config.json"]))["added_tokens_decoder"]
    assert decoder[str(new)]["content"] == "[SEP]" and len(decoder) == 2


def write_config(root: Path, **more: Any) -> None:
    path = root / "models/tiny/config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))


def unigram() -> Tokenizer:
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -3.0)]
    pieces += [(c, -6.0 - i / 10) for i, c in enumerate("abcdefghijklmnopqrstuvwxyz")]
    pieces += [(f"▁{w}", -4.0 - i / 10) for i, w in enumerate(("the", "parcel", "refund", "late", "naïve"))]
    made = Tokenizer(models.Unigram(pieces, 3, byte_fallback=False))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    made.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>"])
    return made


def test_unigram(tmp_path: Path) -> None:
    project(tmp_path, "xlm-roberta")
    made = unigram()
    made.save(str(tmp_path / "models/tiny/tokenizer.json"))
    result = pruned(tmp_path, vocabulary={"corpus": "data/train.jsonl"})
    new = tokenizer(result)
    assert new.token_to_id("▁naïve") is None
    for text in ("refund the parcel", "late", "the zebra"):
        assert new.encode(text).tokens == made.encode(text).tokens
    # ï was known inside a word only: it is an entry of its own now, and its vector that of the word.
    assert 3 not in new.encode("naïve").ids and 3 in made.encode("ïï").ids
    rows, before = tensors(result)[TABLE], tiny_weights("xlm-roberta")[TABLE]
    np.testing.assert_allclose(rows[new.token_to_id("ï")], before[made.token_to_id("▁naïve")])
    assert json.loads(bytes(result.outputs["tokenizer.json"]))["model"]["unk_id"] == new.token_to_id("<unk>") == 3


def test_byte_level_bpe(tmp_path: Path) -> None:
    write_tiny_qwen(tmp_path / "models" / "tiny")
    write_examples(tmp_path / "data" / "train.jsonl", {"a": ["where is my parcel", "refund my money"]})
    result = pruned(tmp_path, vocabulary={"corpus": "data/train.jsonl"})
    old, new = lm_tokenizer(), tokenizer(result)
    assert new.get_vocab_size() < old.get_vocab_size()
    for text in ("where is my parcel", "refund my money"):
        assert new.encode(text).tokens == old.encode(text).tokens
    odd = "退款 ÿ\x00 😀 where"
    assert decoders.ByteLevel().decode(new.encode(odd).tokens) == odd
    rows, before = tensors(result)["model.embed_tokens.weight"], read_tensors(tmp_path)["model.embed_tokens.weight"]
    for token, i in new.get_vocab().items():
        np.testing.assert_array_equal(rows[i], before[old.token_to_id(token)])
    assert config(result)["eos_token_id"] == new.token_to_id("<|im_end|>")


def read_tensors(root: Path) -> dict[str, np.ndarray]:
    read = Tensors((root / "models/tiny/model.safetensors").read_bytes())
    return {name: read.get(name) for name in read.names()}


@pytest.mark.parametrize("kind", ["wordpiece", "wordpiece with gaps", "unigram"])
def test_no_text_becomes_unknown_that_was_not(kind: str) -> None:
    """Random vocabularies and words: with whatever entries gone, a word that could be written still can be."""
    rng = random.Random(7)
    letters = "abcde"
    for _ in range(60):
        words = {"".join(rng.choices(letters, k=rng.randint(2, 4))) for _ in range(14)}
        single = set(letters) if kind == "wordpiece" else set(rng.sample(letters, 3))
        if kind == "unigram":
            pieces = [("<unk>", 0.0), *((w, -rng.random() * 9 - 1) for w in sorted(single | words))]
            old = Tokenizer(models.Unigram(pieces, 0, byte_fallback=False))
        else:
            inside = single if kind == "wordpiece" else set(rng.sample(letters, 2))
            entries = ["[UNK]", *sorted(single), *sorted(f"##{c}" for c in inside)]
            entries += [w if rng.random() < 0.5 else f"##{w}" for w in sorted(words)]
            old = Tokenizer(models.WordPiece({t: i for i, t in enumerate(entries)}, unk_token="[UNK]"))
            old.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        new = cut(old, wanted=rng.sample(range(old.get_vocab_size()), 4))
        for _ in range(80):
            word = "".join(rng.choices(letters, k=rng.randint(1, 7)))
            if 0 not in old.encode(word).ids:  # the unknown token
                assert 0 not in new.encode(word).ids, (word, old.get_vocab(), new.get_vocab())


def cut(old: Tokenizer, wanted: list[int], scripts: tuple[str, ...] = ()) -> Tokenizer:
    from edgespec.build.surgery.renumber import number, renumber_tokenizer

    data = json.loads(old.to_str())
    entries = read_entries(data, "test")
    selection = select(data, entries, wanted=wanted, scripts=scripts, protected=())
    return Tokenizer.from_str(json.dumps(renumber_tokenizer(data, entries, number(entries, selection))))


def test_scripts() -> None:
    tokens = ["[UNK]", "hello", "##ing", "déjà", "привет", "##ие", "你", "你好", "مرحبا", "x2", "a", "п", "...", "２３"]
    old = Tokenizer(models.WordPiece({t: i for i, t in enumerate(tokens)}, unk_token="[UNK]"))
    latin = set(cut(old, list(range(len(tokens))), ("Latin",)).get_vocab())
    assert {"[UNK]", "hello", "##ing", "déjà", "x2", "...", "２３", "你", "п"} <= latin
    assert not latin & {"привет", "##ие", "你好", "مرحبا"}
    both = set(cut(old, list(range(len(tokens))), ("Latin", "Cyrillic")).get_vocab())
    assert {"hello", "привет", "##ие"} <= both and "你好" not in both


# --- layers, heads, columns, weights


@pytest.mark.parametrize("kind", KINDS)
def test_layers(tmp_path: Path, kind: str) -> None:
    project(tmp_path, kind)
    result = pruned(tmp_path, layers=[1])
    before, after = tiny_weights(kind), tensors(result)
    layer = "transformer.layer" if kind == "distilbert" else "encoder.layer"
    moved = {n.replace(f"{layer}.1.", f"{layer}.0."): w for n, w in before.items() if f"{layer}.0." not in n}
    assert after.keys() == moved.keys()
    for name, values in moved.items():
        np.testing.assert_array_equal(after[name], values)
    assert config(result)["n_layers" if kind == "distilbert" else "num_hidden_layers"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_heads_that_say_nothing_can_go(tmp_path: Path, kind: str) -> None:
    """The model without them gives what the reference, which knows nothing of pruning, gives for the whole model."""
    weights, depth = tiny_weights(kind), WIDTH // HEADS
    outs = sorted(n for n in weights if n.endswith(("attention.output.dense.weight", "attention.out_lin.weight")))
    for name, silent in zip(outs, ((0, 2), (1, 2)), strict=True):
        for head in silent:
            weights[name][:, head * depth : (head + 1) * depth] = 0
    project(tmp_path, kind, weights=weights)
    result = pruned(tmp_path, heads=0.5)
    written = config(result)
    assert written["head_dim"] == depth and result.notes["heads"] == [HEADS, HEADS // 2]
    assert {v.shape for n, v in tensors(result).items() if n in outs} == {(WIDTH, WIDTH // 2)}
    same_embedding(result, weights, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_that_say_nothing_can_go(tmp_path: Path, kind: str) -> None:
    weights = tiny_weights(kind)
    downs = [n for n in weights if n.endswith((".output.dense.weight", "ffn.lin2.weight")) and "attention" not in n]
    assert len(downs) == LAYERS
    for i, name in enumerate(downs):
        weights[name][:, i::3] = 0
    project(tmp_path, kind, weights=weights)
    result = pruned(tmp_path, ffn=2 / 3)
    assert config(result)["hidden_dim" if kind == "distilbert" else "intermediate_size"] == INNER * 2 // 3
    same_embedding(result, weights, kind)


def same_embedding(result: Result, weights: dict[str, np.ndarray], kind: str) -> None:
    ids, mask = batch(kind)
    read = Tensors(bytes(result.outputs["model.safetensors"]))
    model = export_embedding(read_config(config(result), "c"), read, "mean", "w")
    expected = reference.mean_pool(reference.hidden_state(weights, kind, ids, mask), mask)
    np.testing.assert_allclose(run(model, ids, mask), expected, atol=2e-5)


def test_columns_stay_in_whole_groups() -> None:
    assert parts.kept_inner(0.7, 1536) == 1088
    assert parts.kept_inner(0.01, 1536) == 32
    assert parts.kept_inner(0.5, 48) == 24


def test_weights(tmp_path: Path) -> None:
    project(tmp_path)
    result = pruned(tmp_path, weights=0.25)
    before, after = tiny_weights(), tensors(result)
    for name, values in after.items():
        if "encoder.layer" in name and values.ndim == 2:
            kept = values != 0
            assert kept.sum() == round(0.25 * values.size)
            np.testing.assert_array_equal(values[kept], before[name][kept])
            assert np.abs(before[name][~kept]).max() <= np.abs(before[name][kept]).min()
        else:
            np.testing.assert_array_equal(values, before[name])
    assert result.notes["weights"]["zeros"] == round(0.75 * result.notes["weights"]["of"])


def test_heads_that_share_keys_go_together() -> None:
    rng = np.random.default_rng(0)
    shapes = {"q_proj": (8, 6), "k_proj": (4, 6), "v_proj": (4, 6), "o_proj": (6, 8)}
    found = {
        f"model.layers.0.self_attn.{n}.weight": Tensor("F32", rng.normal(size=s).astype("<f4"))
        for n, s in shapes.items()
    }
    found["model.layers.0.self_attn.q_proj.bias"] = Tensor("F32", np.arange(8, dtype="<f4"))
    sizes = {"hidden_size": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 1}
    model = Checkpoint(dict(found), {"model_type": "qwen2", "head_dim": 2, **sizes})
    before = {n: t.values.copy() for n, t in found.items()}
    parts.keep_heads(model, FAMILIES["qwen2"], 1, [np.array([1.0, 2.0, 1.5, 1.4])])
    # Heads 0 and 1 weigh 3 together, 2 and 3 weigh 2.9: the first pair stays, with the first key and value.
    at = "model.layers.0.self_attn."
    for name, rows in (("q_proj", 4), ("k_proj", 2), ("v_proj", 2)):
        np.testing.assert_array_equal(model.tensors[f"{at}{name}.weight"].values, before[f"{at}{name}.weight"][:rows])
    np.testing.assert_array_equal(model.tensors[f"{at}q_proj.bias"].values, np.arange(4))
    np.testing.assert_array_equal(model.tensors[f"{at}o_proj.weight"].values, before[f"{at}o_proj.weight"][:, :4])
    assert (model.config["num_attention_heads"], model.config["num_key_value_heads"]) == (2, 1)


def write_modernbert(folder: Path) -> None:
    """Four layers of which the first and the third see the whole text."""
    write_tiny_bert(folder)
    rng = np.random.default_rng(0)
    shapes = {"attn.Wqkv": (96, 32), "attn.Wo": (32, 32), "mlp.Wi": (96, 32), "mlp.Wo": (32, 48)}
    found = {
        f"layers.{i}.{n}.weight": rng.normal(size=s).astype(np.float32) for i in range(4) for n, s in shapes.items()
    }
    found["embeddings.tok_embeddings.weight"] = rng.normal(size=(200, 32)).astype(np.float32)
    save_file(found, folder / "model.safetensors")
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_hidden_layers": 4}
    said = {"model_type": "modernbert", "global_attn_every_n_layers": 2, "vocab_size": 200, **sizes}
    (folder / "config.json").write_text(json.dumps(said))


def test_modernbert(tmp_path: Path, refused: Refused) -> None:
    write_modernbert(tmp_path / "models/tiny")
    before = read_tensors(tmp_path)
    result = pruned(tmp_path, layers=[0, 3], ffn=0.5)
    assert config(result)["layer_types"] == ["full_attention", "sliding_attention"]
    assert "global_attn_every_n_layers" not in config(result)
    after = tensors(result)
    up, down = after["layers.1.mlp.Wi.weight"], after["layers.1.mlp.Wo.weight"]
    kept = [np.flatnonzero((column == before["layers.3.mlp.Wo.weight"].T).all(1))[0] for column in down.T]
    np.testing.assert_array_equal(up[:24], before["layers.3.mlp.Wi.weight"][kept])
    np.testing.assert_array_equal(up[24:], before["layers.3.mlp.Wi.weight"][[k + 48 for k in kept]])
    assert "keep layer 0" in refused("ES567", lambda: pruned(tmp_path, layers=[1, 2])).detail
    refused("ES565", lambda: pruned(tmp_path, heads=0.5))


def test_bfloat16_is_not_rounded() -> None:
    bits = np.arange(0x3F00, 0x3F40, dtype="<u2").reshape(8, 8)
    raw = encode({"a": Tensor("BF16", bits), "b": Tensor("I64", np.arange(3))})
    model = read_checkpoint([raw], {})
    model.take("a", np.array([6, 1]))
    np.testing.assert_array_equal(model.tensors["a"].values, bits[[6, 1]])
    assert model.tensors["a"].like(model.floats("a")).tobytes() == bits[[6, 1]].tobytes()
    assert encode(read_checkpoint([raw], {}).tensors) == raw


# --- what is refused, and the same bytes twice


def test_everything_at_once_twice(tmp_path: Path) -> None:
    project(tmp_path, labels=tuple(EXAMPLES))
    options: dict[str, Any] = {**CORPUS, "layers": [1], "heads": 0.5, "ffn": 0.5, "weights": 0.5}
    first, second = pruned(tmp_path, **options), pruned(tmp_path, **options)
    assert first.outputs == second.outputs
    assert first.notes["parameters"][1] < first.notes["parameters"][0]
    kept = tensors(first)["classifier.weight"]
    np.testing.assert_array_equal(kept, tiny_weights(labels=tuple(EXAMPLES))["classifier.weight"])


def test_refusals(tmp_path: Path, refused: Refused) -> None:
    project(tmp_path)
    assert "counted from 0 to 1" in refused("ES567", lambda: pruned(tmp_path, layers=[0, 2])).detail
    found = refused("ES568", lambda: pruned(tmp_path, vocabulary={"scripts": ["Latn", "Cyrilic"]}))
    assert "Cyrillic" in found.detail
    found = refused("ES568", lambda: pruned(tmp_path, data="data/train.jsonl", layers=[0]))
    assert "neither" in found.detail
    (tmp_path / "data/empty.jsonl").write_text("\n")
    refused("ES520", lambda: pruned(tmp_path, vocabulary={"corpus": "data/empty.jsonl"}))
    write_config(tmp_path, quantization_config={"bits": 4})
    assert "float model" in refused("ES565", lambda: pruned(tmp_path, layers=[0])).detail
    write_config(tmp_path, quantization_config=None, model_type="gpt2")
    assert "qwen3" in refused("ES565", lambda: pruned(tmp_path, layers=[0])).detail


def test_a_tokenizer_of_another_model(tmp_path: Path, refused: Refused) -> None:
    weights = tiny_weights()
    weights[TABLE] = weights[TABLE][:-30]
    project(tmp_path, weights=weights)
    assert "rows" in refused("ES566", lambda: pruned(tmp_path, vocabulary={"scripts": ["Latin"]})).detail


def test_words_are_what_the_tests_think() -> None:
    assert {"music", "slow", "late", "shipment"} <= set(WORDS)
