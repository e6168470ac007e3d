"""`edgespec cache stats|gc|init`: the build cache of this machine, and the shared one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from edgespec.cli.options import environment_option, json_option, session_of
from edgespec.cli.output import print_json
from edgespec.records import as_dict
from edgespec.spec.units import format_size, parse_duration, parse_size

if TYPE_CHECKING:
    from edgespec.build.sweep import Row, Swept


@click.group("cache")
def command() -> None:
    """The build cache: what it holds, and making it smaller."""


@command.command("stats")
@json_option
def stats(as_json: bool) -> None:
    """What this machine's cache holds, by stage."""
    from edgespec.build.cache import Cache, default_cache_dir
    from edgespec.build.sweep import contents

    cache, now = Cache(default_cache_dir(os.environ)), time.time()
    found = contents(cache, now)
    rows = found.rows()
    if as_json:
        document = {"path": str(cache.root), "bytes": found.bytes, "stages": [as_dict(r) for r in rows]}
        print_json(document)
        return
    click.echo(str(cache.root))
    for text in _table(rows, found.bytes, now):
        click.echo(text)


def _table(rows: Sequence[Row], total: int, now: float) -> list[str]:
    cells = [("stage", "entries", "size", "least recently used", "most recently used")]
    for row in rows:
        used = ("", "") if row.oldest is None or row.newest is None else (_ago(now, row.oldest), _ago(now, row.newest))
        cells.append((row.stage, str(row.entries), format_size(row.bytes), *used))
    cells.append(("total", "", format_size(total), "", ""))
    widths = [max(len(row[i]) for row in cells) for i in range(5)]
    align = (str.ljust, str.rjust, str.rjust, str.ljust, str.ljust)
    return ["  ".join(f(c, w) for f, c, w in zip(align, row, widths, strict=True)).rstrip() for row in cells]


def _ago(now: float, then: float) -> str:
    seconds = max(0.0, now - then)
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"


def _parsed(parse: Callable[[object], int]) -> Callable[[click.Context, click.Parameter, str | None], int | None]:
    def read(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
        try:
            return None if text is None else parse(text)
        except ValueError as why:
            raise click.BadParameter(str(why)) from None

    return read


@command.command("gc")
@click.option(
    "--older-than", metavar="TIME", callback=_parsed(parse_duration), help="Remove what was not used for so long: 30d."
)
@click.option(
    "--max-size",
    metavar="SIZE",
    callback=_parsed(parse_size),
    help="Remove the least recently used until the rest fits: 20GiB.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@json_option
def gc(older_than: int | None, max_size: int | None, dry_run: bool, as_json: bool) -> None:
    """Remove what nothing refers to, and what was not used for long. Never while a build runs."""
    from edgespec.build.cache import Cache, default_cache_dir
    from edgespec.build.sweep import sweep

    cache = Cache(default_cache_dir(os.environ))
    swept = sweep(cache, time.time(), older_than=older_than, max_size=max_size, dry_run=dry_run)
    if as_json:
        print_json({"path": str(cache.root), "dry_run": dry_run, **as_dict(swept)})
        return
    click.echo(_sentence(swept, dry_run=dry_run))


def _sentence(swept: Swept, *, dry_run: bool) -> str:
    what = [
        _count(swept.entries, "result", "results"),
        _count(swept.downloads, "downloaded model", "downloaded models"),
        _count(swept.blobs, "blob", "blobs"),
    ]
    verb = "Would remove" if dry_run else "Removed"
    return f"{verb} {', '.join(what)}: {format_size(swept.bytes)}. {format_size(swept.left)} left."


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


@command.command("init")
@environment_option
@click.pass_context
def init(ctx: click.Context, environment: str | None) -> None:
    """Make the bucket of the project's shared build cache (`build: {cache: {bucket: ...}}` in edgespec.yaml)."""
    from edgespec.builds import make_build_cache

    bucket, made = make_build_cache(session_of(ctx, environment))
    click.echo(f"Made the bucket {bucket}." if made else f"The bucket {bucket} is there already.")
