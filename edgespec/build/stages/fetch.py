"""fetch: the model's files, on this machine. They are read where they are; nothing is copied."""

from __future__ import annotations

from edgespec.build.stages.stage import Job, Result, Stage


def _run(job: Job) -> Result:
    return Result({}, {"files": {f.name: f.sha256 for f in job.files.all}})


STAGE = Stage("fetch", 1, lambda inputs: {"source_digest": inputs["source_digest"]}, _run)
