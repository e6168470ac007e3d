"""An evaluation as a report: one HTML file with its plots in it, or Markdown with the plots beside it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Final

from edgespec.evaluation import EvaluationDocument, VariantResult
from edgespec.render.evaluation import Table, gate_results, how, main_metric, tables
from edgespec.render.evaluation_plots import confusion_plot, lengths_plot, reliability_plot

_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#24292f;"
    "background:#fff}table{border-collapse:collapse;margin:.5rem 0 1.5rem}th,td{padding:.25rem .75rem;"
    "border-bottom:1px solid #8c959f55;text-align:right}th:first-child,td:first-child{text-align:left}"
    ".text td{text-align:left;vertical-align:top}svg{max-width:100%;height:auto;display:block}"
    ".missed{color:#d6465c}@media (prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}}"
)


@dataclass(frozen=True, slots=True)
class Plot:
    name: str
    """Part of a file's name."""
    svg: str


def plots(document: EvaluationDocument) -> tuple[Plot, ...]:
    """Of the deployed model; quality by length of every variant."""
    deployed = document.variants[-1]
    found = []
    if deployed.confusion:
        labels = [r.label for r in deployed.labels]
        found.append(Plot("confusion", confusion_plot(labels, deployed.confusion, f"{document.name}: confusion")))
    if deployed.calibration is not None:
        title = f"{document.name}: reliability"
        found.append(Plot("reliability", reliability_plot(deployed.calibration, title)))
    if deployed.by_length:
        metric = main_metric(document)
        found.append(Plot("lengths", lengths_plot(document.variants, metric, f"{document.name}: {metric} by length")))
    return tuple(found)


def html(document: EvaluationDocument) -> str:
    """A file that needs no other."""
    title = escape(f"{document.name}: evaluation")
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{title}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{title}</h1>",
        *(f"<p>{escape(text)}</p>" for text in _facts(document)),
        *(
            f'<p class="{"met" if met else "missed"}">{"Met" if met else "Missed"}: {escape(text)}.</p>'
            for met, text in gate_results(document)
        ),
        *(p for table in tables(document) for p in _html_table(table)),
        *(plot.svg for plot in plots(document)),
        *_html_mistakes(document.variants[-1]),
        f"<p>{'<br>'.join(escape(text) for text in how(document))}</p>",
        *(f"<p>Left out: {escape(left.variant)}: {escape(left.why)}</p>" for left in document.left_out),
        "</body></html>",
    ]
    return "\n".join([*parts, ""])


def markdown(document: EvaluationDocument, prefix: str) -> str:
    """Plots are files named `prefix-NAME.svg` beside it."""
    parts = [f"# {_md(document.name)}: evaluation", *map(_md, _facts(document))]
    parts += [f"- {'met' if met else '**missed**'}: {_md(text)}" for met, text in gate_results(document)]
    for table in tables(document):
        parts.append(f"## {_md(table.title.capitalize())}")
        parts.append("\n".join(_md_table(table)))
    parts += [f"![{plot.name}]({prefix}-{plot.name}.svg)" for plot in plots(document)]
    if mistakes := document.variants[-1].mistakes:
        rows = tuple((m.text, ", ".join(m.expected), ", ".join(m.given), f"{m.score:.3f}") for m in mistakes)
        parts.append("## Mistakes, the surest first")
        parts.append("\n".join(_md_table(Table("", ("text", "expected", "answered", "score"), rows))))
    parts.append("\n".join(f"- {_md(text)}" for text in how(document)))
    parts += [f"Left out: {_md(left.variant)}: {_md(left.why)}" for left in document.left_out]
    return "\n\n".join(parts) + "\n"


def _facts(document: EvaluationDocument) -> Iterator[str]:
    yield f"{document.task} on {document.data.path} ({document.data.sha256[:12]}), edgespec {document.edgespec}."
    yield from (f"{text}." for text in document.data.described)


def _html_table(table: Table) -> Iterator[str]:
    yield f"<h2>{escape(table.title.capitalize())}</h2><table><thead><tr>"
    yield "".join(f"<th>{escape(cell)}</th>" for cell in table.header)
    yield "</tr></thead><tbody>"
    for row in table.rows:
        yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
    yield "</tbody></table>"


def _html_mistakes(variant: VariantResult) -> Iterator[str]:
    if not variant.mistakes:
        return
    yield "<h2>Mistakes, the surest first</h2><table class=text><thead><tr>"
    yield "<th>line</th><th>text</th><th>expected</th><th>answered</th><th>score</th></tr></thead><tbody>"
    for m in variant.mistakes:
        cells = (str(m.line), m.text, ", ".join(m.expected), ", ".join(m.given), f"{m.score:.3f}")
        yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
    yield "</tbody></table>"


def _md_table(table: Table) -> Iterator[str]:
    yield f"| {' | '.join(map(_md, table.header))} |"
    yield "|---" + "|---:" * (len(table.header) - 1) + "|"
    yield from (f"| {' | '.join(map(_md, row))} |" for row in table.rows)


def _md(text: str) -> str:
    """Text that means nothing to Markdown or HTML, on one line."""
    flat = " ".join(text.split())
    for character in "\\`*_|<>[]#":
        flat = flat.replace(character, f"&#{ord(character)};" if character in "<>|" else f"\\{character}")
    return flat
