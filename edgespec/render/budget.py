"""What is known of the models' CPU, memory and script against their limits; one line for all that are not measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from edgespec import limits
from edgespec.diagnostics import some
from edgespec.plan.budget import Fit
from edgespec.render.text import Line, Span, line
from edgespec.spec.units import format_size

if TYPE_CHECKING:
    from edgespec.measurement import Measured

_NAMED: Final = 5
"""Models that are not measured and still named."""


def render(fits: Sequence[Fit], *, hint: bool) -> list[Line]:
    """With `hint`, also how to measure what is not measured."""
    measured = [(f, f.measured) for f in fits if f.measured is not None]
    missing = [f.spec.name for f in fits if f.measured is None]
    lines: list[Line] = []
    if measured:
        lines.append(line(Span("Measured by `edgespec bench`; production's processors differ:", "bold")))
    for fit, found in measured:
        lines += _model(fit, found)
    if missing and hint:
        names = some(missing, _NAMED)
        first = missing[0] if len(missing) == 1 else "NAME"
        lines.append(line(Span(f"CPU and memory not measured: {names}. Measure with: edgespec bench {first}", "dim")))
    return lines


def _model(fit: Fit, found: Measured) -> list[Line]:
    budget = fit.spec.budget
    cpu = budget.cpu_ms
    most = f"{fit.cpu_limit_ms:,} ms on the {fit.spec.worker.plan} plan"
    p50, p99 = (_budget("{:g} ms", v) for v in ((cpu.p50, cpu.p99) if cpu else (None, None)))
    longest = f"{found.longest_p50_ms:.3g} ms at {found.longest} tokens"
    memory = f"{found.memory / 1e6:.1f} MB of {limits.ISOLATE_MEMORY // 10**6} MB"
    if budget.memory is not None:
        memory += _budget("{:.1f} MB", budget.memory / 1e6)
    script = f"{format_size(fit.script)} of {format_size(limits.SCRIPT_SIZE)}"
    if budget.script is not None:
        script += f" (budget {format_size(budget.script)})"
    when = f"{found.engine}, {found.texts}, {found.measured_at[:10]}"
    return [
        line("  ", Span(fit.spec.name, "bold"), Span(f"  ({when})", "dim")),
        line(
            f"      CPU     p50 {found.cpu_p50_ms:.3g} ms{p50}, p99 {found.cpu_p99_ms:.3g} ms{p99} of {most}; {longest}"
        ),
        line(f"      memory  {memory}; script {script}"),
    ]


def _budget(form: str, value: float | None) -> str:
    return "" if value is None else f" (budget {form.format(value)})"
