"""`edgespec init`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from edgespec.cli.output import say
from edgespec.diagnostics import EdgespecError, error

if TYPE_CHECKING:
    from edgespec.scaffold.project import Forge, Task

_TASKS = ("text-classification", "keyword-extraction", "embedding")


@click.command("init")
@click.argument("directory", default=".", metavar="[DIR]", type=click.Path(path_type=Path, file_okay=False))
@click.option("--task", type=click.Choice(_TASKS), help="What the model does.")
@click.option("--name", help="The project's name; the folder's when not given.")
@click.option("--model", help="The first model's name; after its task when not given.")
@click.option("--source", help="Where the model comes from (docs/build.md); MiniLM-L6 when not given.")
@click.option("--ci", type=click.Choice(["github", "gitlab", "none"]), help="Also the workflows of this forge.")
@click.option("--ci-only", is_flag=True, help="Only the workflows, for a project that there is already.")
@click.pass_context
def command(ctx: click.Context, /, directory: Path, ci: str | None, ci_only: bool, **given: Any) -> None:
    """Write a working project into DIR: a spec with its data, schemas for editors, workflows on wish. Asks on a
    terminal for what no option says. Nothing is written over."""
    from edgespec.scaffold import project

    root = (ctx.find_root().obj or Path()) / directory
    if ci_only:
        forge = _forge(ci)
        if forge is None:
            raise EdgespecError(error("ES226", "Options that do not go together", "--ci-only needs --ci."))
        project.write(root, project.ci_files(forge))
        say(f"The workflows of {forge} are in {root}; docs/ci.md says which secrets they need.")
        return
    wanted = _wanted(root, ci, **given)
    written = project.write(root, project.files_of(wanted))
    for path in written:
        click.echo(path.relative_to(root).as_posix())
    inside = "" if directory == Path() else f"cd {directory} && "
    say(f"\n{wanted.project} is ready. Deploy it to this machine and ask it:")
    say(f'  {inside}edgespec apply\n  edgespec infer {wanted.model} "where is my parcel"')


def _wanted(root: Path, ci: str | None, *, task: Task | None, **given: str | None) -> Any:
    from edgespec.scaffold.project import MODELS, SOURCE, Wanted, slug

    asks = _asks()
    named = slug(root.resolve().name)
    if task is None:
        if not asks:
            raise EdgespecError(error("ES755", "Not said which task", f"Name one with --task: {', '.join(_TASKS)}."))
        task = cast("Task", click.prompt("Task", type=click.Choice(list(_TASKS)), default=_TASKS[0], err=True))
    name = given["name"] or (click.prompt("Project", default=named, err=True) if asks else named)
    model = given["model"] or (click.prompt("Model", default=MODELS[task], err=True) if asks else MODELS[task])
    if ci is None and asks:
        ci = click.prompt("Workflows", type=click.Choice(["github", "gitlab", "none"]), default="none", err=True)
    return Wanted(name, task, model, given["source"] or SOURCE, _forge(ci))


def _asks() -> bool:
    return sys.stdin.isatty()


def _forge(ci: str | None) -> Forge | None:
    return None if ci in (None, "none") else ci  # type: ignore[return-value]  # one of the two choices
