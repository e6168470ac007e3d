"""Promotions, rollbacks and histories as a reviewer reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from edgespec.render.text import Line, Span, line, printable
from edgespec.spec.releases import Release
from edgespec.spec.units import format_size

_INDENT: Final = " " * 4


def release_change(name: str, before: Release | None, after: Release) -> Iterator[Line]:
    """What deploying `after` in place of `before` means."""
    numbers = f"release {after.number}" if before is None else f"release {before.number} -> {after.number}"
    yield line("  ", Span(printable(name), "bold"), f"  {numbers}")
    digests = [r.artifact[:12] for r in (before, after) if r is not None]
    sizes = list(dict.fromkeys(format_size(r.size) for r in (before, after) if r is not None))
    yield _field("artifact", f"{' -> '.join(digests)}  ({' -> '.join(sizes)})")
    if before is not None and before.engine != after.engine:
        yield _field("engine", f"{before.engine} -> {after.engine}")
    for metric in sorted(after.metrics):
        yield _metric(metric, before, after)
    if after.origin is not None:
        yield _field(
            "served by", f"{after.origin.worker} in {after.origin.environment}, version {after.origin.version}"
        )
    if after.revision is not None:
        yield _field("commit", revision(after))


def _metric(name: str, before: Release | None, after: Release) -> Line:
    now, then = after.metrics[name], before.metrics.get(name) if before is not None else None
    text = f"{now:.4f}" if then is None else f"{then:.4f} -> {now:.4f}"
    teacher = f"  (teacher {after.teacher[name]:.4f})" if name in after.teacher else ""
    style = "red" if then is not None and now < then else ""
    return (*_field(name, ""), Span(text, style), Span(teacher, "dim"))


def revision(release: Release) -> str:
    text = printable(release.revision[:12]) if release.revision else "(none)"
    return f"{text}, with changes that are in no commit" if release.dirty else text


def _field(name: str, text: str) -> Line:
    return line(_INDENT, Span(f"{printable(name):<12} ", "dim"), printable(text))


def promotion(
    source: str,
    target: str,
    path: str,
    changes: Sequence[tuple[str, Release | None, Release]],
    unchanged: Sequence[str],
) -> list[Line]:
    """What was written into `path`, and what was there already."""
    lines: list[Line] = []
    if changes:
        lines += [line(Span(f"Promoted from {source} to {target}, in {path}:", "bold")), ()]
        for name, before, after in changes:
            lines += [*release_change(name, before, after), ()]
    if unchanged:
        lines.append(line(Span(f"{target} has it already: {', '.join(unchanged)}.", "dim")))
    if not changes and not unchanged:
        lines.append(line(f"There is nothing to promote from {source} to {target}."))
    return lines


def unpinned(name: str, environment: str, after: Release | None) -> list[Line]:
    """`after` is None where the spec is built again."""
    if after is None:
        text = f"{name} in {environment} is what its spec says again: the next apply builds it."
        return [line(Span(printable(text), "bold"))]
    text = f"{name} in {environment} stays at release {after.number}, and may be promoted again."
    return [line(Span(printable(text), "bold"))]


def rolled(name: str, environment: str, before: Release | None, after: Release, *, kept: bool) -> list[Line]:
    """What a rollback wrote."""
    lines = [line(Span(printable(f"{name} in {environment} goes back, and stays there until it is unpinned:"), "bold"))]
    lines += [(), *release_change(name, before, after), ()]
    if kept:
        lines.append(line(Span("Its objects are in the environment's buckets: none of them is uploaded.", "dim")))
    else:
        lines.append(line(Span("Its objects are not in the environment's buckets: an apply looks for them.", "yellow")))
    return lines


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a history."""

    number: int | None
    artifact: str
    size: int
    metrics: Mapping[str, float]
    marks: tuple[str, ...]
    """`current`, `live`, `kept`."""
    source: str
    """The commit and who served it."""


def history(name: str, environment: str, pinned: str | None, rows: Sequence[Row]) -> list[Line]:
    title = line(Span(printable(f"{name} in {environment}"), "bold"))
    if not rows:
        return [line(f"{printable(name)} has no history in {environment}.")]
    lines = [title]
    if pinned is not None:
        lines.append(line("  ", Span(f"rolled back, and pinned: {printable(pinned)}", "yellow")))
    lines.append(())
    for row in rows:
        metrics = ", ".join(f"{n} {v:.4f}" for n, v in sorted(row.metrics.items()))
        number = "-" if row.number is None else str(row.number)
        marks = ", ".join(row.marks)
        style = "green" if "live" in row.marks else ""
        lines.append(
            line(
                "  ",
                Span(f"{number:>4}  {row.artifact[:12]}  {format_size(row.size):>10}", style),
                f"  {marks:<20}  {metrics:<20}  ",
                Span(printable(row.source), "dim"),
            )
        )
    return lines
