"""A measurement, made up."""

from __future__ import annotations

from edgespec.measurement import BenchDocument

ARTIFACT, OTHER, BUNDLE = "a" * 64, "b" * 64, "c" * 64


def row(name: str, p50: float, p99: float) -> dict[str, object]:
    return {
        "row": name,
        "requests": 20,
        "cpu_ms": {"p50": p50, "p99": p99},
        "wall_ms": {"p50": p50 + 2, "p99": p99 + 9},
    }


def engine(name: str, artifact: str, scale: float, memory: int = 90_000_000) -> dict[str, object]:
    return {
        "engine": name,
        "artifact": artifact,
        "weights": 23_000_000,
        "rows": [row("8", 2 * scale, 3 * scale), row("16", 4 * scale, 5 * scale), row("own", 3 * scale, 4.5 * scale)],
        "memory": {"wasm": memory - 7_000_000, "heap": 6_000_000, "buffers": 1_000_000, "total": memory},
        "cold": {
            "restarts": 3, "load_cpu_ms": 30 * scale, "load_wall_ms": 60, "first_cpu_ms": 20, "first_wall_ms": 21,
        },
    }  # fmt: skip


def document(name: str = "alpha", scale: float = 1.0, memory: int = 90_000_000) -> BenchDocument:
    """Deployed on `edge`, which takes 2, 4 and 3 ms times `scale`; onnxruntime takes three times as long."""
    return BenchDocument.model_validate(
        {
            "format": "edgespec.bench/v1",
            "name": name,
            "artifact": ARTIFACT,
            "engine": "edge",
            "task": "text-classification",
            "max_tokens": 16,
            "bundle": BUNDLE,
            "edgespec": "1",
            "measured_at": "2026-11-30T12:00:00Z",
            "machine": {
                "processor": "A <fast> one", "cores": 2, "system": "Linux x86_64", "load": 0.5, "workerd": "1.2",
                "cpu_clock": "profiler and scheduler",
            },
            "rounds": 5,
            "interval_us": 250,
            "texts": [
                {"row": "8", "texts": 6, "tokens_min": 8, "tokens_median": 8, "tokens_max": 8},
                {"row": "16", "texts": 6, "tokens_min": 15, "tokens_median": 16, "tokens_max": 16},
                {"row": "own", "texts": 18, "tokens_min": 4, "tokens_median": 9, "tokens_max": 14},
            ],
            "engines": [engine("edge", ARTIFACT, scale, memory), engine("onnxruntime", OTHER, 3 * scale)],
            "native": {"version": "1.2", "rows": [row("8", 1, 1), row("16", 2, 2), row("own", 1.5, 2)]},
            "left_out": [{"engine": "other", "why": "there is none"}],
        }
    )  # fmt: skip
