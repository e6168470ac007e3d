"""An evaluation as tables: for a terminal here, the same tables for a report in `edgespec.render.report`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from edgespec.evaluation import EvaluationDocument, Slice, VariantResult, floor_of
from edgespec.render.text import Line, Span, line, printable
from edgespec.spec.units import format_size

MAIN: Final = ("accuracy", "exact_match", "f1", "spearman")
"""The one metric of a task that stands for it."""
_LABELS_SHOWN: Final = 30


@dataclass(frozen=True, slots=True)
class Table:
    """The first column is text, the others are numbers."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def render(document: EvaluationDocument) -> list[Line]:
    """What was measured on what, the variants side by side, the deployed one's labels, languages and lengths, gates."""
    lines: list[Line] = [line(Span(f"{document.name}: {document.task} on {document.data.path}", "bold"))]
    lines += [line(Span(printable(text), "dim")) for text in document.data.described]
    for table in tables(document, labels=_LABELS_SHOWN):
        lines += [(), *_table(table)]
    lines += [(), *(line(Span(text, "dim")) for text in how(document))]
    lines += [line(Span(f"left out: {left.variant}: ", "yellow"), printable(left.why)) for left in document.left_out]
    lines += _gates(document)
    return lines


def tables(document: EvaluationDocument, *, labels: int | None = None) -> Iterator[Table]:
    """`labels` is the most that are shown, those with the most examples first."""
    yield variants_table(document)
    deployed = document.variants[-1]
    if deployed.labels:
        yield labels_table(deployed, labels)
    main = main_metric(document)
    for title, field in (("language", "by_language"), ("tokens", "by_length")):
        if slices := [getattr(v, field) for v in document.variants if getattr(v, field)]:
            yield slices_table(title, main, [v.variant for v in document.variants if getattr(v, field)], slices)


def main_metric(document: EvaluationDocument) -> str:
    return next(m for m in MAIN if m in document.variants[-1].metrics)


def variants_table(document: EvaluationDocument) -> Table:
    variants = document.variants
    teacher = variants[0] if len(variants) > 1 else None
    header = ("", *(v.variant for v in variants), *(["drop"] if teacher else []))
    rows = []
    for name in sorted(variants[-1].metrics, key=lambda m: (m not in MAIN, m)):
        values = [v.metrics[name] for v in variants]
        rows.append((name, *map(number, values), *([number(values[0] - values[-1])] if teacher else [])))
    for name in ("ece", "brier"):
        found = [getattr(v.calibration, name) for v in variants if v.calibration is not None]
        if len(found) == len(variants):
            rows.append((name, *map(number, found), *([""] if teacher else [])))
    ratio = [f"{teacher.size / variants[-1].size:.1f}x"] if teacher else []
    rows.append(("size", *(format_size(v.size) for v in variants), *ratio))
    return Table("metrics", header, tuple(rows))


def labels_table(variant: VariantResult, most: int | None = None) -> Table:
    found = list(variant.labels)
    title = f"labels of the {variant.variant} model"
    if most is not None and len(found) > most:
        found = sorted(found, key=lambda r: -r.support)[:most]
        title += f", the {most} with the most examples of {len(variant.labels)}"
    rows = tuple((r.label, number(r.precision), number(r.recall), number(r.f1), str(r.support)) for r in found)
    return Table(title, ("label", "precision", "recall", "f1", "support"), rows)


def slices_table(title: str, metric: str, variants: Sequence[str], slices: Sequence[tuple[Slice, ...]]) -> Table:
    by_name = [{s.name: s for s in found} for found in slices]
    rows = tuple(
        (s.name, str(s.examples), *(number(found[s.name].metrics[metric]) for found in by_name)) for s in slices[-1]
    )
    return Table(f"{metric} by {title}", (title, "examples", *variants), rows)


def how(document: EvaluationDocument) -> Iterator[str]:
    """How each variant is made and what ran it."""
    for v in document.variants:
        yield f"{v.variant}: {printable(v.what)}; artifact {v.artifact[:12]}, run by {v.computed_by}"


def gate_results(document: EvaluationDocument) -> Iterator[tuple[bool, str]]:
    """Whether each of the spec's gates is met, and the figures in words."""
    deployed, teacher = document.variants[-1], document.find("teacher")
    for name, gate in document.gates.items():
        value = deployed.metrics[name]
        known = None if teacher is None else teacher.metrics[name]
        if teacher is None and not document.left_out:
            known = value  # what is deployed is its own teacher
        try:
            floor = floor_of(gate, known)
        except ValueError:
            yield (
                False,
                f"{name} is {value:.4f}; its allowed drop of {gate['max_drop']:g} has no teacher to compare with",
            )
            continue
        drop = f" (the teacher's {known:.4f} less {gate['max_drop']:g})" if "max_drop" in gate else ""
        least = f"at least {gate['min']:g}, " if "min" in gate and "max_drop" in gate else ""
        yield value >= floor, f"{name} is {value:.4f}; {least}the gate asks for {floor:.4f}{drop}"


def _gates(document: EvaluationDocument) -> Iterator[Line]:
    for met, text in gate_results(document):
        yield line(Span("met: " if met else "missed: ", "green" if met else "red"), text)


def number(value: float) -> str:
    return f"{value:.4f}"


def _table(table: Table) -> Iterator[Line]:
    first = max(len(printable(r[0])) for r in (table.header, *table.rows))
    others = [max(len(r[i]) for r in (table.header, *table.rows)) for i in range(1, len(table.header))]
    if table.title != "metrics":
        yield line(Span(table.title, "bold"))
    for n, row in enumerate((table.header, *table.rows)):
        cells = "".join(f"{cell:>{width + 3}}" for cell, width in zip(row[1:], others, strict=True))
        yield line(Span(f"{printable(row[0]):<{first}}{cells}".rstrip(), "bold" if n == 0 else ""))
