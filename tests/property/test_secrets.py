"""Whatever a secret's text is: no channel has it, in no form, and a changed one is seen."""

from __future__ import annotations

import base64
import copy
import json
import logging
import os
import pickle
import re
import traceback
from io import StringIO
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edgespec import secret
from edgespec.diagnostics import EdgespecError
from edgespec.plan.events import Event
from edgespec.plan.file import to_document
from edgespec.plan.model import Action
from edgespec.render import diagnostics as render_diagnostics
from edgespec.render import markdown
from edgespec.render import plan as render_plan
from edgespec.render.apply import totals
from edgespec.render.events import event_line, summary_line
from edgespec.render.text import fit, plain
from edgespec.secret import Secret, scrub
from edgespec.values import canonical_json, digest
from tests import vault

EXAMPLES = int(os.environ.get("EDGESPEC_SECRET_EXAMPLES", "12"))
TEXTS = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x2FFF, exclude_categories=("Cs", "Cc", "Cn", "Zs", "Zl", "Zp")),
    min_size=10,
    max_size=48,
).filter(lambda t: len(set(t)) >= 6 and len(_squeezed(t)) >= 8)


def _squeezed(text: str) -> str:
    return re.sub("\x1b\\[[0-9;]*[A-Za-z]|[^\\w=/%&#;-]", "", text)


def leaks(said: str, text: str) -> str:
    """How `text` can be read from `said`; empty where it cannot. Knows nothing of how it was scrubbed."""
    data = text.encode()
    if text in said or text in unquote(said):
        return "as it is"
    if _squeezed(text) in _squeezed(said):
        return "in pieces"
    if json.dumps(text)[1:-1] in said:
        return "as JSON"
    for run in re.findall(r"[0-9a-fA-F]{16,}", said):
        if data.hex() in run.lower():
            return "as hexadecimal"
    for run in re.findall(r"[\w+/-]{12,}", unquote(said), re.ASCII):
        for start in range(4):
            part = run[start:].replace("-", "+").replace("_", "/")
            part = part[: len(part) // 4 * 4]
            if data in base64.b64decode(part):
                return "as base64"
    return ""


def forget() -> None:
    """As in a process that has just begun: only this example's secrets are live."""
    secret._LIVE.forms, secret._LIVE.pieces = {}, tuple({} for _ in secret._GAPS)


class Channels:
    """Everything that left."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self.events: list[Event] = []

    def add(self, name: str, text: str) -> None:
        self.found[name] = self.found.get(name, "") + text

    def check(self, text: str) -> None:
        for name, said in self.found.items():
            assert (how := leaks(said, text)) == "", f"{name} tells the secret {how}"


def shown(made: Any, channels: Channels, which: str) -> None:
    lines = render_plan.render(made, "shop", "local")
    channels.add(f"{which} text", plain(lines) + plain(fit(lines, 80)))
    channels.add(f"{which} markdown", markdown.render(made, "shop", "local"))
    document = to_document(made, project="shop", environment="local")
    channels.add(f"{which} JSON", json.dumps(document))
    channels.add(f"{which} objects", f"{made!r} {made.changes!s} {made.changes[0].after}")


def reported(result: Any, channels: Channels) -> None:
    channels.add("totals", plain(totals(result)))
    channels.add("diagnostics", plain(render_diagnostics.render(result.diagnostics)))
    channels.add("diagnostics JSON", json.dumps(render_diagnostics.to_json(result.diagnostics)))
    for event in channels.events:
        channels.add("events", json.dumps(event_line(event, 0.0)))
    channels.add("summary", json.dumps(summary_line(None, result, "done", result.diagnostics, 0.0)))


@settings(max_examples=EXAMPLES)
@given(TEXTS)
@example("p\"a\\ss'w&<>ö%20rd+/=")
@example("aaaaaaaabbbbcdef")
@example("%41%42%43%44%45%46")
@example("é" * 5 + "漢字" * 4 + "xyz")
def test_no_channel_has_it(text: str) -> None:
    forget()
    channels, handler = Channels(), logging.StreamHandler(StringIO())
    logger = logging.getLogger("httpx")
    logger.addHandler(handler)
    store, holder = vault.store(), vault.Vault()
    try:
        with vault.known():
            _live(text, channels, store, holder)
    finally:
        logger.removeHandler(handler)
    channels.add("log", handler.stream.getvalue())
    assert "sending (secret" in channels.found["log"]
    channels.check(text)


def _live(text: str, channels: Channels, store: Any, holder: vault.Vault) -> None:
    """A first apply, an empty plan, a change that is refused, then goes through."""
    shown(vault.plan(holder, store, text), channels, "first plan")
    result = vault.apply(holder, store, text, channels.events.append)
    reported(result, channels)
    assert holder.held["alpha"] == text and not result.diagnostics.has_errors
    channels.add("journal", store.journal.decode())
    store.fold()
    channels.add("state", store.text)
    channels.add("records", repr(store.load().records))
    assert vault.plan(holder, store, text).is_empty

    other = text[1:] + text[0] + "x"
    changed = vault.plan(holder, store, other)
    (change,) = changed.changes
    assert change.action is Action.UPDATE and {f.path for f in change.fields} == {"secrets.token", "secrets.list"}
    shown(changed, channels, "second plan")
    assert "secrets.token" in channels.found["second plan text"] and ", changed" in channels.found["second plan text"]
    holder.refuses = True
    refused = vault.apply(holder, store, other, channels.events.append)
    assert refused.diagnostics.has_errors and "Keeping the secret failed" in str(refused.diagnostics.items[0])
    reported(refused, channels)
    channels.add("journal", store.journal.decode())
    _trace(holder, other, channels)
    holder.refuses = False
    vault.apply(holder, store, other, channels.events.append)
    store.fold()
    channels.add("state", store.text)
    assert vault.plan(holder, store, other).is_empty and holder.held["alpha"] == other
    channels.check(other)


def _trace(holder: vault.Vault, text: str, channels: Channels) -> None:
    """The whole chain of an error, as a library's user would print it, frames included."""
    try:
        holder.create(vault.ADDRESS, vault.desired(text).resources[vault.ADDRESS].inputs, lambda *_: None)
    except EdgespecError as e:
        channels.add("traceback", "".join(traceback.format_exception(e)))
        channels.add("error", f"{e!r} {e} {e.__cause__!r} {e.__cause__.__dict__}")
    assert "BadRequestError" in channels.found["traceback"]


@settings(max_examples=EXAMPLES)
@given(TEXTS, st.text(max_size=20), st.data())
def test_scrubbing(text: str, around: str, data: st.DataObject) -> None:
    forget()
    Secret("SCRUBBED", text)
    for quoted in vault.quotes(text):
        for said in (f"{around}{quoted}{around}", f"x {quoted} y {quoted} z"):
            assert (how := leaks(scrub(said), text)) == "", (how, quoted)
            assert scrub(scrub(said)) == scrub(said)
    cuts = sorted(data.draw(st.lists(st.integers(1, len(text) - 1), max_size=4)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert leaks(scrub("\r\n  ".join(pieces)), text) == ""


@settings(max_examples=EXAMPLES)
@given(TEXTS, TEXTS)
def test_the_value_itself(text: str, other: str) -> None:
    forget()
    value = Secret("A", text)
    texts = [str(value), repr(value), f"{value}", f"{value:>60}", repr([value]), repr({"a": value}),
             canonical_json({"a": value}), digest({"a": value})]  # fmt: skip
    assert not any(leaks(t, text) for t in texts)
    for write in (json.dumps, pickle.dumps):
        with pytest.raises(TypeError) as refused:
            write({"a": value})
        assert not leaks(str(refused.value), text)
    with pytest.raises(TypeError):
        vars(value)
    again = Secret.sealed("A", value.digest)
    assert value == again == copy.deepcopy(value) and hash(value) == hash(again)
    with pytest.raises(ValueError, match="digest alone"):
        again.reveal()
    assert (value == Secret("A", other)) == (text == other) and value != Secret("B", text)
    assert (again == Secret("A", other)) == (text == other)
