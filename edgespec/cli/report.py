"""`edgespec report`."""

from __future__ import annotations

from pathlib import Path

import click

from edgespec import measuring
from edgespec.cli.options import environment_option, session_of
from edgespec.cli.output import print_diagnostics
from edgespec.render.report import html, markdown, plots


@click.command("report")
@click.argument("name")
@environment_option
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="NAME-report.html by default; a .md file has its plots beside it.",
)
@click.option("--data", metavar="FILE", help="Measure on this file of the project instead of `quality.data`.")
@click.option("--edge", is_flag=True, help="Answer in real workerd, in a local edge of its own.")
@click.pass_context
def command(
    ctx: click.Context, name: str, environment: str | None, out: Path | None, data: str | None, edge: bool
) -> None:
    """Write what `edgespec eval NAME` measures as a report with tables and plots."""
    path = out or Path(f"{name}-report.html")
    if path.suffix not in (".html", ".md"):
        raise click.UsageError(f"{path}: a report is an .html or an .md file.")
    session = session_of(ctx, environment, any_environment=environment is None)
    evaluated = measuring.evaluate(session, name, data=data, edge=edge)
    print_diagnostics(session.workspace.warnings + evaluated.warnings)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".html":
        path.write_text(html(evaluated.document), encoding="utf-8")
    else:
        for plot in plots(evaluated.document):
            path.with_name(f"{path.stem}-{plot.name}.svg").write_text(plot.svg, encoding="utf-8")
        path.write_text(markdown(evaluated.document, path.stem), encoding="utf-8")
    click.echo(path)
