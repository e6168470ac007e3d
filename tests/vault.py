"""A resource with a secret among its inputs, behind the provider protocol: as a Worker's secrets will be. Its API
quotes what it was sent when it refuses, as real ones do."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx
from cloudflare import BadRequestError

from edgespec.address import Address
from edgespec.apply.applier import apply as run_steps
from edgespec.apply.refresh import refresh
from edgespec.plan.events import ApplyResult, Event
from edgespec.plan.model import Plan
from edgespec.plan.planner import make_plan
from edgespec.providers.base import Observed, Progress
from edgespec.providers.cloudflare.account import api_errors
from edgespec.resources import compile as compiled
from edgespec.resources.base import DesiredResource, DesiredState, ResourceType
from edgespec.secret import Secret, scrub_logs
from edgespec.state.model import ResourceRecord
from edgespec.values import Inputs, Outputs
from tests.world import MemoryStore, World

TYPE = ResourceType("vault")
ADDRESS = Address("vault", "alpha")
NAME = "SUPPORT_TOKEN"


def quotes(text: str) -> list[str]:
    """How an API, a proxy or a library may write `text` into what it says."""
    encoded = text.encode()
    half = len(text) // 2
    return [
        text,
        json.dumps({"token": text}),
        json.dumps(json.dumps({"token": text})),
        repr(text),
        f"{text[:half]}\n      {text[half:]}",
        f'"{text[:half]}" "{text[half:]}"',
        "\x1b[31m".join(text),
        quote(text, safe=""),
        quote(text),
        "".join(f"%{b:02x}" for b in encoded),
        base64.b64encode(encoded).decode(),
        base64.urlsafe_b64encode(b"user:" + encoded + b"@host").decode(),
        base64.b64encode(b"Bearer " + encoded).decode(),
        quote(base64.b64encode(encoded).decode(), safe=""),
        encoded.hex(),
    ]


@dataclass
class Vault:
    """What the account holds, and the provider of it."""

    held: dict[str, str] = field(default_factory=dict)
    refuses: bool = False

    def read(self, record: ResourceRecord) -> Observed | None:
        return Observed(record.inputs, record.outputs) if record.address.name in self.held else None

    def find(self, address: Address, inputs: Inputs, nonce: str = "") -> Observed | None:
        return None

    def create(self, address: Address, inputs: Inputs, progress: Progress, nonce: str = "") -> Outputs:
        secrets: Any = inputs["secrets"]
        with api_errors(address, "Keeping the secret"):
            text = secrets["token"].reveal()
            progress(f"sending {text}", 0.5)
            logging.getLogger("httpx").warning("sending %s", text)
            if self.refuses:
                raise _refusal(text)
            self.held[address.name] = text
        return {"id": "1"}

    def update(self, record: ResourceRecord, inputs: Inputs, progress: Progress) -> Outputs:
        return self.create(record.address, inputs, progress)

    def delete(self, record: ResourceRecord, others: Sequence[ResourceRecord]) -> None:
        self.held.pop(record.address.name, None)


def _refusal(text: str) -> Exception:
    """As the SDK raises it: a message, a body, a cause with notes of its own."""
    said = " | ".join(quotes(text))
    request = httpx.Request("PUT", f"https://api.example.com/{quote(text, safe='')}")
    body = {"errors": [{"code": 10000, "message": said}], "messages": [text]}
    found = BadRequestError(f"Error code: 400 - {body}", response=httpx.Response(400, request=request), body=body)
    found.__cause__ = ValueError(said, {text: [text.encode()]})
    found.__cause__.add_note(f"while sending {text}")
    found.__cause__.__context__ = OSError(5, said, text)
    return found


def desired(text: str) -> DesiredState:
    inputs = {"title": "vault", "secrets": {"token": Secret(NAME, text), "list": [Secret("OTHER", f"{text}-2")]}}
    return DesiredState({ADDRESS: DesiredResource(ADDRESS, TYPE, inputs, ("alpha",))})


@contextmanager
def known() -> Iterator[None]:
    """The type is one of edgespec's meanwhile."""
    types: Any = compiled.TYPES
    types[TYPE.name] = TYPE
    scrub_logs()
    try:
        yield
    finally:
        del types[TYPE.name]


def plan(vault: Vault, store: MemoryStore, text: str) -> Plan:
    wanted = desired(text)
    state = store.load()
    return make_plan(wanted, state, refresh(state, wanted, {"vault": vault}), spec_digest="0" * 64).unwrap()


def apply(vault: Vault, store: MemoryStore, text: str, on_event: Callable[[Event], None]) -> ApplyResult:
    return run_steps(plan(vault, store, text), store.load(), {"vault": vault}, store, on_event, parallelism=1)


def store() -> MemoryStore:
    return MemoryStore(World())


__all__ = ["ADDRESS", "NAME", "Vault", "apply", "desired", "known", "plan", "quotes", "store"]
