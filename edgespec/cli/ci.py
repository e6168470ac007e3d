"""`edgespec ci`: what a project's CI says on its forge, and the plan that was reviewed there."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from edgespec.cli.options import environments_option, root_of
from edgespec.cli.output import print_text, say, write_whole
from edgespec.diagnostics import EdgespecError, error

if TYPE_CHECKING:
    from edgespec.ci.detect import Name
    from edgespec.ci.forge import Done, Forge

F = TypeVar("F", bound=Callable[..., Any])
_TEXT: Final = click.argument(
    "text", metavar="[FILE]", default="-", type=click.File(encoding="utf-8", errors="replace", lazy=False)
)


def _forge_option(function: F) -> F:
    return click.option(
        "--forge", type=click.Choice(["github", "gitlab"]), help="The forge; the one that this job runs on."
    )(function)


def _to_option(function: F) -> F:
    return click.option(
        "--to",
        type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
        help="Keep the text in this file (- for stdout) and tell no forge.",
    )(function)


@click.group("ci")
def command() -> None:
    """For workflows: a comment or an issue kept up to date, the reviewed plan fetched."""


@command.command("comment")
@_TEXT
@click.option("--key", default="plan", show_default=True, help="Which comment it is: one a key is kept up to date.")
@click.option("--number", type=click.IntRange(min=1), help="The pull or merge request; the one that this job is for.")
@_forge_option
@_to_option
def comment(text: Any, key: str, number: int | None, forge: Name | None, to: Path | None) -> None:
    """Put FILE, or standard input, into one comment of a pull or merge request, which every later run updates."""
    from edgespec.ci import detect
    from edgespec.ci.forge import put_comment

    body = text.read()
    if to is not None:
        _keep(to, "comment", key, body)
        return
    name = detect.forge_name(os.environ, forge)
    change = number or detect.change_of(os.environ, name)
    with _forge(name) as found:
        _tell("comment", *put_comment(found, change, key, body))


@command.command("issue")
@_TEXT
@click.option("--title", help="The issue's title; needed unless it is closed.")
@click.option("--key", default="drift", show_default=True, help="Which issue it is: one a key is open at most.")
@click.option("--close", is_flag=True, help="Close the open one instead, with the text as the reason.")
@_forge_option
@_to_option
def issue(text: Any, title: str | None, key: str, close: bool, forge: Name | None, to: Path | None) -> None:
    """Put FILE, or standard input, into one open issue: opened when there is none, updated when there is."""
    from edgespec.ci import detect
    from edgespec.ci.forge import close_issue, put_issue

    if title is None and not close:
        raise EdgespecError(error("ES742", "No title", "Give the issue a --title, or --close it."))
    body = text.read()
    if to is not None:
        _keep(to, "issue", key, "" if close else f"# {title}\n\n{body}")
        return
    with _forge(detect.forge_name(os.environ, forge)) as found:
        if close:
            _tell("issue", *close_issue(found, key, body))
        else:
            _tell("issue", *put_issue(found, key, title or "", body))


@command.command("drift")
@environments_option
@click.option("--title", default="edgespec: drift", show_default=True, help="The issue's title.")
@click.option("--key", default="drift", show_default=True, help="Which issue it is: one a key is open at most.")
@_forge_option
@_to_option
@click.pass_context
def drift(
    ctx: click.Context,
    environments: tuple[str, ...],
    everywhere: bool,
    title: str,
    key: str,
    forge: Name | None,
    to: Path | None,
) -> None:
    """Keep one issue about what somebody changed by hand: opened, updated while it is so, closed when it is not. Exits
    with 1 when an environment cannot be read; the issue then stays as it is or says so, and is never closed."""
    from edgespec.fleet import plan_all
    from edgespec.plan.model import Request
    from edgespec.render import drift as render_drift

    named = () if everywhere else environments or ("local",)
    found = plan_all(root_of(ctx), named, os.environ, say, request=Request(refresh_only=True))
    seen = [
        render_drift.Seen(p.environment, p.planned.plan.drift if p.planned else (), str(p.failure or ""))
        for p in found.plans
    ]
    failed = [s for s in seen if s.failure]
    text = render_drift.issue(found.project, seen)
    print_text(text)
    close = not failed and not any(s.drift for s in seen)
    if to is not None:
        _keep(to, "issue", key, "" if close else f"# {title}\n\n{text}")
    elif close or any(s.drift for s in seen):
        _report_drift(forge, key, title, text, close=close)
    sys.exit(1 if failed else 0)


def _report_drift(forge: Name | None, key: str, title: str, text: str, *, close: bool) -> None:
    from edgespec.ci import detect
    from edgespec.ci.forge import close_issue, put_issue

    with _forge(detect.forge_name(os.environ, forge)) as found:
        done, url = close_issue(found, key, text) if close else put_issue(found, key, title, text)
    say(f"issue {done}{': ' + url if url else ''}")


@command.command("reviewed")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--run", type=click.IntRange(min=1), help="A workflow's run or a pipeline, instead of the merged change.")
@click.option(
    "--artifact", default="edgespec-plan", show_default=True, help="What the plan's files are kept as; GitLab: the job."
)
@_forge_option
@click.pass_context
def reviewed(ctx: click.Context, folder: Path, run: int | None, artifact: str, forge: Name | None) -> None:
    """Fetch the plan files of the change request that this commit merged into DIR, and print them, a path a line, in
    the order of the project's environments: `edgespec apply` takes each."""
    from edgespec.ci import detect
    from edgespec.ci.reviewed import unpack

    with _forge(detect.forge_name(os.environ, forge)) as found:
        paths = unpack(found.reviewed_plans(artifact, run), folder)
    for path in _in_order(ctx, paths):
        click.echo(path)


def _in_order(ctx: click.Context, paths: list[Path]) -> list[Path]:
    from edgespec.workspace import load_workspace

    workspace = load_workspace(root_of(ctx), None, os.environ, any_environment=True)
    order = {name: i for i, name in enumerate(workspace.project.environments)}
    found: list[tuple[int, Path]] = []
    for path in paths:
        try:
            environment = json.loads(path.read_bytes())["environment"]
            found.append((order[environment], path))
        except (ValueError, KeyError, TypeError) as e:
            detail = f"{path} is a plan of no environment of this project. Run plan again."
            raise EdgespecError(error("ES745", "The kept plans are damaged", detail)) from e
    return [path for _, path in sorted(found)]


@contextlib.contextmanager
def _forge(name: Name) -> Iterator[Forge]:
    from edgespec.ci import detect

    with contextlib.closing(detect.forge_of(os.environ, name)) as found:
        yield found


def _keep(to: Path, kind: str, key: str, body: str) -> None:
    from edgespec.ci.forge import marker

    text = f"{marker(kind, key)}\n{body}" if body else ""
    if str(to) == "-":
        print_text(text)
    else:
        write_whole(to, text, what=f"The {kind}")
        say(f"{kind} {key}: in {to}")


def _tell(kind: str, done: Done, url: str) -> None:
    click.echo(f"{kind} {done}{': ' + url if url else ''}")
    sys.stdout.flush()
