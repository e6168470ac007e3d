"""Views of registers against numpy: whatever is reshaped, transposed and sliced, the same numbers are read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.engine.patterns import layout
from edgespec.engine.patterns.layout import TOKENS, LayoutError, Shape, View

SAMPLES = (5, 7)
WIDTH = 24


def shape_of(arrays: list[np.ndarray]) -> Shape:
    return tuple(zip(*(a.shape for a in arrays), strict=True))


def read(view: View, register: np.ndarray, sample: int) -> np.ndarray:
    """The tensor that the view says is in the register."""
    atoms = view.atoms
    strides = [register.strides[0] if a.stride == TOKENS else register.strides[1] * a.stride for a in atoms]
    start = register[:, view.offset :]
    plain = np.lib.stride_tricks.as_strided(start, [a.size[sample] for a in atoms], strides)
    return plain.reshape([int(np.prod([a.size[sample] for a in axis], dtype=int)) for axis in view.axes])


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("split"), st.integers(0, 4), st.sampled_from([2, 3, 4, 6])),
        st.tuples(st.just("merge"), st.integers(0, 4), st.just(0)),
        st.tuples(st.just("swap"), st.integers(0, 4), st.integers(0, 4)),
        st.tuples(st.just("narrow"), st.integers(0, 4), st.integers(1, 5)),
        st.tuples(st.just("expand"), st.integers(0, 4), st.integers(2, 3)),
    ),
    max_size=6,
)


def move(arrays: list[np.ndarray], view: View, step: tuple[str, int, int]) -> tuple[list[np.ndarray], View]:
    kind, first, second = step
    rank = arrays[0].ndim
    axis = first % rank
    size = [a.shape[axis] for a in arrays]
    if kind == "split" and all(n % second == 0 for n in size):
        arrays = [a.reshape(*a.shape[:axis], -1, second, *a.shape[axis + 1 :]) for a in arrays]
        return arrays, layout.reshape(view, shape_of(arrays))
    if kind == "merge" and rank > 1:
        axis = first % (rank - 1)
        arrays = [a.reshape(*a.shape[:axis], -1, *a.shape[axis + 2 :]) for a in arrays]
        return arrays, layout.reshape(view, shape_of(arrays))
    if kind == "swap":
        order = list(range(rank))
        other = second % rank
        order[axis], order[other] = order[other], order[axis]
        return [a.transpose(order) for a in arrays], layout.transpose(view, order)
    if kind == "narrow" and len(set(size)) == 1 and size[0] > second:
        arrays = [np.take(a, range(second, size[0]), axis=axis) for a in arrays]
        return arrays, layout.narrow(view, axis, second, size[0] - second)
    if kind == "expand":
        arrays = [np.repeat(np.expand_dims(a, axis), second, axis=axis) for a in arrays]
        once = layout.reshape(view, shape_of([a.take([0], axis=axis) for a in arrays]))
        return arrays, layout.expand(once, shape_of(arrays))
    return arrays, view


@given(MOVES)
def test_views_read_what_numpy_reads(steps: list[tuple[str, int, int]]) -> None:
    registers = [np.arange(n * WIDTH).reshape(n, WIDTH) for n in SAMPLES]
    arrays = [r.reshape(1, *r.shape) for r in registers]
    view = layout.whole(0, WIDTH, shape_of(arrays), SAMPLES)
    for step in steps:
        try:
            arrays, view = move(arrays, view, step)
        except LayoutError:
            return
    for i, array in enumerate(arrays):
        assert np.array_equal(read(view, registers[i], i), array)


def test_rows_are_found_again_after_heads() -> None:
    view = layout.whole(3, WIDTH, ((1, 1), SAMPLES, (WIDTH, WIDTH)), SAMPLES)
    heads = layout.transpose(layout.reshape(view, ((1, 1), SAMPLES, (4, 4), (6, 6))), (0, 2, 1, 3))
    assert layout.heads(heads) == (layout.Slice(3, 0, WIDTH), 6)
    with pytest.raises(LayoutError):
        layout.rows(heads)
    back = layout.reshape(layout.transpose(heads, (0, 2, 1, 3)), ((1, 1), SAMPLES, (WIDTH, WIDTH)))
    assert layout.rows(back) == layout.Slice(3, 0, WIDTH)


def test_columns_with_gaps_are_refused() -> None:
    view = layout.whole(0, WIDTH, (SAMPLES, (WIDTH, WIDTH)), SAMPLES)
    pairs = layout.reshape(view, (SAMPLES, (4, 4), (6, 6)))
    with pytest.raises(LayoutError):
        layout.cover(layout.narrow(pairs, 2, 0, 3))
