"""Answers without a Worker: the artifact's own model in this process or in Node (edge)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tokenizers import Tokenizer

from edgespec.artifact import Manifest
from edgespec.build.embed import read_tokenizer
from edgespec.build.evaluate import Infer
from edgespec.build.evaluation.answers import answer_of
from edgespec.build.evaluation.engines import (
    BATCH,
    Engine,
    NodeEngine,
    edge_in_node,
    edge_in_numpy,
    onnxruntime_native,
)
from edgespec.build.pipeline import Pipeline
from edgespec.build.problems import fail
from edgespec.spec.models import EdgeModel, KeywordExtraction


class LocalAnswering:
    """`node` runs the edge engine; without it its numpy reference does."""

    def __init__(self, node: NodeEngine | None) -> None:
        self._node = node
        self.version = f"local/{node.digest if node is not None else 'numpy'}"

    @contextmanager
    def open(self, spec: EdgeModel, manifest: Manifest, pipeline: Pipeline) -> Iterator[tuple[str, Infer]]:
        """Raises EdgespecError (ES580) for keyword extraction, whose candidates only the Worker finds."""
        task = spec.task
        if isinstance(task, KeywordExtraction):
            raise fail("ES580", "keywords are found by the Worker's own code: measure them in workerd (`--edge`).")
        tokenizer = read_tokenizer(pipeline.tokenizer(spec), task.max_tokens)
        with self._engine(manifest, pipeline, tokenizer, task.max_tokens) as engine:

            def infer(texts: Sequence[str]) -> list[dict[str, Any]]:
                """Texts of a length together, so that a batch holds as many as it can."""
                tokens = [len(e.ids) for e in tokenizer.encode_batch(list(texts))]
                order = sorted(range(len(texts)), key=lambda i: (tokens[i], i))
                answers: dict[int, dict[str, Any]] = {}
                for start in range(0, len(order), BATCH):
                    some = order[start : start + BATCH]
                    rows = engine.run([texts[i] for i in some])
                    answers |= {
                        i: {**answer_of(row, task), "tokens": tokens[i]} for i, row in zip(some, rows, strict=True)
                    }
                return [answers[i] for i in range(len(texts))]

            yield engine.name, infer

    @contextmanager
    def _engine(
        self, manifest: Manifest, pipeline: Pipeline, tokenizer: Tokenizer, max_tokens: int
    ) -> Iterator[Engine]:
        if manifest.engine == "onnxruntime":
            yield onnxruntime_native(_file(manifest, "model.onnx", pipeline), tokenizer)
            return
        program = _file(manifest, "model.edge", pipeline)
        if self._node is None:
            yield edge_in_numpy(program, tokenizer)
            return
        with edge_in_node(self._node, program, tokenizer, max_tokens) as engine:
            yield engine


def _file(manifest: Manifest, name: str, pipeline: Pipeline) -> bytes:
    parts = []
    for chunk in manifest.files[name].chunks:
        path = pipeline.blob(chunk.sha256)
        if path is None:
            raise fail("ES535", f"the cache has lost {chunk.sha256[:12]} of {name}. Run it again.")
        parts.append(path.read_bytes())
    return b"".join(parts)
