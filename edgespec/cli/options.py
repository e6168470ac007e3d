"""Options that several commands share, and the session that they open."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from edgespec.address import Address
from edgespec.apply import PARALLELISM
from edgespec.cli.output import say
from edgespec.diagnostics import EdgespecError, error
from edgespec.plan.model import Request
from edgespec.session import Session, open_session
from edgespec.workspace import find_root

F = TypeVar("F", bound=Callable[..., Any])


def environment_option(function: F) -> F:
    return click.option("-e", "--env", "environment", help="The environment; `local` when not given.")(function)


def environments_option(function: F) -> F:
    """One environment, several, or all of the project's."""
    every = click.option("--all-environments", "everywhere", is_flag=True, help="Every environment of the project.")
    named = click.option(
        "-e", "--env", "environments", multiple=True, help="The environment; `local` when not given. Repeatable."
    )
    return named(every(function))


def selector_option(function: F) -> F:
    help_ = "Only specs with these labels: `team=support`, `tier in (a,b)`, `!team`; a comma means and."
    return click.option("-l", "--selector", metavar="LABELS", help=help_)(function)


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")(function)


def parallelism_option(function: F) -> F:
    return click.option(
        "--parallelism",
        type=click.IntRange(1, 64),
        default=PARALLELISM,
        show_default=True,
        help="Steps at once; models are built one at a time.",
    )(function)


_REQUEST: Final = (
    click.option(
        "--target", "targets", multiple=True, metavar="ADDRESS", help="Only this, and all that it needs; repeatable."
    ),
    click.option("--exclude", "excludes", multiple=True, metavar="ADDRESS", help="Leave this as it is; repeatable."),
    click.option("--refresh-only", is_flag=True, help="Change nothing but state: it becomes what is live."),
    click.option("--allow-destroy", is_flag=True, help="Let protected environments and many resources be destroyed."),
)


def request_options(function: F) -> F:
    """Which part is planned, and what it may do."""
    for option in reversed(_REQUEST):
        function = option(function)
    return function


def request_of(names: tuple[str, ...], *, destroy: bool, selector: str | None = None, **options: Any) -> Request:
    """The options of `request_options` with the rest of what is asked. What a `selector` picks is known later."""
    request = Request(
        names,
        destroy,
        tuple(address_of(a) for a in options["targets"]),
        tuple(address_of(a) for a in options["excludes"]),
        options["refresh_only"],
        options["allow_destroy"],
    )
    some = names or selector is not None
    if request.refresh_only and (some or destroy or request.targets or request.excludes):
        detail = "--refresh-only brings the whole state up to date; it goes with no names, targets or --destroy."
        raise EdgespecError(error("ES226", "Options that do not go together", detail))
    if some and request.targets:
        detail = "Names (or --selector) and --target both say which part: name specs, or target addresses."
        raise EdgespecError(error("ES226", "Options that do not go together", detail))
    return request


def address_of(text: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError:
        detail = f"{text!r}: write TYPE/NAME as `edgespec plan` and `edgespec state list` show it."
        raise EdgespecError(error("ES227", "Not an address", detail)) from None


def root_of(ctx: click.Context) -> Path:
    """The project's folder, from -C or the working folder."""
    directory: Path = ctx.find_root().obj or Path()
    return find_root(directory.resolve())


def session_of(ctx: click.Context, environment: str | None, *, any_environment: bool = False) -> Session:
    return open_session(root_of(ctx), environment, os.environ, say, any_environment=any_environment)
