"""`edgespec completion`, and what a shell completes: commands, options, specs' names and environments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import click

from edgespec.cli.output import print_text

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from edgespec.spec.document import Node

VARIABLE: Final = "_EDGESPEC_COMPLETE"
"""Set by the shell where it asks for completions."""
_Kind: TypeAlias = Literal["spec", "environment"]
_KINDS: Final[dict[str, _Kind]] = {
    "name": "spec",
    "names": "spec",
    "pipeline": "spec",
    "environment": "environment",
    "environments": "environment",
    "source": "environment",
    "target": "environment",
}
_NEW: Final = frozenset({"init", "schema", "ci"})
"""Whose names are those of nothing that there is."""


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print what makes a shell complete commands, options, specs and environments.

    \b
    bash:  edgespec completion bash > ~/.local/share/bash-completion/completions/edgespec
    zsh:   edgespec completion zsh > ~/.zfunc/_edgespec     (with ~/.zfunc in fpath)
    fish:  edgespec completion fish > ~/.config/fish/completions/edgespec.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None  # noqa: S101  # one of the three
    print_text(found(ctx.find_root().command, {}, "edgespec", VARIABLE).source() + "\n")


def teach(command: click.Command) -> None:
    """Its parameters that name a spec or an environment complete to those of the project."""
    if command.name in _NEW:
        return
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            teach(inner)
    for parameter in command.params:
        kind = _KINDS.get(parameter.name or "")
        if kind is not None and isinstance(parameter.type, click.types.StringParamType):
            parameter.type = _Known(kind)


class _Known(click.types.StringParamType):
    """A name that the project has."""

    def __init__(self, kind: _Kind) -> None:
        self.kind = kind

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        directory = ctx.find_root().params.get("directory") or Path()
        found = sorted(set(known(Path(directory), self.kind)))
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]


def known(directory: Path, kind: _Kind) -> Iterator[str]:
    """Of the project at or above `directory`, valid or not; nothing where there is none."""
    from edgespec.diagnostics import EdgespecError
    from edgespec.formatting import project_files
    from edgespec.workspace import find_root

    try:
        project, *others = project_files(find_root(directory.resolve()))
        if kind == "environment":
            environments = [n.child("environments") for n in _documents(project)]
            yield from (name for n in environments if n is not None for name in n.entries)
            if not any(environments):
                yield "local"
            return
        for path in others:
            for document in _documents(path):
                kind_of, named = document.child("kind"), document.child("metadata")
                name = named.child("name") if named is not None else None
                if kind_of is not None and kind_of.value == "EdgeModel" and name is not None and name.value:
                    yield name.value
    except (EdgespecError, OSError):
        return


def _documents(path: Path) -> list[Node]:
    from edgespec.formatting import read
    from edgespec.spec.document import Source, parse

    return parse(Source(path.name, read(path))).value or []
