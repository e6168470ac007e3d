"""Whether a model fits: what is known of its script, memory and CPU against Cloudflare's limits and the spec's budget.

The script's size is known of every plan. Memory and CPU are known where `edgespec bench` measured the artifact that the
plan deploys, with the Worker's code that it deploys; what is not known is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from edgespec import limits
from edgespec.diagnostics import Diagnostic, SourceRange, error
from edgespec.spec.document import Node
from edgespec.spec.models import EdgeModel
from edgespec.spec.units import format_size
from edgespec.spec.validate import Path, place

if TYPE_CHECKING:
    from edgespec.measurement import Measured


class Fit(Struct, frozen=True):
    """What a plan knows of one model's needs."""

    spec: EdgeModel
    script: int
    """Bytes of all modules."""
    measured: Measured | None
    """None when the artifact is not known yet or was not measured with this version of the Worker."""

    @property
    def cpu_limit_ms(self) -> int:
        return limits.FREE_CPU_MS if self.spec.worker.plan == "free" else limits.PAID_CPU_MS


def check(fit: Fit, node: Node) -> tuple[Diagnostic, ...]:
    """Everything that cannot fit, at the place in the spec that says so. `node` is the spec's document."""
    found = [*_script(fit, node)]
    if fit.measured is not None:
        found += [*_memory(fit, fit.measured, node), *_cpu(fit, fit.measured, node)]
    return tuple(found)


def _script(fit: Fit, node: Node) -> Iterator[Diagnostic]:
    budget = fit.spec.budget.script
    if fit.script > limits.SCRIPT_SIZE:
        detail = f"The Worker's modules are {_exact(fit.script)}; Cloudflare takes {_exact(limits.SCRIPT_SIZE)}."
        yield error("ES210", "The script is too large", detail, source=_name(node))
    if budget is not None and fit.script > budget:
        detail = (
            f"The Worker's modules are {_exact(fit.script)}, over the budget of {_exact(budget)}. "
            "Raise it, or choose an engine that is smaller."
        )
        yield error("ES211", "The script is over its budget", detail, source=_at(node, "script"))


def _memory(fit: Fit, measured: Measured, node: Node) -> Iterator[Diagnostic]:
    budget, used = fit.spec.budget.memory, measured.memory
    if used > limits.ISOLATE_MEMORY:
        detail = (
            f"An isolate was measured with {_mb(used)}; Cloudflare ends it at {_mb(limits.ISOLATE_MEMORY)}. "
            "Use a smaller model or another quantisation."
        )
        yield error("ES212", "Too much memory", detail, source=_name(node))
    if budget is not None and used > budget:
        detail = f"An isolate was measured with {_mb(used)}, over the budget of {_mb(budget)}."
        yield error("ES213", "Memory is over its budget", detail, source=_at(node, "memory"))


def _cpu(fit: Fit, measured: Measured, node: Node) -> Iterator[Diagnostic]:
    if measured.cpu_p50_ms > fit.cpu_limit_ms:
        detail = (
            f"Half of all requests were measured with more than {_ms(measured.cpu_p50_ms)} of CPU ({measured.texts}, "
            f"on the machine of the measurement); the {fit.spec.worker.plan} plan stops a request at "
            f"{_ms(fit.cpu_limit_ms)}."
        )
        where = place(node, ("worker", "plan")) if fit.spec.worker.plan == "free" else _name(node)
        yield error("ES214", "CPU does not fit the Workers plan", detail, source=where)
    budget = fit.spec.budget.cpu_ms
    if budget is None:
        return
    for name, most, used in (("p50", budget.p50, measured.cpu_p50_ms), ("p99", budget.p99, measured.cpu_p99_ms)):
        if most is not None and used > most:
            detail = f"{name} was measured as {_ms(used)} ({measured.texts}), over the budget of {_ms(most)}."
            yield error("ES215", "CPU is over its budget", detail, source=_at(node, "cpu_ms", name))


def _at(node: Node, *path: str) -> SourceRange:
    where: Path = ("budget", *path)
    return place(node, where)


def _name(node: Node) -> SourceRange:
    return place(node, ("metadata", "name"))


def _exact(size: int) -> str:
    return f"{format_size(size)} ({size:,} bytes)"


def _mb(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def _ms(value: float) -> str:
    return f"{value:.3g} ms" if value < 1000 else f"{value:,.0f} ms"
