"""Answers for an evaluation from what a machine has: workerd in a local edge of its own, or Node alone (edge)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from edgespec import assets
from edgespec.artifact import Manifest
from edgespec.benchmark.deploy import MakeProviders, deploy
from edgespec.benchmark.edge import temporary_edge
from edgespec.benchmark.variants import Variant
from edgespec.build.evaluate import Infer
from edgespec.build.evaluation.engines import NodeEngine
from edgespec.build.evaluation.local import LocalAnswering
from edgespec.build.pipeline import Pipeline
from edgespec.diagnostics import EdgespecError, error
from edgespec.local_edge.node import find_node
from edgespec.spec.models import EdgeModel, Regions

_NAME: Final = "evaluated"
_BATCH: Final = 8
"""Texts of one request: few enough for its CPU time."""
_SCRIPT: Final = "engine.mjs"


def local_answering() -> LocalAnswering:
    """With Node where there is one that is new enough, else with the numpy reference."""
    try:
        node = find_node().path
    except EdgespecError:
        return LocalAnswering(None)
    modules = {m.name: m for m in assets.bundles().by_engine["edge"]}
    relaxed, simd = modules["edge-relaxed.wasm"], modules["edge-simd.wasm"]
    script = assets.local_edge_sources() / _SCRIPT
    return LocalAnswering(NodeEngine(node, script, relaxed.path, simd.path, f"{relaxed.sha256}{simd.sha256}"))


class WorkerdAnswering:
    """Deploys the artifact into a local edge that lives as long as the answering, by what deploys everything else."""

    def __init__(self, providers: MakeProviders, cache_dir: Path, say: Callable[[str], None]) -> None:
        self._providers, self._cache_dir, self._say = providers, cache_dir, say
        self.version = f"workerd/{assets.bundles().facts.digest}"

    @contextmanager
    def open(self, spec: EdgeModel, manifest: Manifest, pipeline: Pipeline) -> Iterator[tuple[str, Infer]]:
        import httpx

        variant = Variant(manifest.engine, _alone(spec), manifest)
        with temporary_edge(assets.local_edge_sources(), self._cache_dir, self._say) as edge:
            running = edge.restart()
            deployed = deploy((variant,), running.endpoint, facts=pipeline.facts, providers=self._providers)
            url = f"{running.endpoint.base_url}{deployed[_NAME].path}infer"
            with httpx.Client(timeout=120, trust_env=False) as http:

                def infer(texts: Sequence[str]) -> list[dict[str, Any]]:
                    found: list[dict[str, Any]] = []
                    for start in range(0, len(texts), _BATCH):
                        answer = http.post(url, json={"texts": list(texts[start : start + _BATCH])})
                        if answer.status_code != httpx.codes.OK:
                            detail = f"the Worker answered HTTP {answer.status_code}: {answer.text[:300]}"
                            raise EdgespecError(error("ES411", "Measuring failed", detail))
                        found += answer.json()["results"]
                    return found

                yield f"workerd {running.workerd}", infer


def _alone(spec: EdgeModel) -> EdgeModel:
    """One shard, no gate and the paid plan's limits: only answers are of interest."""
    worker = spec.worker.model_copy(update={"plan": "paid"})
    metadata = spec.metadata.model_copy(update={"name": _NAME})
    return spec.model_copy(update={"metadata": metadata, "regions": Regions(), "quality": None, "worker": worker})
