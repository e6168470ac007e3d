"""`edgespec infer`."""

from __future__ import annotations

import sys

import click

from edgespec import asking
from edgespec.cli.options import environment_option, json_option, session_of
from edgespec.cli.output import print_json, print_lines
from edgespec.diagnostics import EdgespecError, error
from edgespec.render import answer


@click.command("infer")
@click.argument("name")
@click.argument("texts", nargs=-1, metavar="TEXT...")
@environment_option
@json_option
@click.pass_context
def command(ctx: click.Context, name: str, texts: tuple[str, ...], environment: str | None, as_json: bool) -> None:
    """Ask a deployed model about one text or several; without TEXT, each line of standard input is one."""
    if not texts and not sys.stdin.isatty():
        texts = tuple(t for t in sys.stdin.read().splitlines() if t.strip())
    if not texts:
        raise EdgespecError(error("ES408", "No text", 'Give one: edgespec infer NAME "where is my parcel".'))
    session = session_of(ctx, environment)
    found = asking.infer(session, name, {"texts": list(texts)})
    if as_json:
        print_json(found)
        return
    for text, result in zip(texts, found["results"], strict=True):
        print_lines(answer.render(text, result))
    click.echo(f"({found['model']}, artifact {found['artifact']}, shard {found['shard']})", err=True)
