"""What each way of making a model small costs and gives: bytes, gzip, accuracy, CPU at 32 tokens in workerd.

    bench/ablation.py [--project specs/sentiment] [--json FILE] [--only NAME...]

The project's data (`make_data.py` has written it), one teacher: the project's spec up to its fine-tuning. Every row is
a spec built by the pipeline as a user would, measured on all of test.jsonl by the Worker's own engine, and timed by
`edgespec bench` in workerd, all in one run. The build cache is the user's: what is there is not trained again.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from edgespec import measuring  # noqa: E402
from edgespec.build.events import BuildEvent  # noqa: E402
from edgespec.build.pipeline import Pipeline  # noqa: E402
from edgespec.diagnostics import EdgespecError  # noqa: E402
from edgespec.records import replace  # noqa: E402
from edgespec.session import Session, open_session  # noqa: E402
from edgespec.spec.models import EdgeModel  # noqa: E402

TEXTS, TRAIN, TEST = "data/texts.jsonl", "data/train.jsonl", "data/test.jsonl"
ROW = "32"
CALIBRATION = {"data": TRAIN, "samples": 128}
PRUNE: dict[str, Any] = {"prune": {"vocabulary": {"corpus": TEXTS, "keep": 13000}}}
THREE: dict[str, Any] = {"distill": {"data": TRAIN, "student": {"layers": [0, 2, 4]}, "epochs": 1, "seed": 7}}
HEAD: dict[str, Any] = {"head": {"train": TRAIN, "l2": 0.1}}
STATIC: dict[str, Any] = {"distill": {"method": "static", "dimensions": 256}}


def rows(teacher: dict[str, Any], student: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Name -> the fields of a spec that differ from the project's."""
    tuned = [teacher]

    def made(*stages: dict[str, Any], method: str = "int8", **more: Any) -> dict[str, Any]:
        return {"pipeline": list(stages), "quantization": {"method": method, **more}}

    return {
        "frozen MiniLM, a head, int8": made(HEAD),
        "teacher: MiniLM fine-tuned, float32": made(*tuned, method="none"),
        "teacher, fp16": made(*tuned, method="fp16"),
        "teacher, int8": made(*tuned),
        "teacher, LLM.int8 (bnb)": made(*tuned, method="bnb"),
        "teacher, int4 by rounding, groups of 32": made(*tuned, method="int4"),
        "teacher, GPTQ 4 bits, groups of 32": made(*tuned, method="gptq", bits=4, calibration=CALIBRATION),
        "teacher, vocabulary pruned, int8": made(*tuned, PRUNE),
        "teacher, half of the FFN, int8": made(*tuned, {"prune": {"ffn": 0.5, "data": TRAIN}}),
        "3 layers, distilled, int8": made(*tuned, THREE),
        "3 layers, distilled, vocabulary pruned, int8": made(*tuned, PRUNE, THREE),
        "2x128, distilled, float32": made(*tuned, student, method="none"),
        "2x128, distilled, int8": made(*tuned, student),
        "2x128, distilled, int4": made(*tuned, student, method="int4"),
        "static by model2vec, 256 columns, a head, int8": made(STATIC, HEAD),
    }


def variant(spec: EdgeModel, name: str, fields: Mapping[str, Any]) -> EdgeModel:
    data = spec.model_dump(mode="json", exclude_unset=True)
    data["model"]["pipeline"] = fields["pipeline"]
    data["quantization"] = fields["quantization"]
    data["metadata"] = {"name": name}
    data["quality"] = {"data": TEST, "metrics": {"accuracy": {"min": 0}}}
    return EdgeModel.model_validate(data)


def measure(session: Session, spec: EdgeModel) -> dict[str, Any]:
    alone = replace(session, workspace=replace(session.workspace, specs=(spec,)))
    pipeline = Pipeline(session.workspace.root, session.cache, say)
    started = time.perf_counter()
    manifest = pipeline.build(spec)
    seconds = time.perf_counter() - started
    files = [pipeline.blob(c.sha256) for f in manifest.files.values() for c in f.chunks]
    zipped = sum(len(gzip.compress(p.read_bytes(), 6, mtime=0)) for p in files if p is not None)
    document = measuring.evaluate(alone, spec.name, data=TEST, compare=False).document
    figures: dict[str, Any] = {
        "engine": manifest.engine,
        "bytes": manifest.size,
        "gzip": zipped,
        "accuracy": document.variants[-1].metrics["accuracy"],
        "build_seconds": round(seconds, 1),
    }
    engines = (manifest.engine,)
    own = measuring.bench(alone, spec.name, engines=engines, rounds=3).document.own
    if own is not None:
        figures["cpu_ms_32"] = own.row(ROW).cpu_ms.p50 if own.row(ROW) is not None else None
        figures["memory"] = own.memory.total
    return figures


def say(event: BuildEvent) -> None:
    if not event.cached and event.fraction in (None, 1.0):
        print(f"  {event.stage}: {event.message}", file=sys.stderr)


def table(found: Mapping[str, Mapping[str, Any]]) -> str:
    lines = ["| model | bytes | gzip | accuracy | CPU ms at 32 tokens | memory |", "|---|---|---|---|---|---|"]
    for name, f in found.items():
        if "why" in f:
            lines.append(f"| {name} | | | not possible: {f['why']} | | |")
            continue
        cpu = "" if f.get("cpu_ms_32") is None else f"{f['cpu_ms_32']:.2f}"
        memory = f"{f['memory'] / 1e6:.1f} MB" if "memory" in f else ""
        sizes = f"{f['bytes'] / 1e6:.2f} MB | {f['gzip'] / 1e6:.2f} MB"
        lines.append(f"| {name} | {sizes} | {f['accuracy']:.4f} | {cpu} | {memory} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--project", type=Path, default=ROOT / "specs" / "sentiment")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", nargs="*", default=[], help="Rows whose name contains one of these.")
    options = parser.parse_args()
    session = open_session(options.project, None, os.environ, lambda _: None)
    (spec,) = session.workspace.specs
    written = yaml.safe_load((options.project / "specs" / "sentiment.yaml").read_text())["model"]["pipeline"]
    teacher, student = written[0], written[-1]
    found: dict[str, dict[str, Any]] = {}
    for n, (name, fields) in enumerate(rows(teacher, student).items(), start=1):
        if options.only and not any(o in name for o in options.only):
            continue
        print(f"{name} ...", file=sys.stderr)
        try:
            found[name] = measure(session, variant(spec, f"v{n}", fields))
        except EdgespecError as e:
            found[name] = {"why": "; ".join(d.detail or d.summary for d in e.diagnostics)}
        print(f"  {json.dumps(found[name])}", file=sys.stderr)
        if options.json:
            options.json.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
