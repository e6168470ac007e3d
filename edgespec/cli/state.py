"""`edgespec state list|show`."""

from __future__ import annotations

import click

from edgespec import operations
from edgespec.cli.options import environment_option, json_option, session_of
from edgespec.cli.output import print_json
from edgespec.diagnostics import EdgespecError, error
from edgespec.state.codec import encode


@click.group("state")
def command() -> None:
    """What edgespec has deployed, as it remembers it."""


@command.command("list")
@environment_option
@json_option
@click.pass_context
def list_(ctx: click.Context, environment: str | None, as_json: bool) -> None:
    """Every resource in state, a line each."""
    state = operations.current_state(session_of(ctx, environment))
    records = sorted(state.records.items()) if state else []
    if as_json:
        print_json([{"address": str(k.address), "deposed": k.deposed, "status": r.status.value} for k, r in records])
        return
    for key, record in records:
        click.echo(str(key) if record.status.value == "ready" else f"{key}  ({record.status.value})")


@command.command("show")
@click.argument("address", required=False)
@environment_option
@json_option
@click.pass_context
def show(ctx: click.Context, address: str | None, environment: str | None, as_json: bool) -> None:
    """One resource with its inputs and outputs, or the whole state. Always JSON: state has no other form."""
    import json

    state = operations.current_state(session_of(ctx, environment))
    if state is None:
        raise EdgespecError(error("ES306", "No state", "Nothing was applied to this environment yet."))
    document = json.loads(encode(state))
    if address is None:
        print_json(document)
        return
    found = [r for r in document["resources"] if r["address"] == address]
    if not found:
        detail = f"{address} is not in state. `edgespec state list` shows what is."
        raise EdgespecError(error("ES307", "Unknown address", detail))
    print_json(found[0] if len(found) == 1 else found)
