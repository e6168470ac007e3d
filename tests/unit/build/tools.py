"""Jobs of single stages on tiny models, for tests of what is refused and of what tools are told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgespec.build.cache import Cache
from edgespec.build.sources import find
from edgespec.build.stages.stage import Job, Stage, Step
from edgespec.spec.models import EdgeModel
from tests.tiny import tiny_spec

Task = Mapping[str, Any]
EMBEDDING: Task = {"type": "embedding", "max_tokens": 16}


def job_of(
    root: Path,
    stage: Stage,
    options: Any,
    *,
    source: str = "./models/tiny",
    task: Task | None = None,
    data: Mapping[str, str] | None = None,
    models: Mapping[str, str] | None = None,
) -> Job:
    """A job as a build makes it. `data` and `models` are paths of the project by the options' fields."""
    cache = Cache(root / ".cache")
    spec = EdgeModel.model_validate(tiny_spec(source=source, **({} if task is None else {"task": dict(task)})))
    files = {field: cache.input(root / path, path, text=True) for field, path in (data or {}).items()}
    model = find(source, root, cache)
    assert model is not None
    found = {field: find(path, root, cache) for field, path in (models or {}).items()}
    step = Step(
        name=stage.name,
        stage=stage,
        parents=("fetch",),
        options=options,
        data=files,
        models={k: v for k, v in found.items() if v is not None},
    )
    return Job(spec, model, cache, lambda _: None, step, root)


def check(job: Job) -> None:
    """All that is checked before the stage runs."""
    job.step.stage.check_data(job)
    job.step.stage.check(job)
