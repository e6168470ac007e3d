"""Which engine will run a model, and why: known before anything is built."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from edgespec.build.cache import Entry
from edgespec.build.problems import fail
from edgespec.build.stages import export
from edgespec.build.stages.pack import EDGE, ONNXRUNTIME
from edgespec.build.stages.stage import Inputs, Job, Result, Stage, Step
from edgespec.diagnostics import some

_SHOWN: Final = 3
"""Uncovered nodes that a message names."""


class Choice(Struct, frozen=True):
    name: str
    reason: str


def _coverage(job: Job) -> Result:
    """The compiler's own word on a graph that came as ONNX; its program is not kept. Of a model that came quantised,
    which of its matrices the engine cannot hold."""
    from edgespec.build.packed_graph import uncovered
    from edgespec.engine.compile import compile_graph

    if not job.files.is_onnx:
        packed = export.checkpoint(job).packed
        reasons = [f"{name}: {why}" for name, p in packed.items() if (why := uncovered(p))]
        return Result({}, {"uncovered": reasons})
    model = export.from_graph(job)
    compiled = compile_graph(model, quantization="none")
    return Result({}, {"uncovered": [str(u) for u in compiled.uncovered]})


def _depends(inputs: Inputs) -> Inputs:
    return {**export.depends(inputs), "source_digest": inputs["source_digest"]}


COVERAGE: Final = Stage("coverage", 1, _depends, _coverage, tools=("onnx",))


def choose(job: Job, inputs: Inputs) -> Choice:
    """The engine of `worker.engine`, `auto` resolved. Raises ES540 where the spec asks for one that cannot do it.

    Encoders that edgespec and torch export are covered by construction (tests hold that), with what its quantising
    stages make of them; a graph that came as ONNX is given to the compiler, once for each content of it, and matrices
    that came quantised are looked at.
    """
    spec = job.spec
    if spec.worker.engine == ONNXRUNTIME:
        return Choice(ONNXRUNTIME, "the spec asks for it")
    if not job.files.is_onnx and not export.came_quantised(job.files, spec.model.source):
        return Choice(EDGE, "it covers every operation of the encoder")
    uncovered = _uncovered(job, inputs)
    if not uncovered:
        return Choice(EDGE, "it covers every operation of the graph")
    listed = some(uncovered, _SHOWN, "; ")
    if spec.worker.engine == EDGE:
        raise fail("ES540", f"{spec.name}: the engine edge does not cover {spec.model.source}: {listed}. "
                   "Use `worker: {engine: auto}` or onnxruntime.")  # fmt: skip
    if spec.quantization.method not in ("none", "int8"):
        raise fail("ES541", f"{spec.name}: {spec.quantization.method} needs the engine edge, which does not cover "
                   f"{spec.model.source}: {listed}. Use int8 or none.")  # fmt: skip
    return Choice(ONNXRUNTIME, f"the engine edge does not cover {listed}")


def _uncovered(job: Job, inputs: Inputs) -> list[str]:
    key = Step(COVERAGE.name, COVERAGE, ()).key(inputs, {})
    entry = job.cache.entry(COVERAGE.name, key)
    if entry is None:
        entry = Entry({}, COVERAGE.run(job).notes)
        job.cache.commit(COVERAGE.name, key, entry)
    found: Any = entry.notes["uncovered"]
    return list(found)


__all__ = ["EDGE", "ONNXRUNTIME", "Choice", "choose"]
