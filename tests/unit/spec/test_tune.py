"""The grid: which fields it sets, and the specs that come of it."""

from __future__ import annotations

from typing import Any

import pytest

from edgespec.spec.models import EdgeModel
from edgespec.spec.tune import grid, metric_of, target


def spec(**more: Any) -> EdgeModel:
    return EdgeModel.model_validate(
        {
            "apiVersion": "edgespec/v1",
            "kind": "EdgeModel",
            "metadata": {"name": "a"},
            "model": {"source": "./models/x"},
            "task": {"type": "embedding"},
            **more,
        }
    )


def piped(*stages: dict[str, Any], **tune: Any) -> EdgeModel:
    return spec(model={"source": "./models/x", "pipeline": list(stages)}, tune={"data": "a.jsonl", **tune})


PRUNE: dict[str, Any] = {"prune": {"vocabulary": {"corpus": "a.txt", "keep": 10}, "layers": [0, 1]}}
DISTILL: dict[str, Any] = {"distill": {"data": "a.txt", "student": {"layers": 2, "width": 64}}}
STATIC: dict[str, Any] = {"distill": {"method": "static"}}


def test_every_combination_in_the_order_written() -> None:
    made = grid(piped(PRUNE, quantization=["int8", {"method": "int4", "group_size": 64}], layers=[[0], [0, 2]]))
    assert [[s.shown for s in p.settings] for p in made] == [
        ["int8", "[0]"], ["int8", "[0, 2]"], ["int4/64", "[0]"], ["int4/64", "[0, 2]"],
    ]  # fmt: skip
    last = made[-1].spec
    assert (last.quantization.method, last.quantization.group_size) == ("int4", 64)
    assert last.model.pipeline[0].prune is not None
    assert last.model.pipeline[0].prune.layers == (0, 2)


def test_a_variant_differs_in_nothing_else_and_has_no_grid() -> None:
    original = piped(PRUNE, quantization=["int8", "int4"], vocabulary=[5, 10])
    made = grid(original)
    assert len(made) == 4
    same = next(p.spec for p in made if [s.value for s in p.settings] == [{"method": "int8"}, 10])
    assert same.model_dump(exclude={"tune"}) == original.model_dump(exclude={"tune"})
    assert same.tune is None


@pytest.mark.parametrize(
    ("stages", "knob", "path"),
    [
        ([PRUNE], "layers", ("model", "pipeline", 0, "prune", "layers")),
        ([PRUNE, DISTILL], "layers", ("model", "pipeline", 1, "distill", "student", "layers")),
        ([DISTILL, PRUNE], "layers", ("model", "pipeline", 1, "prune", "layers")),
        ([DISTILL], "dimensions", ("model", "pipeline", 0, "distill", "student", "width")),
        ([STATIC], "dimensions", ("model", "pipeline", 0, "distill", "dimensions")),
        ([STATIC], "layers", None),
        ([PRUNE, DISTILL], "vocabulary", ("model", "pipeline", 0, "prune", "vocabulary", "keep")),
        (
            [{"distill": {"data": "a.txt", "student": {"layers": 1, "vocabulary": {"corpus": "a.txt"}}}}],
            "vocabulary",
            ("model", "pipeline", 0, "distill", "student", "vocabulary", "keep"),
        ),
        ([{"prune": {"vocabulary": {"scripts": ["Latin"]}}}], "vocabulary", None),
        ([], "quantization", ("quantization",)),
    ],
)
def test_which_field_a_knob_sets(stages: list[dict[str, Any]], knob: str, path: Any) -> None:
    assert target(piped(*stages), knob) == path


def test_the_metric_is_the_grids_then_the_gates_then_the_usual_one() -> None:
    gate = {"data": "q.jsonl", "metrics": {"pearson": {"min": 0.5}}}
    assert metric_of(spec(tune={"metric": "mrr"}, quality=gate)) == "mrr"
    assert metric_of(spec(quality=gate)) == "pearson"
    assert metric_of(spec()) == "spearman"
    assert metric_of(spec(task={"type": "text-classification", "labels": ["a", "b"]})) == "accuracy"
