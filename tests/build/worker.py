"""Builds one tiny project in its own process and prints the digest: `python -m tests.build.worker ROOT CACHE`."""

from __future__ import annotations

import sys
from pathlib import Path

from edgespec.build.cache import Cache
from edgespec.build.pipeline import Pipeline
from edgespec.spec.models import EdgeModel
from tests.tiny import tiny_spec


def main(root: str, cache: str) -> None:
    pipeline = Pipeline(Path(root), Cache(Path(cache)), lambda _: None)
    spec = EdgeModel.model_validate(tiny_spec())
    print(pipeline.build(spec).digest, pipeline.facts(spec).key)


if __name__ == "__main__":
    main(*sys.argv[1:])
