"""The entry point: commands are imported when they run, so that `--help` stays fast."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, NoReturn

import click

from edgespec import __version__

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_COMMANDS: Final = {
    "init": "Write a working project: spec, data, schemas, workflows.",
    "validate": "Check every spec offline: documents, limits, data files.",
    "fmt": "Lay out YAML files in one way; comments stay.",
    "config": "What a spec comes to in an environment, and who says so.",
    "plan": "Show what apply would do. Changes nothing.",
    "diff": "What two git revisions of the project ask for differently.",
    "apply": "Build, upload and deploy what the specs ask for.",
    "destroy": "Remove what was deployed.",
    "promote": "What one environment serves becomes what another deploys.",
    "rollback": "Deploy what served before, and stay there.",
    "history": "What an environment deploys of a model, and deployed before.",
    "drift": "Compare what is live with state.",
    "import": "Take existing objects into state.",
    "build": "Build artifacts without deploying them.",
    "cache": "The build cache: stats, gc, init.",
    "eval": "Measure a model's quality beside its teacher's.",
    "report": "Write a model's quality as a report with plots.",
    "bench": "Measure a model's CPU and memory on this machine.",
    "tune": "Search a grid of quantisation, layers, vocabulary, dimensions.",
    "verify": "Check a deployed artifact against its provenance.",
    "infer": "Ask a deployed model.",
    "state": "What is deployed, as remembered: list, mv, rm, pull, push, unlock.",
    "edge": "The local edge: up, down, status, logs.",
    "ci": "For workflows: comment, issue, drift, reviewed.",
    "graph": "Resources, or a build's stages, for Mermaid or Graphviz.",
    "completion": "Completions for bash, zsh or fish.",
    "schema": "Print a published JSON Schema.",
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        name = "import_" if cmd_name == "import" else cmd_name  # a word of Python
        module = importlib.import_module(f"edgespec.cli.{name}")
        command: click.Command = module.command
        if "_EDGESPEC_COMPLETE" in os.environ:
            from edgespec.cli.completion import teach

            teach(command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands by their names alone: click would import them all."""
        from click.shell_completion import CompletionItem

        found = [CompletionItem(name, help=text) for name, text in _COMMANDS.items() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-"):
            import difflib

            close = difflib.get_close_matches(name, _COMMANDS, n=1)
            hint = f" Did you mean '{close[0]}'?" if close else ""
            ctx.fail(f"No such command '{name}'.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-C", "directory", type=click.Path(path_type=Path), default=Path(), help="Run as if started in this folder."
)
@click.version_option(__version__, prog_name="edgespec")
@click.pass_context
def cli(ctx: click.Context, directory: Path) -> None:
    """Terraform for small AI models at the edge: YAML specs in, Workers that answer in milliseconds out."""
    ctx.obj = directory


def main() -> None:
    """Run, and turn what goes wrong into a message and an exit code."""
    from edgespec.diagnostics import EdgespecError, RefusedError

    _scrub_tracebacks()
    _start_light()
    try:
        code = cli.main(standalone_mode=False)
    except EdgespecError as e:
        from edgespec.cli.output import print_diagnostics

        print_diagnostics(e.diagnostics)
        sys.exit(4 if isinstance(e, RefusedError) else 1)
    except click.ClickException as e:
        e.show()
        sys.exit(e.exit_code if not isinstance(e, click.UsageError) else 1)
    except (click.Abort, KeyboardInterrupt):
        click.echo("\nInterrupted. What was done is in state; run the command again to go on.", err=True)
        _leave(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as e:  # noqa: BLE001  # the one place where a bug becomes a message
        _report_bug(e)
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


def _start_light() -> None:
    """What a short run does not need: httpx's own command line, which loads rich and Pygments wherever they are
    installed (None says that a module cannot be had, and httpx does without); pydantic's look through every installed
    package for plugins of its own, 20 ms where there are 200; a garbage collection every 700 objects while modules
    are loaded and specs are read, which are all kept; and turns of 5 ms for threads whose reads are answered from
    memory, which cost more than the reads."""
    import gc

    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # documented: an import of it fails
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # pydantic.plugin's documented switch
    gc.set_threshold(2_000_000, 50, 100)
    sys.setswitchinterval(0.05)


def _leave(code: int) -> NoReturn:
    """End at once: steps of an apply that still wait for an answer must not keep the process, nor may their tools
    outlive it."""
    import threading

    if threading.active_count() == 1:
        sys.exit(code)
    tools = sys.modules.get("edgespec.build.process")
    if tools is not None:
        tools.end_all()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _report_bug(e: Exception) -> None:
    import traceback

    from edgespec.secret import scrub

    frames = "".join(traceback.format_tb(e.__traceback__)[-3:])
    click.echo(scrub(f"{frames}{type(e).__name__}: {e}"), err=True)
    click.echo("This is a bug in edgespec; please report it with the lines above.", err=True)


def _scrub_tracebacks() -> None:
    """What ends a thread, or this process, says nothing secret either."""
    import threading

    def hook(kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        import traceback

        from edgespec.secret import scrub

        if e is not None and not issubclass(type(e), SystemExit):
            click.echo(scrub("".join(traceback.format_exception(kind, e, trace))), err=True, nl=False)

    sys.excepthook = hook
    threading.excepthook = lambda a: hook(a.exc_type, a.exc_value, a.exc_traceback)
