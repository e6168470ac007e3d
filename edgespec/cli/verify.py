"""`edgespec verify`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from edgespec.cli.options import environment_option, json_option, session_of
from edgespec.cli.output import print_json, print_lines, say


@click.command("verify")
@click.argument("name")
@environment_option
@click.option(
    "--key",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A public key (PEM) to trust instead of the project's.",
)
@click.option(
    "--attest",
    is_flag=True,
    help="First put the statement of it that this machine can make into its buckets, signed by EDGESPEC_SIGNING_KEY.",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context, name: str, environment: str | None, key: Path | None, attest: bool, as_json: bool
) -> None:
    """Check that what is deployed is what its provenance statement is about, byte for byte, and that somebody trusted
    has signed it. Exits with 1 when anything failed; changes nothing without --attest."""
    from edgespec import provenance
    from edgespec.render import verification as render_verification
    from edgespec.verification import to_document

    session = session_of(ctx, environment)
    if attest:
        for bucket in provenance.attest(session, name):
            say(f"{bucket} has the statement")
    found = provenance.verify(session, name, key)
    if as_json:
        print_json(to_document(found))
    else:
        print_lines(render_verification.render(found))
    sys.exit(0 if found.passed else 1)
