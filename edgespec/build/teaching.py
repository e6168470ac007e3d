"""What a teacher says about texts, kept in the build cache: the next student of the same texts need not ask again."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import numpy as np

from edgespec.build.cache import Entry
from edgespec.values import digest, sha256_hex

if TYPE_CHECKING:
    from edgespec.build.stages.stage import Job
    from edgespec.build.weights import FloatArray

KIND: Final = "teach"
"""Where the cache keeps answers."""
VERSION: Final = 1
"""Raised whenever the same teacher would answer otherwise."""
TOOLS: Final = ("numpy", "tokenizers", "torch", "transformers")
ANSWERS: Final = "answers.npy"


def taught(
    job: Job, texts: Sequence[str], tokens: int, pooling: str | None, ask: Callable[[], FloatArray]
) -> tuple[FloatArray, bool]:
    """Answers [texts, columns] of the job's model to texts cut at `tokens`, and whether they were there already: logits
    in the order of the task's labels, or embeddings where there is a `pooling`."""
    key = _key(job, texts, tokens, pooling)

    def waiting(who: str) -> None:
        job.say(f"waiting for {who}")

    with job.cache.claim(KIND, key, f"{job.spec.name}: {job.step.name}", waiting):
        kept = None if job.fresh else _read(job, key)
        if kept is not None:
            return kept, True
        answers = ask()
        written = io.BytesIO()
        np.save(written, answers, allow_pickle=False)
        job.cache.commit(KIND, key, Entry({ANSWERS: job.cache.put(written.getvalue())}, {"texts": len(texts)}))
    return answers, False


def _key(job: Job, texts: Sequence[str], tokens: int, pooling: str | None) -> str:
    return digest(
        {
            "version": VERSION,
            "model": {f.name: f.sha256 for f in job.files.all},
            "labels": list(job.task.labels) if pooling is None else None,
            "pooling": pooling,
            "texts": sha256_hex("\0".join(texts).encode()),
            "tokens": tokens,
            "tools": {name: version(name) for name in TOOLS},
        }
    )


def _read(job: Job, key: str) -> FloatArray | None:
    entry = job.cache.entry(KIND, key)
    data = job.cache.read(entry.outputs[ANSWERS]) if entry is not None else None
    if data is None:
        return None
    found: FloatArray = np.load(io.BytesIO(data), allow_pickle=False)
    return found
