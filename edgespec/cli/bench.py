"""`edgespec bench`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import click

from edgespec import measuring
from edgespec.cli.options import environment_option, json_option, session_of
from edgespec.cli.output import print_diagnostics, print_json, print_lines, say
from edgespec.render import bench as render_bench
from edgespec.render.bench_plot import plot


@click.command("bench")
@click.argument("name")
@environment_option
@click.option(
    "--engines",
    default="edge,onnxruntime,native",
    show_default=True,
    help="Which to compare; `native` is onnxruntime outside the Worker.",
)
@click.option(
    "--rounds", type=click.IntRange(1, 1000), default=7, show_default=True, help="More give steadier figures."
)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Write NAME.json and NAME.svg into this folder."
)
@json_option
@click.pass_context
def command(
    ctx: click.Context, name: str, environment: str | None, engines: str, rounds: int, out: Path | None, as_json: bool
) -> None:
    """Measure CPU and memory of NAME's model in workerd on this machine; `plan` then checks them against its budget."""
    # The temporary edge is stopped by what unwinds the stack, which SIGTERM's default would not do.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    session = session_of(ctx, environment, any_environment=environment is None)
    print_diagnostics(session.workspace.warnings)
    asked = tuple(dict.fromkeys(e.strip() for e in engines.split(",") if e.strip()))
    benched = measuring.bench(session, name, engines=asked, rounds=rounds)
    document = benched.document
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        text = document.model_dump_json(indent=1) + "\n"
        for suffix, content in (("json", text), ("svg", plot(document))):
            (out / f"{name}.{suffix}").write_text(content, encoding="utf-8")
    if as_json:
        print_json(document.model_dump(mode="json"))
    else:
        print_lines(render_bench.render(document))
    if benched.kept is None:
        say(f"Not kept for `plan`: {document.engine}, which {name} is deployed on, was not among the engines.")
    else:
        say(f"Kept for `plan` in {benched.kept}.")
