"""`edgespec import`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from edgespec import adoption
from edgespec.cli.options import address_of, environment_option, json_option, session_of
from edgespec.cli.output import print_json, print_lines, say
from edgespec.diagnostics import EdgespecError, error
from edgespec.plan.imports import Discovered, Import
from edgespec.render import imported as render_imported


@click.command("import")
@click.argument("addresses", nargs=-1, metavar="[ADDRESS]...")
@environment_option
@click.option("--all", "everything", is_flag=True, help="All that the account holds under this project's names.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    addresses: tuple[str, ...],
    environment: str | None,
    everything: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Take existing objects into state: the named ones, or with --all everything that is deployed under this project's
    names. Nothing live is changed."""
    if everything == bool(addresses):
        detail = "Name addresses as `edgespec plan` shows them (worker/NAME), or say --all."
        raise EdgespecError(error("ES226", "Options that do not go together", detail))
    session = session_of(ctx, environment)
    listed: Discovered | None = None
    approve = _approval(yes=yes, as_json=as_json)
    if everything:
        listed = adoption.discover_all(session)
        if not as_json:
            print_lines(render_imported.discovered(listed))
        taken = adoption.import_described(session, approve)
    else:
        taken = adoption.import_addresses(session, [address_of(a) for a in addresses], approve)
    if as_json:
        print_json(_document(listed, taken))
    elif taken:
        say(f"{len(taken)} in state now. Run `edgespec plan` to see what is left to do.")
    else:
        say("Nothing was imported.")
    sys.exit(0)


def _approval(*, yes: bool, as_json: bool) -> Callable[[Sequence[Import]], bool]:
    def approve(found: Sequence[Import]) -> bool:
        print_lines(render_imported.imports(found), err=as_json)
        if yes:
            return True
        if not sys.stdin.isatty():
            detail = "There is no terminal to ask on. Review what is listed and pass --yes."
            raise EdgespecError(error("ES205", "Not approved", detail))
        return click.confirm("Take these into state?", default=False, err=True)

    return approve


def _document(listed: Discovered | None, taken: Sequence[Import]) -> dict[str, Any]:
    found: dict[str, Any] = {"imported": [str(i.record.address) for i in taken]}
    if listed is not None:
        found["deployed"] = [
            {"address": str(d.address), "in_state": d.address in listed.in_state, "note": d.note}
            for d in listed.deployed
        ]
        found["specs_written"], found["specs_kept"] = list(listed.written), list(listed.kept)
    return found
