"""What `edgespec state` does, as functions: looking at state and editing it. Nothing that is deployed is touched."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from edgespec.address import Address
from edgespec.diagnostics import Checked, EdgespecError, error
from edgespec.providers.cloudflare.remote_cache import make_bucket
from edgespec.records import replace
from edgespec.session import Session, check_owner, held_store
from edgespec.spec.models import R2State
from edgespec.state.codec import parse
from edgespec.state.edit import move, remove, replacement
from edgespec.state.model import Key, State
from edgespec.stores.base import Holder
from edgespec.target import account_of


def current(session: Session) -> State:
    """Raises when nothing was ever applied."""
    state = session.store.load()
    if state is None:
        raise EdgespecError(error("ES306", "No state", "Nothing was applied to this environment yet."))
    return state


def address_of(text: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError:
        detail = f"{text} is no address: TYPE/NAME, as `edgespec state list` shows them."
        raise EdgespecError(error("ES307", "Unknown address", detail)) from None


def move_record(session: Session, source: str, target: str) -> State:
    """Under the lock, with a back-up. Returns what was written."""
    moves = {address_of(source): address_of(target)}
    return _edit(session, "state mv", lambda state: move(state, moves))


def remove_records(session: Session, addresses: tuple[str, ...]) -> tuple[Key, ...]:
    """Forget them, all or none. Returns what was forgotten and still exists."""
    gone: list[Key] = []

    def forget(state: State) -> Checked[State]:
        for text in addresses:
            address = address_of(text)
            gone.extend(sorted(k for k in state.records if k.address == address))
            found = remove(state, address)
            if found.value is None:
                return found
            state = found.value
        return Checked(state)

    _edit(session, "state rm", forget)
    return tuple(gone)


def _edit(session: Session, operation: str, change: Callable[[State], Checked[State]]) -> State:
    with held_store(session, operation) as store:
        state = current(session)
        check_owner(state, session)
        return store.save(change(state).unwrap())


@dataclass(frozen=True, slots=True)
class Pushed:
    before: int | None
    """The serial of what was replaced."""
    after: int
    changed: bool


def push(session: Session, data: bytes, where: str, *, force: bool) -> Pushed:
    """Put a state in place of the one in use; what is damaged may be replaced by force."""
    given = parse(data, where)
    check_owner(given, session)
    with held_store(session, "state push") as store:
        before: State | None = None
        try:
            before = store.load()
        except EdgespecError:
            if not force:
                raise
        written = replacement(before, given, force=force).unwrap()
        if before is not None and before.lineage == written.lineage and before.same_records(written):
            return Pushed(before.serial, before.serial, changed=False)
        if not written.lineage:
            written = replace(written, lineage=str(uuid.uuid4()))
        return Pushed(before.serial if before else None, store.save(written).serial, changed=True)


def holder(session: Session, lease: str | None) -> Holder | None:
    """Who holds the lock; raises when that is not `lease`, where one is named."""
    found = session.store.holder()
    if found is not None and lease is not None and (found.owner is None or found.owner.lease != lease):
        detail = f"{found.owner or 'another process'} holds {session.store.where} now, not {lease}."
        raise EdgespecError(error("ES314", "The lock is not broken", detail))
    return found


def make_state_bucket(session: Session) -> tuple[str, bool]:
    """Makes the bucket that keeps the environment's state: its name, and whether it was missing."""
    workspace = session.workspace
    state = workspace.target.state
    if not isinstance(state, R2State):
        detail = (
            f"{workspace.environment} keeps its state in {session.store.where}. Name a bucket in edgespec.yaml: "
            f"`environments: {{{workspace.environment}: {{state: {{type: r2, bucket: SHOP-STATE}}}}}}`."
        )
        raise EdgespecError(error("ES310", "No bucket keeps this state", detail))
    with contextlib.closing(account_of(workspace, workspace.environment, session.environ, session.say)) as account:
        return state.bucket, make_bucket(account, state.bucket, state.jurisdiction or "default")
