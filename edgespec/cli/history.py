"""`edgespec history`."""

from __future__ import annotations

import sys
from typing import Any

import click

from edgespec.cli.options import environment_option, json_option, session_of
from edgespec.cli.output import print_json, print_lines
from edgespec.render import releases as render_releases


@click.command("history")
@click.argument("name", metavar="NAME")
@environment_option
@json_option
@click.pass_context
def command(ctx: click.Context, name: str, environment: str | None, as_json: bool) -> None:
    """What an environment deploys of a model and what it deployed before: releases, and what only state knows. What is
    `kept` can be rolled back to without an upload."""
    from edgespec import rollback

    found = rollback.history(session_of(ctx, environment), name)
    if as_json:
        print_json(_document(found))
    else:
        rows = [_row(p) for p in found.past]
        print_lines(render_releases.history(found.name, found.environment, found.pinned, rows))
    sys.exit(0)


def _marks(past: Any) -> tuple[str, ...]:
    return tuple(m for m in ("current", "live", "kept") if getattr(past, m))


def _row(past: Any) -> render_releases.Row:
    release = past.release
    source = []
    if release is not None and release.revision is not None:
        source.append(render_releases.revision(release))
    if release is not None and release.origin is not None:
        source.append(f"from {release.origin.worker}")
    number = release.number if release is not None else None
    return render_releases.Row(number, past.artifact, past.size, past.metrics, _marks(past), "  ".join(source))


def _document(found: Any) -> dict[str, Any]:
    from edgespec.render.releases_document import HistoryDocument, PastDocument

    fields = ("artifact", "size", "metrics", "current", "live", "kept", "release")
    past = tuple(PastDocument(**{field: getattr(p, field) for field in fields}) for p in found.past)
    document = HistoryDocument(name=found.name, environment=found.environment, pinned=found.pinned, history=past)
    return document.model_dump(mode="json", by_alias=True)
