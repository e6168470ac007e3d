"""One command's view of a project, and how it gets at its state and its account."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from edgespec.build.cache import Cache, default_cache_dir
from edgespec.build.remote import RemoteCache
from edgespec.diagnostics import EdgespecError, error
from edgespec.providers.cloudflare.account import Account, Paces
from edgespec.spec.models import EdgeModel
from edgespec.state.model import State
from edgespec.stores.base import StateStore
from edgespec.target import Say, account_of, local_edge_of, shared_cache_of, state_store_of
from edgespec.workspace import LOCAL_ACCOUNT, Reader, Workspace, reader_of

if TYPE_CHECKING:
    from edgespec.local_edge.edge import LocalEdge


class Session(Struct, frozen=True):
    """One command's view: a valid project, the machine's cache and environment variables, where to say progress."""

    workspace: Workspace
    cache: Cache
    environ: Mapping[str, str]
    say: Say
    store: StateStore
    """Of the environment in use; connects when it is asked for something."""
    remote: RemoteCache | None = None
    """The build cache that the project's machines share; connects when it is asked for something."""
    paces: Paces | None = None
    """Where sessions of several environments run at once: what keeps the calls of one token under its limit."""

    @property
    def specs(self) -> dict[str, EdgeModel]:
        return {s.name: s for s in self.workspace.specs}


def open_session(
    root: Path,
    environment: str | None,
    environ: Mapping[str, str],
    say: Say,
    *,
    any_environment: bool = False,
    reader: Reader | None = None,
) -> Session:
    """`reader` where the project's files are read for several environments."""
    reader = reader_of(root) if reader is None else reader
    workspace = reader.workspace(environment, environ, any_environment=any_environment)
    remote = shared_cache_of(workspace, environ, say)
    store = state_store_of(workspace, environ, say)
    return Session(workspace, Cache(default_cache_dir(environ)), environ, say, store, remote)


def local_edge(session: Session) -> LocalEdge:
    """The project's local edge, running or not; raises when the environment's target is another."""
    return local_edge_of(session.workspace, session.workspace.environment, session.environ, session.say)


def connect(session: Session) -> Account:
    """The account that the environment deploys to; starts the local edge when it is not running."""
    workspace = session.workspace
    return account_of(workspace, workspace.environment, session.environ, session.say, session.paces)


def current_state(session: Session) -> State | None:
    return session.store.load()


def stored(session: Session) -> tuple[State, frozenset[str]]:
    """State, an empty one before the first apply, and the specs that own what is in it."""
    workspace = session.workspace
    state = session.store.load() or State("", workspace.project.name, workspace.environment)
    check_owner(state, session)
    return state, frozenset(o for r in state.records.values() for o in r.owners)


@contextlib.contextmanager
def held_store(session: Session, operation: str) -> Iterator[StateStore]:
    """The state, which nobody else writes meanwhile."""
    with session.store.lock(operation) as lease:
        if lease.robbed is not None:
            session.say(f"took over the lock of {lease.robbed}")
        yield session.store


def check_owner(state: State, session: Session) -> None:
    """Raise unless `state` is this project's and environment's, of the account that the environment deploys to."""
    workspace = session.workspace
    if (state.project, state.environment) != (workspace.project.name, workspace.environment):
        detail = (
            f"{session.store.where} belongs to {state.project} in {state.environment}, not to "
            f"{workspace.project.name} in {workspace.environment}. Give each environment its own `state`; "
            "a project keeps its name."
        )
        raise EdgespecError(error("ES305", "The state is another's", detail))
    target = workspace.account
    if state.account and state.account != target:
        detail = (
            f"{session.store.where} names what is in {_account(state.account)}; {workspace.environment} now deploys "
            f"to {_account(target)}, and a plan would forget the one and make everything anew in the other. Put "
            "`target` back, or give the new account an environment of its own."
        )
        raise EdgespecError(error("ES305", "The state is another's", detail))


def _account(name: str) -> str:
    return "the local edge" if name == LOCAL_ACCOUNT else f"the account {name}"
