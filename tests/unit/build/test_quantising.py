"""Quantising tools up to the tool, and what is made of the tensors that they write."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgespec.build import gkd
from edgespec.build.quantised import (
    array_of,
    bnb_float,
    gptq_float,
    gptq_version,
    groups_in_order,
    matrices,
    relative_error,
    unpack,
)
from edgespec.build.quantising import compare, repack, write_packed
from edgespec.build.stages import awq, bnb, finetune, gptq
from edgespec.build.stages.stage import Job, Stage
from edgespec.build.weights_file import RawTensor, join_safetensors, read_tensors, write_tensors
from edgespec.diagnostics import Diagnostic
from edgespec.spec.pipeline import DistillStage, Quantization
from tests.build.tiny_lm import write_conversations, write_tiny_qwen
from tests.tiny import write_tiny_bert
from tests.unit.build.tools import check, job_of

Refused = Callable[[str, Callable[[], object]], Diagnostic]
STAGES = {"gptq": gptq.STAGE, "awq": awq.STAGE, "bnb": bnb.STAGE}


def job(project: Path, method: str, *, source: str = "qwen", calibrated: bool = True, **options: Any) -> Job:
    stage: Stage = STAGES[method]
    data = {"calibration.data": "data/train.jsonl"} if calibrated and method != "bnb" else {}
    more = {"calibration": {"data": "data/train.jsonl"}} if data else {}
    settings = Quantization.model_validate({"method": method, **more, **options})
    return job_of(project, stage, settings, source=f"./models/{source}", data=data)


@pytest.fixture
def models(project: Path) -> Path:
    write_tiny_qwen(project / "models" / "qwen")
    write_tiny_bert(project / "models" / "bert", hidden_size=64, intermediate_size=64)
    return project


def test_good_ones_pass(models: Path) -> None:
    check(job(models, "gptq"))
    check(job(models, "gptq", bits=8, group_size=64))
    check(job(models, "awq", bits=4))
    check(job(models, "bnb", source="tiny"))


@pytest.mark.parametrize(
    ("method", "options", "word"),
    [
        ("bnb", {"bits": 4}, "nf4"),
        ("awq", {"bits": 8}, "gptq"),
        ("bnb", {"group_size": 64}, "`group_size` is an option of"),
        ("bnb", {"calibration": {"data": "data/train.jsonl"}}, "`calibration` is an option of"),
    ],
)
def test_options_that_a_method_has_not(
    models: Path, refused: Refused, method: str, options: dict[str, Any], word: str
) -> None:
    assert word in refused("ES570", lambda: check(job(models, method, **options))).detail


@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_calibration_is_needed(models: Path, refused: Refused, method: str) -> None:
    found = refused("ES571", lambda: check(job(models, method, calibrated=False)))
    assert "`method: int4`" in found.detail


def test_awq_is_for_language_models(models: Path, refused: Refused) -> None:
    found = refused("ES572", lambda: check(job(models, "awq", source="bert")))
    assert "BertModel" in found.detail
    assert "`method: gptq`" in found.detail


def test_sizes_that_do_not_divide(models: Path, refused: Refused) -> None:
    found = refused("ES572", lambda: check(job(models, "gptq", source="tiny")))  # 48 columns inside
    assert "48" in found.detail
    found = refused("ES572", lambda: check(job(models, "gptq", group_size=128)))
    assert "a smaller `group_size`" in found.detail
    refused("ES572", lambda: check(job(models, "awq", group_size=128)))


def test_models_that_are_quantised_or_unknown(models: Path, refused: Refused) -> None:
    write_tiny_bert(models / "models" / "packed", quantization_config={"quant_method": "gptq"})
    assert "already" in refused("ES572", lambda: check(job(models, "bnb", source="packed"))).detail
    write_tiny_bert(models / "models" / "distil", "distilbert")
    assert "distilbert" in refused("ES572", lambda: check(job(models, "bnb", source="distil"))).detail


def test_weights_that_are_cut_short(models: Path, refused: Refused) -> None:
    path = models / "models" / "qwen" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    assert "model.safetensors" in refused("ES511", lambda: check(job(models, "gptq"))).detail


# --- GKD


def distillation(project: Path, source: str = "qwen", student: str = "small", **options: Any) -> Job:
    write_conversations(project / "data" / "chat.jsonl")
    settings = DistillStage.model_validate(
        {"method": "gkd", "data": "data/chat.jsonl", "source": f"./models/{student}", **options}
    )
    data = {"data": "data/chat.jsonl"}
    models = {"source": f"./models/{student}"}
    return job_of(project, finetune.STAGE, settings, source=f"./models/{source}", data=data, models=models)


def test_gkd_between_fitting_models(models: Path) -> None:
    write_tiny_qwen(models / "models" / "small", layers=1)
    found = distillation(models)
    gkd.check_data(found)
    gkd.check(found)


def test_gkd_refuses_what_cannot_be_distilled(models: Path, refused: Refused) -> None:
    write_tiny_qwen(models / "models" / "small", layers=1)
    write_tiny_qwen(models / "models" / "other", layers=1, vocab_size=448)
    swapped = distillation(models, source="small", student="qwen")
    assert "swapped" in refused("ES557", lambda: gkd.check(swapped)).detail
    other = distillation(models, student="other")
    assert "vocabularies" in refused("ES557", lambda: gkd.check(other)).detail
    encoder = distillation(models, source="bert")
    assert "BertModel" in refused("ES557", lambda: gkd.check(encoder)).detail
    untaught = distillation(models, alpha=0)
    assert "finetune" in refused("ES557", lambda: gkd.check_data(untaught)).detail


def test_gkd_weighs_labels_against_the_teacher() -> None:
    options = DistillStage.model_validate({"method": "gkd", "alpha": 0.8, "temperature": 3})
    found = gkd.training_arguments(options, gpu=False, answered=True)
    assert found["sft_alpha"] == pytest.approx(0.25)
    assert found["temperature"] == 3
    without = gkd.training_arguments(options, gpu=False, answered=False)
    assert without["lmbda"] == 1.0
    assert without["sft_alpha"] == 0.0


# --- tensors


def raw(array: np.ndarray) -> RawTensor:
    names = {"int32": "I32", "float16": "F16", "float32": "F32", "int8": "I8"}
    return RawTensor(names[str(array.dtype)], array.shape, array.tobytes())


def pack(values: np.ndarray, bits: int, axis: int) -> np.ndarray:
    """int32 words, lowest bits first, along an axis: written as the papers say it, one bit field at a time."""
    moved = np.moveaxis(values, axis, 0).astype(np.uint64)
    out = np.zeros((moved.shape[0] * bits // 32, moved.shape[1]), np.uint64)
    for i, row in enumerate(moved):
        out[i * bits // 32] |= row << np.uint64(i * bits % 32)
    return np.moveaxis(out.astype(np.uint32).view(np.int32), 0, axis)


def packed_layer(bits: int, version: int, group: int = 32) -> tuple[dict[str, RawTensor], np.ndarray]:
    """A matrix of 64 inputs and 32 outputs, by hand, and what it means."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2**bits, (64, 32))
    scales = rng.uniform(0.01, 0.1, (64 // group, 32)).astype(np.float16)
    middle = 2 ** (bits - 1)
    zeros = np.full((64 // group, 32), middle - (1 if version == 1 else 0))
    groups = (np.arange(64) // group).astype(np.int32)
    weight = ((values - middle) * scales.astype(np.float32)[groups]).T
    tensors = {"qweight": pack(values, bits, 0), "qzeros": pack(zeros, bits, 1), "scales": scales, "g_idx": groups}
    return {f"l.{name}": raw(np.ascontiguousarray(t)) for name, t in tensors.items()}, weight.astype(np.float32)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("version", [1, 2])
def test_gptq_tensors_mean_what_they_meant(bits: int, version: int) -> None:
    tensors, weight = packed_layer(bits, version)
    assert matrices(tensors) == ["l"]
    assert gptq_version(tensors, bits) == version
    np.testing.assert_array_equal(gptq_float(tensors, "l", bits, version), weight)
    assert groups_in_order(tensors, 32)
    assert not groups_in_order(tensors, 16)


def test_zero_points_that_are_neither(refused: Refused) -> None:
    tensors, _ = packed_layer(4, 1)
    tensors["l.qzeros"] = raw(pack(np.full((2, 32), 5), 4, 1))
    assert "are 5" in refused("ES573", lambda: gptq_version(tensors, 4)).detail
    assert refused("ES573", lambda: gptq_version({}, 4))


def test_unpacking_is_the_inverse_of_packing() -> None:
    values = np.random.default_rng(1).integers(0, 16, (16, 24))
    np.testing.assert_array_equal(unpack(pack(values, 4, 0), 4, 0), values)
    np.testing.assert_array_equal(unpack(pack(values, 4, 1), 4, 1), values)


def test_int8_rows() -> None:
    weight = np.random.default_rng(2).normal(size=(4, 8)).astype(np.float32)
    largest = np.abs(weight).max(1)
    integers = np.rint(weight / largest[:, None] * 127).astype(np.int8)
    found = bnb_float({"l.weight": raw(integers), "l.SCB": raw(largest)}, "l")
    assert relative_error(found, weight) < 0.01


def test_misread_weights_are_noticed(refused: Refused) -> None:
    tensors, weight = packed_layer(4, 1)
    source = {"l.weight": raw(weight)}
    good = compare(source, ["l"], 4, lambda name: gptq_float(tensors, name, 4, 1))
    assert good == {"error_mean": 0.0, "error_worst": 0.0}
    scrambled = np.ascontiguousarray(weight[::-1])
    assert "l differs" in refused("ES573", lambda: compare(source, ["l"], 4, lambda _: scrambled)).detail
    assert refused("ES573", lambda: compare(source, ["l"], 4, lambda _: weight * np.nan))


@pytest.mark.parametrize("prefix", ["", "bert."])
def test_packed_modules_take_the_sources_names(refused: Refused, prefix: str) -> None:
    made, weight = packed_layer(4, 1)
    made = {f"{prefix}{name}": t for name, t in made.items()}
    made["bert.pooler.qweight"] = made[f"{prefix}l.qweight"]
    source = {"l.weight": raw(weight), "l.bias": raw(weight[0]), "norm.weight": raw(weight[1])}
    parts: Sequence[str] = ("qweight", "qzeros", "scales", "g_idx")
    found, modules = repack(source, made, matrices(made), parts)
    assert modules == ["l"]
    assert sorted(found) == ["l.bias", "l.g_idx", "l.qweight", "l.qzeros", "l.scales", "norm.weight"]
    assert found["l.bias"] is source["l.bias"]
    assert refused("ES573", lambda: repack({}, made, matrices(made), parts))


def test_files_of_tensors(tmp_path: Path) -> None:
    tensors, weight = packed_layer(4, 1)
    tensors["w"] = raw(weight)
    written = write_tensors(tensors)
    assert written == write_tensors(dict(reversed(tensors.items())))
    found = read_tensors(written)
    assert {n: (t.dtype, t.shape, bytes(t.data)) for n, t in found.items()} == {
        n: (t.dtype, t.shape, bytes(t.data)) for n, t in tensors.items()
    }
    halves = [dict(list(tensors.items())[:2]), dict(list(tensors.items())[2:])]
    assert join_safetensors(write_tensors(h) for h in halves) == written
    from safetensors.numpy import load_file

    (tmp_path / "m.safetensors").write_bytes(written)
    np.testing.assert_array_equal(load_file(tmp_path / "m.safetensors")["w"], weight)
    np.testing.assert_array_equal(array_of(found["w"]), weight)


def test_the_note_tells_the_layout(tmp_path: Path) -> None:
    source = write_tiny_bert(tmp_path / "m", torch_dtype="float32")
    tensors, _ = packed_layer(4, 1)
    note = {"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq"}
    folder = write_packed(tmp_path / "packed", source, tensors, note)
    found = json.loads((folder / "config.json").read_text())
    assert found["quantization_config"] == note
    assert "torch_dtype" not in found
    assert (folder / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()
    assert sorted(read_tensors((folder / "model.safetensors").read_bytes())) == sorted(tensors)
