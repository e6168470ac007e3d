"""Which rows are unbeaten, which one is taken, and how a search is shown."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.frontier import Row, TuneDocument, choose, document, frontier
from edgespec.render.text import plain
from edgespec.render.tune import render
from edgespec.render.tune_plot import plot

MB = 10**6


def row(
    number: int, accuracy: float, size: int, cpu: float | None = 1.0, memory: int | None = 20 * MB, **more: Any
) -> Row:
    figures = {"artifact": "a" * 64, "size": size, "gzip": size // 2, "metrics": {"accuracy": accuracy}}
    timed = {"cpu_p50_ms": cpu, "cpu_p99_ms": cpu, "memory": memory}
    settings = {"quantization": {"method": f"m{number}"}}
    return Row(number=number, settings=settings, shown={"quantization": f"m{number}"}, **{**figures, **timed, **more})


def refused(number: int) -> Row:
    shown = {"quantization": f"m{number}"}
    return Row(number=number, settings={"quantization": {}}, shown=shown, why="a student of 7 layers has no teacher")


def found(*rows: Row, plan: Any = "free", tolerance: float = 0.01) -> TuneDocument:
    return document("intent", rows, spec_digest="0" * 64, metric="accuracy", tolerance=tolerance, plan=plan)


def test_what_another_equals_or_beats_everywhere_is_beaten() -> None:
    rows = [row(1, 0.9, 3 * MB), row(2, 0.9, 4 * MB), row(3, 0.8, 2 * MB), row(4, 0.7, 3 * MB), refused(5)]
    assert frontier(rows, "accuracy") == (1, 3)


def test_differences_that_a_second_measurement_would_make_do_not_count() -> None:
    rows = [row(1, 0.9, MB, cpu=1.0, memory=3_000_000), row(2, 0.9, 2 * MB, cpu=0.98, memory=2_800_000)]
    assert frontier(rows, "accuracy") == (1,)
    assert frontier([rows[0], row(2, 0.9, 2 * MB, cpu=0.8)], "accuracy") == (1, 2)


def test_equal_rows_are_both_unbeaten() -> None:
    assert frontier([row(1, 0.9, MB), row(2, 0.9, MB)], "accuracy") == (1, 2)


def test_the_choice_is_the_smallest_within_the_tolerance() -> None:
    rows = [row(1, 0.900, 9 * MB), row(2, 0.892, 3 * MB), row(3, 0.85, MB)]
    assert choose(rows, "accuracy", tolerance=0.01, plan="paid") == 2
    assert choose(rows, "accuracy", tolerance=0.0, plan="paid") == 1
    assert choose(rows, "accuracy", tolerance=0.05, plan="paid") == 3


def test_what_does_not_fit_is_neither_chosen_nor_the_measure() -> None:
    slow, big = row(1, 0.99, 9 * MB, cpu=11.0), row(2, 0.98, 9 * MB, memory=129 * MB)
    assert choose([slow, big, row(3, 0.7, MB)], "accuracy", tolerance=0.01, plan="free") == 3
    assert choose([slow, big, row(3, 0.7, MB)], "accuracy", tolerance=0.01, plan="paid") == 1
    assert choose([big], "accuracy", tolerance=0.01, plan="paid") is None
    assert choose([refused(1)], "accuracy", tolerance=0.01, plan="paid") is None


def test_what_was_not_timed_may_be_chosen_and_says_so() -> None:
    made = found(row(1, 0.9, MB, cpu=None, memory=None))
    assert made.choice == 1
    assert "not measured" in plain(render(made))


def test_the_table_marks_explains_and_advises() -> None:
    text = plain(render(found(row(1, 0.9, 3 * MB), row(2, 0.8, 4 * MB, cpu=12.5), refused(3))))
    lines = text.splitlines()
    assert lines[2].startswith("*  1  m1")
    assert lines[3].startswith("   2  m2")
    assert lines[3].rstrip().endswith("paid")
    assert "3: a student of 7 layers has no teacher" in text
    assert "Take 1 (quantization m1): the smallest within 0.01 of the best that fits the free plan." in text
    assert "No variant fits the free plan." in plain(render(found(row(1, 0.9, MB, cpu=11.0))))


def test_the_plot_is_well_formed_and_shows_every_row_that_has_figures() -> None:
    made = found(row(1, 0.9, 3 * MB), row(2, 0.8, 4 * MB, cpu=12.5), refused(3))
    root = ElementTree.fromstring(plot(made))
    titles = [t.text or "" for t in root.iter("{http://www.w3.org/2000/svg}title")]
    assert [t.split(":")[0] for t in titles] == ["1", "2"]
    assert plot(made) == plot(made)
    assert ElementTree.fromstring(plot(found(refused(1)))) is not None


@pytest.mark.parametrize("count", [1, 2, 9])
def test_equal_figures_do_not_break_the_plot(count: int) -> None:
    ElementTree.fromstring(plot(found(*(row(n, 0.5, MB) for n in range(1, count + 1)))))


ROWS = st.lists(
    st.tuples(st.sampled_from([0.5, 0.6, 0.7]), st.integers(1, 3), st.sampled_from([1.0, 9.0, 11.0])),
    min_size=1,
    max_size=8,
)


@given(ROWS)
def test_no_row_beats_one_of_the_frontier_and_some_row_of_it_is_as_good_as_any(
    points: list[tuple[float, int, float]],
) -> None:
    rows = [row(n, a, s * MB, cpu=c) for n, (a, s, c) in enumerate(points, start=1)]
    front = set(frontier(rows, "accuracy"))
    keys = {r.number: (-r.metrics["accuracy"], r.size, r.cpu_p50_ms) for r in rows}
    for n, key in keys.items():
        better = [
            m for m in front if m != n and all(x <= y for x, y in zip(keys[m], key, strict=True)) and keys[m] != key
        ]  # type: ignore[operator]
        assert (n in front) == (not better)
