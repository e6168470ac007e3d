"""Costs and policies as a plan's document has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from edgespec.plan import prices
from edgespec.plan.cost import Costs, Estimate, ModelCost
from edgespec.plan.policy import Verdict
from edgespec.records import as_dict


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)


class UsageDocument(Strict):
    """Of a month. Sizes are bytes."""

    requests: float
    cpu_ms: float
    kv_reads: float
    kv_writes: float
    kv_storage: float
    r2_storage: float
    r2_class_b: float


class EstimateDocument(Strict):
    """`missing` names what is not in it: the figure is then the least that it costs."""

    usd: float
    usage: UsageDocument
    missing: list[str]


class ModelCostDocument(Strict):
    """At list prices, with nothing taken off for what an account has included. Null where it does not exist."""

    name: str
    before: EstimateDocument | None
    after: EstimateDocument | None
    budget: float | None
    requests: int
    """A month: what the estimate is made for."""


class CostsDocument(Strict):
    """USD a month. The totals are the bill of an account that runs this environment alone."""

    prices_read: str
    before: EstimateDocument
    after: EstimateDocument
    models: list[ModelCostDocument]


class PolicyDocument(Strict):
    """What one policy says of the plan."""

    name: str
    verdict: Literal["deny", "warn"]
    message: str
    about: list[str]
    """Addresses of changes, or names of models; empty for the plan itself."""
    failure: str
    """Why it could not be evaluated, and so denies; empty where it could."""
    place: str
    """`edgespec.yaml:LINE:COLUMN`."""


def costs_document(costs: Costs) -> dict[str, Any]:
    return {
        "prices_read": prices.READ,
        "before": _estimate(costs.before),
        "after": _estimate(costs.after),
        "models": [_model(m) for m in costs.models],
    }


def _model(found: ModelCost) -> dict[str, Any]:
    return {
        "name": found.name,
        "before": None if found.before is None else _estimate(found.before),
        "after": None if found.after is None else _estimate(found.after),
        "budget": found.budget,
        "requests": found.requests,
    }


def _estimate(found: Estimate) -> dict[str, Any]:
    usage = {name: round(float(value), 3) for name, value in as_dict(found.usage).items()}
    return {"usd": round(found.usd, 6), "usage": usage, "missing": list(found.missing)}


def policies_document(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    return [
        {
            "name": v.policy,
            "verdict": "deny" if v.denies else "warn",
            "message": v.message,
            "about": list(v.about),
            "failure": v.failure,
            "place": str(v.source),
        }
        for v in verdicts
    ]
