"""What an import finds and would take into state."""

from __future__ import annotations

from collections.abc import Sequence

from edgespec.plan.imports import Discovered, Import
from edgespec.render.plan import sides
from edgespec.render.text import Line, Span, line
from edgespec.resources.compile import TYPES

_INDENT = " " * 8
_FIELDS = 12


def imports(found: Sequence[Import]) -> list[Line]:
    """Each object with what a plan would change of it afterwards: live -> spec."""
    lines: list[Line] = [line(Span(f"{len(found)} to take into state:", "bold")), ()]
    for item in found:
        record = item.record
        note = "" if item.fields else "  (as the spec asks for)"
        lines.append(line("  ", Span("  > ", "cyan"), Span(str(record.address), "bold"), Span(note, "dim")))
        type_ = TYPES[record.address.type]
        for f in item.fields[:_FIELDS]:
            both = sides(f, type_, opaque=f.path in type_.opaque)
            lines.append(line(_INDENT, Span(f"{f.path:<28} ", "dim"), both))
        if len(item.fields) > _FIELDS:
            lines.append(line(_INDENT, Span(f"and {len(item.fields) - _FIELDS} more", "dim")))
        lines.append(())
    return lines


def discovered(found: Discovered) -> list[Line]:
    """What the account holds under the project's names."""
    if not found.deployed:
        return [line("The account holds nothing under this project's names.")]
    lines: list[Line] = [line(Span("Deployed under this project's names:", "bold"))]
    for item in found.deployed:
        where = "in state" if item.address in found.in_state else "not in state"
        note = f"; {item.note}" if item.note else ""
        lines.append(line("  ", f"{item.address}  ", Span(f"({where}{note})", "dim")))
    lines += [line(f"Written: {path}. Fill in model.source and name the file in `specs`.") for path in found.written]
    lines += [line(f"Kept as it is: {path}") for path in found.kept]
    return [*lines, ()]
