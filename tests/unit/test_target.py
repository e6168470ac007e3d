"""The shared build cache of a project whose account cannot be asked: a warning, and no word of a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgespec.target import shared_cache_of
from edgespec.workspace import load_workspace

PROJECT = """\
apiVersion: edgespec/v1
kind: Project
name: shop
environments:
  local: {target: {type: local}}
  staging: {target: {type: cloudflare, account: "${STAGING_ACCOUNT}", api_base_url: "http://127.0.0.1:9/v4"}}
"""
SHARED = "build: {cache: {bucket: shop-build-cache, environment: staging}}\n"
SPEC = (
    "apiVersion: edgespec/v1\nkind: EdgeModel\nmetadata: {name: alpha}\n"
    "model: {source: package:edgespec-no-such-model}\ntask: {type: embedding}\n"
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "alpha.yaml").write_text(SPEC)
    (tmp_path / "edgespec.yaml").write_text(PROJECT + SHARED)
    return tmp_path


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({}, "Set CLOUDFLARE_API_TOKEN"),
        ({"CLOUDFLARE_API_TOKEN": "a-secret"}, "`account` of the environment staging is a variable that is not set"),
        (
            {"CLOUDFLARE_API_TOKEN": "a-secret", "STAGING_ACCOUNT": "ab" * 16},
            "it cannot be reached (APIConnectionError)",
        ),
    ],
)
def test_an_account_that_cannot_be_asked(root: Path, environ: dict[str, str], says: str) -> None:
    said: list[str] = []
    remote = shared_cache_of(load_workspace(root, "local", environ), environ, said.append)
    assert remote is not None
    assert said == []  # nothing is asked before something is wanted
    for _ in range(2):
        assert remote.has([("export", "ab" * 32)]) == frozenset()
    (warning,) = said
    assert warning.startswith("warning ES585")
    assert "the bucket shop-build-cache: " in warning
    assert says in warning
    assert "a-secret" not in warning


def test_a_project_that_shares_nothing(root: Path) -> None:
    (root / "edgespec.yaml").write_text(PROJECT)
    assert shared_cache_of(load_workspace(root, "local", {}), {}, pytest.fail) is None
