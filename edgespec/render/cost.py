"""What the models cost a month: one line, and one for each model whose cost changes or has a budget."""

from __future__ import annotations

from collections.abc import Iterator

from edgespec.plan.cost import Costs, Estimate, ModelCost, usd
from edgespec.render.text import Line, Span, line
from edgespec.spec.units import format_count


def render(costs: Costs) -> list[Line]:
    """Nothing where nothing is deployed, before or after."""
    if not costs.models:
        return []
    before, after = costs.before.usd, costs.after.usd
    moved = f"{usd(before)} -> {usd(after)}" if usd(before) != usd(after) else usd(after)
    least = "at least " if costs.after.missing else ""
    missing = f"; not in it: {', '.join(costs.after.missing)}" if costs.after.missing else ""
    what = " for the Workers plan and what is used beyond the included" if after else ""
    lines = [line(Span(f"A month costs {least}{moved}{what}{missing}.", "dim"))]
    return [*lines, *(row for m in costs.models if _worth_it(m) for row in _model(m))]


def _worth_it(model: ModelCost) -> bool:
    sides = [None if e is None else usd(e.usd) for e in (model.before, model.after)]
    return model.budget is not None or (sides[0] != sides[1] and None not in sides)


def _model(model: ModelCost) -> Iterator[Line]:
    budget = f" (budget {usd(model.budget)})" if model.budget is not None else ""
    over = model.budget is not None and model.after is not None and model.after.usd > model.budget
    traffic = f"{format_count(model.requests)} requests at list prices"
    yield line(f"  {model.name}: ", Span(f"{between(model)}{budget}", "red" if over else ""), f" for {traffic}")


def between(model: ModelCost) -> str:
    """`0.30 USD`, or both sides where they differ."""
    before, after = (_side(e) for e in (model.before, model.after))
    if model.after is None:
        return f"{before} -> nothing"
    return after if model.before is None or before == after else f"{before} -> {after}"


def _side(found: Estimate | None) -> str:
    if found is None:
        return "nothing"
    return f"{'at least ' if found.missing else ''}{usd(found.usd)}"
