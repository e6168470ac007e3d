from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgespec.build.cache import Cache
from edgespec.build.pipeline import BuildEvent, Pipeline
from edgespec.diagnostics import Diagnostic, EdgespecError
from edgespec.spec.models import EdgeModel
from tests.tiny import tiny_spec, write_tiny_project


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_tiny_project(tmp_path / "project")


@pytest.fixture
def events() -> list[BuildEvent]:
    return []


@pytest.fixture
def pipeline(project: Path, tmp_path: Path, events: list[BuildEvent]) -> Pipeline:
    return Pipeline(project, Cache(tmp_path / "cache"), events.append)


@pytest.fixture
def spec() -> Callable[..., EdgeModel]:
    def make(**fields: Any) -> EdgeModel:
        """For onnxruntime, whose artifact a test can run here; the edge engine's is in test_edge_artifact.py."""
        return EdgeModel.model_validate(tiny_spec(**{"worker": {"engine": "onnxruntime"}, **fields}))

    return make


@pytest.fixture
def refused() -> Callable[[str, Callable[[], object]], Diagnostic]:
    """Runs something that must fail with exactly this code; gives the diagnostic back."""

    def check(code: str, action: Callable[[], object]) -> Diagnostic:
        with pytest.raises(EdgespecError) as caught:
            action()
        (diagnostic,) = caught.value.diagnostics
        assert diagnostic.code == code, diagnostic
        assert diagnostic.detail
        return diagnostic

    return check
