"""Costs by hand, from the table and from the traffic that a spec states."""

from __future__ import annotations

import pytest

from edgespec.diagnostics import Severity
from edgespec.plan import prices
from edgespec.plan.cost import Costs, Estimate, ModelCost, Stored, Traffic, Usage, check, costs, estimate, total, usd
from edgespec.records import replace
from edgespec.render.cost import between, render
from edgespec.render.text import plain
from edgespec.spec.document import Source, parse
from tests.world import spec

STORED = Stored(chunks=4, size=25_000_000, buckets=2, kv_ttl=7 * 86400)


def traffic(requests: int = 1_000_000, cpu_ms: float | None = 5.0, *, paid: bool = True) -> Traffic:
    return Traffic(requests, 0.01, cpu_ms, paid)


def test_every_price_has_a_source_and_a_date() -> None:
    table = [v for v in vars(prices).values() if isinstance(v, prices.Price)]
    assert len(table) == 8 and prices.READ == "2026-11"
    assert all(p.source.startswith("developers.cloudflare.com/") and p.usd > 0 for p in table)


def test_a_model_by_hand() -> None:
    found = estimate(traffic(), STORED)
    reads, renewed = 1_000_000 * 0.01 * 4, 4 * 30 / 7
    by_hand = (
        0.30  # a million requests
        + 5.0 * 0.02  # five million CPU ms
        + reads / 1e6 * 0.50
        + renewed / 1e6 * 5.00
        + renewed / 1e6 * 0.36
        + 0.025 * 0.50
        + 0.050 * 0.015
    )
    assert found.usd == pytest.approx(by_hand, rel=1e-12) and found.missing == ()
    assert found.usage.kv_reads == reads and found.usage.r2_storage == 50_000_000


def test_without_kv_every_cold_load_asks_r2() -> None:
    found = estimate(traffic(), Stored(4, 25_000_000, 1, None))
    assert found.usage == Usage(1_000_000, 5_000_000, r2_class_b=40_000, r2_storage=25_000_000)


def test_what_is_kept_for_a_rollback_is_stored_and_never_loaded() -> None:
    without, found = estimate(traffic(), STORED), estimate(traffic(), replace(STORED, archived=10_000_000_000))
    assert found.usage == replace(without.usage, r2_storage=10_050_000_000)
    assert found.usd == pytest.approx(without.usd + 10 * 0.015)


def test_kv_is_not_renewed_more_often_than_it_is_read() -> None:
    found = estimate(traffic(requests=100), Stored(4, 25_000_000, 1, 60))
    assert found.usage.kv_writes == found.usage.kv_reads == 4
    assert estimate(traffic(requests=0), STORED).usage.kv_storage == 0


def test_what_is_not_known_is_named_and_left_out() -> None:
    found = estimate(traffic(cpu_ms=None), None)
    assert found.usd == pytest.approx(0.30)
    assert found.missing == ("CPU (not measured)", "weights (known after build)")


def test_the_free_plan_has_limits_and_no_prices() -> None:
    found = estimate(traffic(cpu_ms=None, paid=False), STORED)
    assert found.usd < 0.001 and found.usage.requests == 0 and found.usage.r2_storage and not found.missing
    assert found.usage == Usage(r2_class_b=4 * 30 / 7, r2_storage=50_000_000)
    assert total([found]).usd == 0.0  # R2's own included amounts hold there too


def test_the_bill_takes_off_what_is_included_once() -> None:
    one = estimate(traffic(requests=8_000_000, cpu_ms=0.0), None)
    assert total([one]).usd == pytest.approx(5.0)
    assert total([one, one]).usd == pytest.approx(5.0 + 6 * 0.30)
    assert total([]).usd == 0.0


def test_usage_adds_up_meter_by_meter() -> None:
    assert Usage(1, 2, 3, 4, 5, 6, 7) + Usage(10, 20, 30, 40, 50, 60, 70) == Usage(11, 22, 33, 44, 55, 66, 77)


def test_the_bill_says_what_is_not_in_it() -> None:
    weights = estimate(traffic(), None)
    both = estimate(traffic(cpu_ms=None), None)
    assert total([weights, both]).missing == ("weights (known after build)", "CPU (not measured)")
    models = (ModelCost("alpha", None, weights), ModelCost("beta", both, None))
    found = costs(models)
    assert found == Costs(total([both]), total([weights]), models)


@pytest.mark.parametrize(("amount", "bill"), [(10e9, 0.0), (10e9 + 1, 0.015), (11e9, 0.015), (11e9 + 1, 0.030)])
def test_r2_is_billed_in_whole_units(amount: float, bill: float) -> None:
    assert prices.R2_STORAGE.bill(amount) == pytest.approx(bill)
    assert prices.KV_STORAGE.bill(1.5e9) == pytest.approx(0.25)


def verdict(budget: str, usd: float, plan: str = "paid", missing: tuple[str, ...] = ()) -> list[str]:
    text = f"budget: {{{budget}}}\n"
    (node,) = parse(Source("a.yaml", text)).value or []
    fields = dict(f.split(": ") for f in budget.split(", "))
    found = spec("alpha", budget=fields, worker={"plan": plan})
    cost = ModelCost("alpha", None, Estimate(usd, Usage(requests=1e6), missing=missing), found.budget.monthly_cost)
    return [f"{d.severity} {d.code} {d.source} {d.summary}: {d.detail}" for d in check(found, cost, node)]


def test_a_budget() -> None:
    assert verdict("monthly_cost: 20", 20.0) == []
    (over,) = verdict("monthly_cost: 20", 20.01)
    assert over.startswith(f"{Severity.ERROR} ES216 a.yaml:1:24 The cost is over its budget: 1M requests a month cost ")
    assert over.endswith(
        " requests a month cost 20.01 USD, over the budget of 20.00 USD. Most of it, 0.30 USD, is requests. Raise "
        "the budget, or see docs/costs.md for what lowers each."
    )
    (least,) = verdict("monthly_cost: 20, requests: 2.5M", 30.0, missing=("CPU (not measured)",))
    assert "2.5M requests a month cost at least 30.00 USD" in least and "0.30 USD, is requests" in least


def test_the_free_plan_serves_so_many() -> None:
    assert verdict("requests: 3M", 0.0, "free") == []
    (many,) = verdict("requests: 3001k", 0.0, "free")
    assert many.startswith(f"{Severity.WARNING} ES217 a.yaml:1:20 More requests than the free plan serves: 3M ")
    assert "100,000 a day" in many


def test_as_text() -> None:
    model = ModelCost("alpha", Estimate(0.3), Estimate(0.4), 20.0, 1_000_000)
    grown = ModelCost("beta", Estimate(0.001), Estimate(0.002), None, 1000)
    same = ModelCost("gamma", Estimate(0.1), Estimate(0.1))
    gone = ModelCost("delta", Estimate(1.0), None)
    after = Estimate(6.25, missing=("CPU (not measured)",))
    bill, *rows = plain(render(Costs(Estimate(5.0), after, (model, grown, same, gone)))).split("\n")
    assert bill.startswith("A month costs at least 5.00 USD -> 6.25 USD for the Workers plan and what is used ")
    assert bill.endswith("; not in it: CPU (not measured).")
    assert rows == [
        "  alpha: 0.30 USD -> 0.40 USD (budget 20.00 USD) for 1M requests at list prices",
        "  beta: 0.001 USD -> 0.002 USD for 1k requests at list prices",
    ]
    assert between(gone) == "1.00 USD -> nothing" and render(costs([])) == []
    assert [usd(v) for v in (0, 0.1, 1234.5, 0.0123, 1e-7)] == ["0.00 USD", "0.10 USD", "1,234.50 USD", "0.012 USD",
                                                                "1e-07 USD"]  # fmt: skip
