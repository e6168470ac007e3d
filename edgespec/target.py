"""What an environment names: the project's local edge or an account, and the bucket in which machines share builds."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from edgespec import assets
from edgespec.build.cache import default_cache_dir
from edgespec.build.remote import RemoteCache
from edgespec.diagnostics import EdgespecError, error
from edgespec.providers.cloudflare.account import TOKEN, Account, Endpoints, Paces, missing_token
from edgespec.secret import Secret
from edgespec.spec.models import LocalState, LocalTarget, SharedCache
from edgespec.spec.variables import STAND_IN
from edgespec.stores.base import StateStore
from edgespec.stores.local import LocalStore
from edgespec.workspace import STATE_DIR, Workspace

if TYPE_CHECKING:
    from edgespec.local_edge.edge import LocalEdge

Say = Callable[[str], None]
"""A line of progress for people."""


def local_edge_of(workspace: Workspace, environment: str, environ: Mapping[str, str], say: Say) -> LocalEdge:
    """The project's local edge, running or not; raises when the environment's target is another."""
    from edgespec.local_edge.edge import LocalEdge

    target = workspace.project.environments[environment].target
    if not isinstance(target, LocalTarget):
        detail = f"The environment {environment} deploys to {target.type}."
        raise EdgespecError(error("ES607", "No local edge here", detail))
    others = (e.target for e in workspace.project.environments.values())
    return LocalEdge(
        workspace.root / STATE_DIR / "edge",
        port=target.port or next((t.port for t in others if isinstance(t, LocalTarget) and t.port), 0),
        sources=assets.local_edge_sources(),
        cache_dir=default_cache_dir(environ),
        progress=say,
    )


def account_of(
    workspace: Workspace, environment: str, environ: Mapping[str, str], say: Say, paces: Paces | None = None
) -> Account:
    """The account that the environment deploys to; starts the local edge when it is not running. With `paces`, it keeps
    one pace with the others that were opened with it."""
    target = workspace.project.environments[environment].target
    if isinstance(target, LocalTarget):
        endpoint = local_edge_of(workspace, environment, environ, say).ensure()
        found = Endpoints(endpoint.account_id, endpoint.api_base_url, endpoint.api_token, endpoint.s3_base_url)
        return Account(found, paces.of(found, say) if paces is not None else None, say)
    token = token_of(environment, environ)
    if not token:
        raise missing_token(environment)
    if target.account == STAND_IN:
        detail = f"`account` of the environment {environment} is a variable that is not set."
        raise EdgespecError(error("ES121", "Variable is not set", detail))
    found = Endpoints(target.account, target.api_base_url, token, target.s3_base_url)
    return Account(found, paces.of(found, say) if paces is not None else None, say)


def token_of(environment: str, environ: Mapping[str, str]) -> Secret:
    """The API token of an environment: one of its own where there is one, since promotion reads from one account what
    it writes to another. Empty where none is set."""
    for name in (f"{TOKEN}_{environment.upper()}", TOKEN):
        if value := environ.get(name, ""):
            return Secret(name, value)
    return Secret(TOKEN, "")


def state_store_of(workspace: Workspace, environ: Mapping[str, str], say: Say) -> StateStore:
    """Where the environment in use keeps its state. Connects when something is asked of it."""
    state = workspace.target.state
    if isinstance(state, LocalState):
        return LocalStore(workspace.state_path)
    key = f"{state.prefix}/{workspace.project.name}/{workspace.environment}.json"
    s3 = _S3(lambda: account_of(workspace, workspace.environment, environ, say), state.jurisdiction or "default")
    from edgespec.stores.r2 import R2StateStore

    return R2StateStore(state.bucket, key, s3.client, s3)


class _S3:
    """The objects of an account that is connected when something is first asked of it, and closed with this."""

    def __init__(self, connect: Callable[[], Account], jurisdiction: str) -> None:
        self._connect = connect
        self._jurisdiction = jurisdiction
        self._mutex = threading.Lock()
        self._account: Account | None = None

    def client(self) -> Any:
        return self._connected().s3(self._jurisdiction)

    def get(self, bucket: str, key: str) -> tuple[Mapping[str, str], bytes] | None:
        return self._connected().s3_get(self._jurisdiction, bucket, key)

    def list(self, bucket: str, prefix: str) -> list[str] | None:
        from edgespec.providers.cloudflare.r2_list import list_keys

        found = list_keys(self._connected(), bucket, self._jurisdiction, prefix)
        return None if found is None else sorted(found)

    def _connected(self) -> Account:
        with self._mutex:
            if self._account is None:
                self._account = self._connect()
                weakref.finalize(self, self._account.close)
            return self._account


def shared_cache_of(workspace: Workspace, environ: Mapping[str, str], say: Say) -> RemoteCache | None:
    """The build cache that the project shares; None when it has none. Connects when something is asked of it."""
    shared = workspace.project.build.cache
    if shared is None:
        return None
    environment = _environment(shared, workspace)
    from edgespec.providers.cloudflare.remote_cache import R2Store

    store = R2Store(lambda: account_of(workspace, environment, environ, say), shared.bucket)
    return RemoteCache(store, lambda found: say(str(found)))


def shared_bucket(workspace: Workspace, environ: Mapping[str, str], say: Say) -> tuple[str, Callable[[], Account]]:
    """The name of the bucket of the shared cache, and its account; raises when the project has none."""
    shared = workspace.project.build.cache
    if shared is None:
        detail = "Name a bucket in edgespec.yaml: `build: {cache: {bucket: SHOP-BUILD-CACHE}}`."
        raise EdgespecError(error("ES585", "the shared build cache cannot be used", detail))
    environment = _environment(shared, workspace)
    return shared.bucket, lambda: account_of(workspace, environment, environ, say)


def _environment(shared: SharedCache, workspace: Workspace) -> str:
    return shared.environment or workspace.environment
