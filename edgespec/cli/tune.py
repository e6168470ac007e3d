"""`edgespec tune`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import click

from edgespec import tuning
from edgespec.cli.options import environment_option, json_option, session_of
from edgespec.cli.output import print_diagnostics, print_json, print_lines, say
from edgespec.render import tune as render_tune
from edgespec.render.tune_plot import plot


@click.command("tune")
@click.argument("name")
@environment_option
@click.option(
    "--write",
    is_flag=False,
    flag_value="choice",
    metavar="[#]",
    help="Write the choice, or variant #, into the spec's file; its comments stay.",
)
@click.option("--no-bench", is_flag=True, help="Leave out CPU and memory, which take some seconds a variant.")
@click.option(
    "--rounds", type=click.IntRange(1, 1000), default=3, show_default=True, help="More give steadier CPU figures."
)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Write NAME.json and NAME.svg into this folder."
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    name: str,
    environment: str | None,
    write: str | None,
    no_bench: bool,
    rounds: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Build and measure every variant of NAME's `tune` grid, and say which one to take."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    session = session_of(ctx, environment, any_environment=environment is None)
    print_diagnostics(session.workspace.warnings)
    if write is not None and write != "choice" and not write.isdigit():
        raise click.BadParameter(f"{write!r} is not the number of a variant", param_hint="'--write'")
    found = tuning.tune(session, name, rounds=None if no_bench else rounds, again=write is None)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        for suffix, content in (("json", found.model_dump_json(indent=1) + "\n"), ("svg", plot(found))):
            (out / f"{name}.{suffix}").write_text(content, encoding="utf-8")
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        print_lines(render_tune.render(found))
    if write is not None:
        path, settings = tuning.write_choice(session, found, None if write == "choice" else int(write))
        for setting in settings:
            say(f"{path}: {setting.knob} is {setting.shown} now.")
