"""`target: cloudflare` is the same provider: pointed at the local edge's API by its base URLs, with a token from the
environment, it plans and applies as it would to an account. What this cannot show is in docs/cloudflare.md."""

from __future__ import annotations

import pytest

from edgespec import operations
from edgespec.diagnostics import EdgespecError
from edgespec.plan.model import Action
from edgespec.session import local_edge
from tests.e2e.conftest import TinyProject


def test_the_cloudflare_target_deploys_through_the_same_code(project: TinyProject) -> None:
    endpoint = local_edge(project.session()).ensure()
    project.write_project(
        type="cloudflare",
        account=endpoint.account_id,
        api_base_url=endpoint.api_base_url,
        s3_base_url=endpoint.s3_base_url,
    )
    project.environ.pop("CLOUDFLARE_API_TOKEN", None)
    with pytest.raises(EdgespecError, match="CLOUDFLARE_API_TOKEN"):
        project.plan()
    project.environ["CLOUDFLARE_API_TOKEN"] = "wrong"
    with pytest.raises(EdgespecError) as refused:
        project.plan()
    assert "wrong" not in str(refused.value).replace("wrong account", "")
    project.environ["CLOUDFLARE_API_TOKEN"] = endpoint.api_token.reveal()
    regions = {
        "default": "world",
        "shards": {"world": {}, "eu": {"jurisdiction": "eu", "match": {"continents": ["EU"]}}},
    }
    project.write_spec(regions=regions, cache={"weights": {"kv": {"pin": ["tokenizer"]}}})
    project.apply_well()
    assert all(c.action is Action.NOOP for c in project.plan().plan.changes)
    assert project.infer("tiny", "refund my money please")[0]["label"] == "refund"
    state_text = project.session().workspace.state_path.read_text()
    assert endpoint.api_token.reveal() not in state_text
    assert endpoint.secret_access_key.reveal() not in state_text


def test_a_variable_in_the_target_must_be_set_only_where_it_is_used(project: TinyProject) -> None:
    text = (project.root / "edgespec.yaml").read_text()
    production = "  production:\n    target: {type: cloudflare, account: '${ES_TEST_ACCOUNT}'}\n"
    (project.root / "edgespec.yaml").write_text(text.rstrip("\n") + "\n" + production)
    project.plan()
    with pytest.raises(EdgespecError, match=r"edgespec\.yaml:\d+:\d+.*Set ES_TEST_ACCOUNT"):
        operations.open_session(project.root, "production", project.environ, lambda _: None)
