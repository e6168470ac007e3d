"""What the models cost a month, estimated: their usage for the traffic that the spec states, at the table's prices.

A model's cost is that of its usage at list prices, with nothing taken off for what an account has included: it depends
on no other model, and is never less than what the model adds to the bill. The total is the bill of an account that runs
this environment alone: the plan's price, and what is used beyond what is included.

What is not known before a build (the artifact's size) or without a measurement (CPU) is left out and named: the figure
is then the least that it costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from edgespec.diagnostics import Diagnostic, error, warning
from edgespec.plan import prices
from edgespec.spec.document import Node
from edgespec.spec.models import EdgeModel
from edgespec.spec.units import format_count
from edgespec.spec.validate import place


class Stored(Struct, frozen=True):
    """An artifact as it is kept: what the traffic's cold loads read."""

    chunks: int
    size: int
    """Bytes of all distinct chunks."""
    buckets: int
    """How many buckets have it."""
    kv_ttl: int | None
    """Seconds that KV keeps a chunk; None where KV is no tier."""
    archived: int = 0
    """Bytes of older artifacts that the buckets keep for a rollback, without what the artifact shares with them."""


class Traffic(Struct, frozen=True):
    requests: int
    """A month."""
    cold_loads: float
    """Of all requests, those that load the weights."""
    cpu_ms: float | None
    """Of one request; None where it was not measured."""
    paid: bool
    """On the plan Workers Paid."""


class Usage(Struct, frozen=True):
    """Of a month, by the table's meters; sizes are in byte-months."""

    requests: float = 0
    cpu_ms: float = 0
    kv_reads: float = 0
    kv_writes: float = 0
    kv_storage: float = 0
    r2_storage: float = 0
    r2_class_b: float = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.requests + other.requests,
            self.cpu_ms + other.cpu_ms,
            self.kv_reads + other.kv_reads,
            self.kv_writes + other.kv_writes,
            self.kv_storage + other.kv_storage,
            self.r2_storage + other.r2_storage,
            self.r2_class_b + other.r2_class_b,
        )

    def priced(self) -> Iterator[tuple[prices.Price, float]]:
        for name, price in PRICES.items():
            yield price, getattr(self, name)


PRICES: Mapping[str, prices.Price] = {  # in the order of Usage's fields
    "requests": prices.REQUESTS,
    "cpu_ms": prices.CPU_MS,
    "kv_reads": prices.KV_READS,
    "kv_writes": prices.KV_WRITES,
    "kv_storage": prices.KV_STORAGE,
    "r2_storage": prices.R2_STORAGE,
    "r2_class_b": prices.R2_CLASS_B,
}


class Estimate(Struct, frozen=True):
    """`missing` names what is not in it."""

    usd: float
    usage: Usage = Usage()
    paid: bool = False
    missing: tuple[str, ...] = ()


class ModelCost(Struct, frozen=True):
    """None where the model does not exist before or after."""

    name: str
    before: Estimate | None
    after: Estimate | None
    budget: float | None = None
    requests: int = 0


class Costs(Struct, frozen=True):
    before: Estimate
    after: Estimate
    models: tuple[ModelCost, ...] = ()


NOTHING = Costs(Estimate(0.0), Estimate(0.0))


def estimate(traffic: Traffic, stored: Stored | None) -> Estimate:
    """One model's cost. `stored` is None while the artifact is not known."""
    missing: tuple[str, ...] = () if traffic.cpu_ms is not None else ("CPU (not measured)",)
    usage = Usage(requests=traffic.requests, cpu_ms=traffic.requests * (traffic.cpu_ms or 0.0))
    if stored is None:
        missing += ("weights (known after build)",)
    else:
        usage += _loads(traffic, stored)
    if not traffic.paid:  # Workers and KV have limits there and no price
        usage = Usage(r2_storage=usage.r2_storage, r2_class_b=usage.r2_class_b)
        missing = tuple(m for m in missing if not m.startswith("CPU"))
    return Estimate(sum(p.list(amount) for p, amount in usage.priced()), usage, traffic.paid, missing)


def _loads(traffic: Traffic, stored: Stored) -> Usage:
    """Every cold load reads every chunk: from KV, which asks R2 again once a chunk's time is over, or from R2."""
    reads = traffic.requests * traffic.cold_loads * stored.chunks
    kept = stored.size * stored.buckets + stored.archived
    if stored.kv_ttl is None:
        return Usage(r2_class_b=reads, r2_storage=kept)
    renewed = min(reads, stored.chunks * prices.MONTH_S / stored.kv_ttl)
    return Usage(
        kv_reads=reads, kv_writes=renewed, r2_class_b=renewed, kv_storage=stored.size if reads else 0, r2_storage=kept
    )


def total(estimates: Sequence[Estimate]) -> Estimate:
    """The bill of an account that runs these models and nothing else."""
    usage = sum((e.usage for e in estimates), Usage())
    paid = any(e.paid for e in estimates)
    usd = sum(p.bill(amount) for p, amount in usage.priced()) + (prices.PAID_PLAN if paid else 0.0)
    missing = tuple(dict.fromkeys(m for e in estimates for m in e.missing))
    return Estimate(usd, usage, paid, missing)


def costs(models: Sequence[ModelCost]) -> Costs:
    before = [m.before for m in models if m.before is not None]
    after = [m.after for m in models if m.after is not None]
    return Costs(total(before), total(after), tuple(models))


def check(spec: EdgeModel, cost: ModelCost, node: Node) -> Iterator[Diagnostic]:
    """What refuses a plan, and what a person should know. `node` is the spec's document."""
    budget, after = spec.budget, cost.after
    if after is None:
        return
    if budget.monthly_cost is not None and after.usd > budget.monthly_cost:
        least = "at least " if after.missing else ""
        largest = max(after.usage.priced(), key=lambda p: p[0].list(p[1]))
        detail = (
            f"{format_count(budget.requests)} requests a month cost {least}{usd(after.usd)}, over the budget of "
            f"{usd(budget.monthly_cost)}. Most of it, {usd(largest[0].list(largest[1]))}, is {largest[0].name}. Raise "
            "the budget, or see docs/costs.md for what lowers each."
        )
        yield error("ES216", "The cost is over its budget", detail, source=place(node, ("budget", "monthly_cost")))
    served = prices.FREE_REQUESTS_A_DAY * prices.MONTH_S / 86400
    if spec.worker.plan == "free" and budget.requests > served:
        detail = (
            f"{format_count(budget.requests)} requests a month are more than the free plan's "
            f"{prices.FREE_REQUESTS_A_DAY:,} a day: the rest is refused with error 1027. Set `plan: paid`."
        )
        yield warning(
            "ES217", "More requests than the free plan serves", detail, source=place(node, ("budget", "requests"))
        )


def usd(value: float) -> str:
    """Cents, or three significant digits below them."""
    if value == 0 or value >= 0.1:
        return f"{value:,.2f} USD"
    return f"{value:.2g} USD"
