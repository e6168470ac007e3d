"""One transition after another, with every single call failing in each of the ways in which a call can fail."""

from __future__ import annotations

import copy

import pytest

from edgespec.plan.events import Outcome
from tests.property.test_converges import check_settled, fresh
from tests.property.test_every_crash import MOVED, NOTHING, RICH, Specs, after
from tests.world import Fault, apply


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("parallelism", [1, 4])
@pytest.mark.parametrize(
    ("before", "wanted"),
    [(NOTHING, RICH), (RICH, MOVED), (MOVED, RICH), (RICH, NOTHING)],
    ids=["create", "move", "move back", "destroy"],
)
def test_failing_anywhere(before: Specs, wanted: Specs, parallelism: int, fault: Fault) -> None:
    start = after(before)
    start.world.calls = 0
    whole = copy.deepcopy(start)
    apply(whole.world, whole, wanted)
    assert whole.world.calls > 8
    ends = {id(specs): fresh(specs) for specs in (before, wanted)}
    for call in range(whole.world.calls):
        failed = copy.deepcopy(start)
        failed.world.faults = {call: fault}
        result = apply(failed.world, failed, wanted, parallelism=parallelism)
        assert result.count(Outcome.FAILED) == 1 and result.diagnostics.has_errors
        for last in (wanted, before) if call % 2 else (wanted,):  # it goes on, or somebody has taken the change back
            store = copy.deepcopy(failed)
            check_settled(store.world, store, last, ends[id(last)])
