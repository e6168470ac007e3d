"""`edgespec diff`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from edgespec.cli.options import json_option, selector_option
from edgespec.cli.output import print_json, print_lines, print_text
from edgespec.diagnostics import EdgespecError, error
from edgespec.workspace import PROJECT_FILE


@click.command("diff")
@click.argument("revisions", required=False, metavar="[A..B | A...B | A]")
@click.option("-e", "--env", "environments", multiple=True, help="Only this environment; repeatable.")
@selector_option
@json_option
@click.option("--markdown", "as_markdown", is_flag=True, help="Print a comment for a change request.")
@click.pass_context
def command(
    ctx: click.Context,
    revisions: str | None,
    environments: tuple[str, ...],
    selector: str | None,
    as_json: bool,
    as_markdown: bool,
) -> None:
    """What two git revisions of the project ask for differently, for whom, and how risky it is.

    A..B compares two revisions, A...B what B has changed since it left A; A alone, or nothing for HEAD, compares with
    the work tree. Nothing is checked out, asked of an account, built or changed."""
    from edgespec.diffing import diff
    from edgespec.plan.comparison_document import to_document
    from edgespec.render import diff as render_diff

    if as_json and as_markdown:
        detail = "--json and --markdown each print a whole document; choose one."
        raise EdgespecError(error("ES226", "Options that do not go together", detail))
    found = diff(_folder(ctx), revisions, environments, os.environ, selector=selector)
    if as_json:
        print_json(to_document(found))
    elif as_markdown:
        print_text(render_diff.markdown(found))
    else:
        print_lines(render_diff.render(found))


def _folder(ctx: click.Context) -> Path:
    """The project's, or where the command was started: the work tree may have no project, or there may be none."""
    start: Path = (ctx.find_root().obj or Path()).resolve()
    return next((f for f in (start, *start.parents) if (f / PROJECT_FILE).is_file()), start)
