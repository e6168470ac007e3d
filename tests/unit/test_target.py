"""What environments name: an account that cannot be asked is a warning, and no word of a secret; accounts of one token
keep one pace; a project has one local edge."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgespec.providers.cloudflare.account import Paces
from edgespec.providers.cloudflare.pace import Pace
from edgespec.target import account_of, local_edge_of, shared_cache_of, token_of
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


ACCOUNTS = """environments:
  local: {target: {type: local, port: 0}}
  test: {target: {type: local, port: 4321}}
  staging: {target: {type: cloudflare, account: 11111111111111111111111111111111}}
  production: {target: {type: cloudflare, account: 22222222222222222222222222222222}}
"""


def test_accounts_of_one_token_keep_one_pace(root: Path) -> None:
    (root / "edgespec.yaml").write_text(f"apiVersion: edgespec/v1\nkind: Project\nname: shop\n{ACCOUNTS}")
    paces = Paces()

    def pace(environment: str, **environ: str) -> Pace:
        workspace = load_workspace(root, environment, environ)
        return account_of(workspace, environment, environ, pytest.fail, paces).pace

    one = pace("staging", CLOUDFLARE_API_TOKEN="a-secret")
    assert pace("production", CLOUDFLARE_API_TOKEN="a-secret") is one
    own = pace("production", CLOUDFLARE_API_TOKEN="a-secret", CLOUDFLARE_API_TOKEN_PRODUCTION="another")
    assert own is not one
    alone = load_workspace(root, "staging", {})
    assert account_of(alone, "staging", {"CLOUDFLARE_API_TOKEN": "a-secret"}, pytest.fail).pace is not one


def test_environments_share_the_local_edge_and_its_port(root: Path, tmp_path: Path) -> None:
    (root / "edgespec.yaml").write_text(f"apiVersion: edgespec/v1\nkind: Project\nname: shop\n{ACCOUNTS}")
    environ = {"EDGESPEC_CACHE_DIR": str(tmp_path / "cache")}
    ports = {local_edge_of(load_workspace(root, e, {}), e, environ, pytest.fail)._port for e in ("local", "test")}
    assert ports == {4321}


def test_an_environment_may_have_a_token_of_its_own() -> None:
    both = {"CLOUDFLARE_API_TOKEN": "for-all-of-them", "CLOUDFLARE_API_TOKEN_STAGING": "for-staging-alone"}
    assert token_of("staging", both).reveal() == "for-staging-alone"
    assert token_of("production", both).reveal() == "for-all-of-them"
    assert token_of("staging", {**both, "CLOUDFLARE_API_TOKEN_STAGING": ""}).reveal() == "for-all-of-them"
    assert not token_of("staging", {})
