"""What a plan may know more of than the one that was reviewed, and still be it. With builds: tests/e2e/test_gitops."""

from __future__ import annotations

from typing import Any

import pytest

from edgespec.plan.refined import says_the_same


def document(after: Any, artifact: str | None = None, **of_the_change: Any) -> dict[str, Any]:
    change = {"address": "worker/alpha", "action": "update", "fields": [], "after": after, "work": {}, **of_the_change}
    return {"format": 1, "artifacts": {"alpha": {"key": "k", "artifact": artifact}}, "changes": [change]}


def completes(before: Any, after: Any) -> bool:
    return says_the_same(document(before), document(after, "a"))


def test_only_where_a_build_told_more() -> None:
    assert not says_the_same(document({"x": 1}), document({"x": 1}))
    assert completes({"x": 1}, {"x": 1})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, {"x": 1}),
        ({"x": None}, {"x": [1]}),
        ({"x": [None, 2]}, {"x": [1, 2]}),
        ({"x": [{"y": None}]}, {"x": [{"y": 1}]}),
    ],
)
def test_values_where_nothing_was_known(before: Any, after: Any) -> None:
    assert completes(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"x": 1}, {"x": None}),
        ({"x": 1}, {"x": 1, "y": 2}),
        ({"x": [1]}, {"x": [2]}),
        ({"x": [1]}, {"x": [1, 2]}),
        ({"x": [1, 2]}, {"x": [1]}),
        ({"x": [1]}, {"x": {"y": 1}}),
        ({"x": {"y": 1}}, {"x": "y"}),
        ({"x": {"y": 1}}, {"x": [1]}),
        ({"x": [None]}, {"x": "1"}),
    ],
)
def test_another_value_is_another_plan(before: Any, after: Any) -> None:
    assert not completes(before, after)


def test_more_fields_or_another_action_are_another_plan() -> None:
    field = {"path": "x", "before": 1, "after": 2, "known_after": None}
    told = document(None, "a", fields=[field])
    assert not says_the_same(document(None), told)
    assert not says_the_same(document(None), document(None, "a", action="replace"))
    later = {**field, "after": None, "known_after": "build"}
    assert says_the_same(document(None, fields=[later]), told)
    assert not says_the_same(document(None, fields=[{**field, "after": 3}]), told)
    twice = {**document(None, "a"), "changes": document(None, "a")["changes"] * 2}
    assert not says_the_same(document(None), twice)
