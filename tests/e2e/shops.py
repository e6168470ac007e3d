"""A project with staging and production, each in an account of its own: two local edges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from edgespec import asking, operations
from edgespec.diagnostics import EdgespecError
from edgespec.local_edge.edge import Endpoint
from edgespec.operations import Applied, Planned, Session
from edgespec.plan.model import Action
from edgespec.promotion import Promotion, promote
from edgespec.session import current_state
from edgespec.spec.releases import ModelReleases
from edgespec.state.model import State
from tests.e2e.conftest import TinyProject

GATE = {"data": "data/test.jsonl", "metrics": {"accuracy": {"min": 0.5}}}


class Shop:
    """A project with staging and production, each in an account of its own, and a machine for each."""

    def __init__(self, made: TinyProject, staging: Endpoint, production: Endpoint, other_cache: Path) -> None:
        self.root, self.name, self.made = made.root, made.name, made
        self.caches = {"staging": made.environ["EDGESPEC_CACHE_DIR"], "production": str(other_cache)}
        self.accounts = {"staging": staging, "production": production}
        self.write_project()
        self.write_spec()

    def write_project(self, **production: Any) -> None:
        environments = {
            name: {
                "target": {
                    "type": "cloudflare",
                    "account": at.account_id,
                    "api_base_url": at.api_base_url,
                    "s3_base_url": at.s3_base_url,
                }
            }
            for name, at in self.accounts.items()
        }
        environments["production"] |= {"promote_from": "staging", **production}
        document = {
            "apiVersion": "edgespec/v1",
            "kind": "Project",
            "name": self.name,
            "environments": environments,
        }
        (self.root / "edgespec.yaml").write_text(yaml.safe_dump(document, sort_keys=False))

    def write_spec(self, **fields: Any) -> None:
        self.made.write_spec(**{"quality": GATE, "cache": {"weights": {"kv": {"pin": ["tokenizer"]}}}, **fields})

    def environ(self, environment: str) -> dict[str, str]:
        """Of the machine that deploys to it; the production one has no build cache and both tokens."""
        tokens = {f"CLOUDFLARE_API_TOKEN_{n.upper()}": a.api_token.reveal() for n, a in self.accounts.items()}
        return {**self.made.environ, **tokens, "EDGESPEC_CACHE_DIR": self.caches[environment]}

    def session(self, environment: str) -> Session:
        return operations.open_session(self.root, environment, self.environ(environment), lambda _: None)

    def plan(self, environment: str, **options: Any) -> Planned:
        planned = operations.plan(self.session(environment), **options)
        planned.close()
        return planned

    def actions(self, environment: str) -> dict[str, str]:
        planned = self.plan(environment)
        return {str(c.key): c.action.value for c in planned.plan.changes if c.action is not Action.NOOP}

    def apply(self, environment: str, **options: Any) -> Applied:
        session = self.session(environment)
        applied = operations.apply(session, approve=lambda _: True, on_event=lambda _: None, **options)
        if applied.result is not None and applied.result.diagnostics.has_errors:
            raise EdgespecError(applied.result.diagnostics)
        return applied

    def promote(self, *names: str, **options: Any) -> Promotion:
        environ = self.environ("staging")
        return promote(self.root, names, environ, lambda _: None, source="staging", target="production", **options)

    def state(self, environment: str) -> State:
        found = current_state(self.session(environment))
        assert found is not None
        return found

    def artifact(self, environment: str) -> str:
        found = [r.outputs["artifact"] for k, r in self.state(environment).records.items() if k.address.type == "model"]
        return str(found[0])

    def releases(self) -> ModelReleases:
        loaded = self.session("production").workspace.releases
        assert loaded is not None
        return loaded.releases.models["tiny"]

    def infer(self, environment: str, text: str) -> str:
        return str(asking.infer(self.session(environment), "tiny", {"texts": [text]})["results"][0]["label"])
