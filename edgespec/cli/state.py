"""`edgespec state`: list, show, mv, rm, pull, push, unlock, init."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from edgespec import states
from edgespec.cli.options import environment_option, json_option, session_of
from edgespec.cli.output import print_diagnostics, print_json
from edgespec.diagnostics import Diagnostics, EdgespecError, error, warning
from edgespec.state.codec import encode, record_document
from edgespec.state.edit import unknown
from edgespec.stores.base import Holder


@click.group("state")
def command() -> None:
    """What edgespec has deployed, as it remembers it."""


@command.command("list")
@environment_option
@json_option
@click.pass_context
def list_(ctx: click.Context, environment: str | None, as_json: bool) -> None:
    """Every resource in state, a line each."""
    state = session_of(ctx, environment).store.load()
    records = sorted(state.records.items()) if state else []
    if as_json:
        print_json(
            [
                {
                    "address": str(k.address),
                    "deposed": k.deposed,
                    "status": r.status.value,
                    "protected": r.protected,
                }
                for k, r in records
            ]
        )
        return
    for key, record in records:
        notes = [record.status.value] if record.status.value != "ready" else []
        notes += ["protected"] if record.protected else []
        click.echo(f"{key}  ({', '.join(notes)})" if notes else str(key))


@command.command("show")
@click.argument("address", required=False)
@environment_option
@json_option
@click.pass_context
def show(ctx: click.Context, address: str | None, environment: str | None, as_json: bool) -> None:
    """One resource with its inputs and outputs, or the whole state. Always JSON: state has no other form."""
    state = states.current(session_of(ctx, environment))
    if address is None:
        print_json(json.loads(encode(state)))
        return
    wanted = states.address_of(address)
    found = [record_document(k, r) for k, r in sorted(state.records.items()) if k.address == wanted]
    if not found:
        raise EdgespecError(unknown(wanted))
    print_json(found[0] if len(found) == 1 else found)


@command.command("mv")
@click.argument("source")
@click.argument("target")
@environment_option
@click.pass_context
def mv(ctx: click.Context, source: str, target: str, environment: str | None) -> None:
    """Give a record another address of the same type. The object stays as it is; the next plan compares it with what
    the specs ask for at the new address."""
    states.move_record(session_of(ctx, environment), source, target)
    click.echo(f"{source} is {target} now.")


@command.command("rm")
@click.argument("addresses", nargs=-1, required=True, metavar="ADDRESS...")
@environment_option
@click.pass_context
def rm(ctx: click.Context, addresses: tuple[str, ...], environment: str | None) -> None:
    """Forget records. What they stand for stays deployed, and is nobody's."""
    gone = states.remove_records(session_of(ctx, environment), addresses)
    for key in gone:
        click.echo(f"{key} is forgotten.")
    detail = (
        f"{', '.join(str(k) for k in gone)}: what this stands for was not deleted. Remove it yourself, or take it over "
        "again with `edgespec apply --adopt`."
    )
    print_diagnostics(Diagnostics.of(warning("ES315", "Forgotten, not deleted", detail)))


@command.command("pull")
@environment_option
@click.pass_context
def pull(ctx: click.Context, environment: str | None) -> None:
    """Print the newest state as `push` takes it."""
    click.echo(encode(states.current(session_of(ctx, environment))), nl=False)


@command.command("push")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@click.option("--force", is_flag=True, help="Replace a newer state, one of another history, or a damaged one.")
@environment_option
@click.pass_context
def push(ctx: click.Context, file: Path, force: bool, environment: str | None) -> None:
    """Put FILE (- for standard input) in place of the state in use: an edited `pull`, or a back-up with --force."""
    session = session_of(ctx, environment)
    pushed = states.push(session, _read(file), str(file), force=force)
    if not pushed.changed:
        click.echo(f"{session.store.where} says the same already.")
        return
    before = "nothing was there" if pushed.before is None else f"serial {pushed.before} is kept as a back-up"
    click.echo(f"{session.store.where} is at serial {pushed.after} now; {before}.")


def _read(file: Path) -> bytes:
    if str(file) == "-":
        return sys.stdin.buffer.read()
    try:
        return file.read_bytes()
    except OSError as e:
        raise EdgespecError(error("ES301", "State cannot be read", f"{file}: {e.strerror}.")) from e


@command.command("unlock")
@click.argument("lease", required=False)
@click.option("--yes", is_flag=True, help="Do not ask.")
@environment_option
@click.pass_context
def unlock(ctx: click.Context, lease: str | None, yes: bool, environment: str | None) -> None:
    """Break a lock whose holder is gone. A holder that lives notices at its next step, and stops there."""
    session = session_of(ctx, environment)
    found = states.holder(session, lease)
    if found is None:
        click.echo(f"{session.store.where} is not locked.")
        return
    who = _described(found)
    if not yes:
        if not sys.stdin.isatty():
            detail = f"{who}. There is no terminal to ask on; pass --yes to break the lock."
            raise EdgespecError(error("ES205", "Not approved", detail))
        click.confirm(f"{who}.\nBreak the lock?", default=False, err=True, abort=True)
    session.store.unlock(found)
    click.echo(f"{session.store.where} is free. It was taken from {found.owner or 'another process'}.")


def _described(found: Holder) -> str:
    who = f"{found.owner or 'Another process'} holds it"
    if found.owner is not None:
        who += f" with the lease {found.owner.lease}"
    if found.silent_s is not None:
        who += f", and gave its last sign of life {round(found.silent_s)} s ago"
    return who


@command.command("init")
@environment_option
@click.pass_context
def init(ctx: click.Context, environment: str | None) -> None:
    """Make the bucket that keeps the environment's state (`state: {type: r2, bucket: ...}` in edgespec.yaml)."""
    bucket, made = states.make_state_bucket(session_of(ctx, environment))
    click.echo(f"Made the bucket {bucket}." if made else f"The bucket {bucket} is there already.")
