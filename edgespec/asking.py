"""What `infer` does: a question to a deployed model."""

from __future__ import annotations

import contextlib
from typing import Any

from edgespec.address import Address
from edgespec.diagnostics import EdgespecError, error
from edgespec.resources import deployment, worker
from edgespec.session import Session, connect


def infer(session: Session, name: str, body: dict[str, Any]) -> dict[str, Any]:
    """Ask the deployed model at its public address; `body` is `/infer`'s (docs/worker-runtime.md)."""
    import httpx

    state = session.store.load()
    known = frozenset(o for r in (state.records.values() if state else ()) for o in r.owners)
    session.workspace.check_names((name,), also=known)
    record = state.get(Address(worker.TYPE.name, name)) if state else None
    if state is None or record is None or state.get(Address(deployment.TYPE.name, name)) is None:
        detail = f"{name} is not deployed in {session.workspace.environment}. Run `edgespec apply` first."
        raise EdgespecError(error("ES405", "Not deployed", detail))
    with contextlib.closing(connect(session)) as account:
        url = account.worker_url(str(record.inputs["script"])) + "infer"
    try:
        answer = httpx.post(url, json=body, timeout=60, trust_env=not account.endpoints.is_loopback)
    except httpx.TransportError as e:
        detail = f"{url}: {type(e).__name__}. Run `edgespec plan` to see whether it is still deployed."
        raise EdgespecError(error("ES406", "No answer", detail)) from e
    if answer.status_code != httpx.codes.OK:
        raise EdgespecError(error("ES407", "The Worker refused", f"HTTP {answer.status_code}: {_message(answer)}"))
    found: dict[str, Any] = answer.json()
    return found


def _message(answer: Any) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return str(answer.text[:300])
