"""What is said of a metric that does not pass its gate; measuring itself is in tests/e2e."""

from __future__ import annotations

from typing import Any

import pytest

from edgespec.address import Address
from edgespec.build.problems import fail
from edgespec.providers.base import ProviderError
from edgespec.providers.cloudflare.deployment import DeploymentProvider, Infer, Measured, missed_gate


@pytest.mark.parametrize(
    ("gate", "value", "teacher", "said"),
    [
        ({"min": 0.8}, 0.8, None, None),
        ({"min": 0.8}, 0.7999, None, "accuracy is 0.7999, below the minimum 0.8"),
        ({"max_drop": 0.02}, 0.88, 0.9, None),
        ({"max_drop": 0.0}, 0.91, 0.9, None),  # a student may be better
        (
            {"max_drop": 0.01},
            0.88,
            0.9,
            "has 0.9000: that is a drop of 0.0200, and 0.01 is allowed",
        ),
        ({"min": 0.95, "max_drop": 0.01}, 0.9, 0.9, "accuracy is 0.9000, below the minimum 0.95"),
        ({"min": 0.1, "max_drop": 0.01}, 0.5, 0.9, "and 0.01 is allowed"),
    ],
)
def test_what_a_miss_says(gate: dict[str, float], value: float, teacher: float | None, said: str | None) -> None:
    measured = Measured({"accuracy": value}, None if teacher is None else {"accuracy": teacher})
    found = missed_gate("accuracy", gate, measured)
    assert (found is None) if said is None else (found is not None and said in found)


def test_a_teacher_that_cannot_be_built_changes_nothing() -> None:
    def measure(name: str, infer: Infer) -> Measured:
        raise fail("ES531", "torch is not installed. Run `pip install 'edgespec[build]'`.")

    nothing: Any = None
    provider = DeploymentProvider(nothing, nothing, measure)
    inputs: Any = {"quality": {"data": "d", "data_digest": "0", "metrics": {"accuracy": {"max_drop": 0.1}}}}
    with pytest.raises(ProviderError, match="torch is not installed") as caught:
        provider._gate(nothing, "http://w/", Address("deployment", "a"), inputs, lambda *_: None)
    assert caught.value.nothing_done
