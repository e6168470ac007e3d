"""Options that several commands share, and the session that they open."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from edgespec.cli.output import say
from edgespec.operations import Session, open_session
from edgespec.workspace import find_root

F = TypeVar("F", bound=Callable[..., Any])


def environment_option(function: F) -> F:
    return click.option("-e", "--env", "environment", help="The environment; `local` when not given.")(function)


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")(function)


def root_of(ctx: click.Context) -> Path:
    """The project's folder, from -C or the working folder."""
    directory: Path = ctx.find_root().obj or Path()
    return find_root(directory.resolve())


def session_of(ctx: click.Context, environment: str | None, *, any_environment: bool = False) -> Session:
    return open_session(root_of(ctx), environment, os.environ, say, any_environment=any_environment)
