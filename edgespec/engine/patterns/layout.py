"""How an ONNX tensor lies in a register: reshapes, transposes, splits and slices without moving a number.

A register is rows of columns. A view is the tensor's axes, each made of atoms: the tokens of the text, a run of columns
(`stride` apart), or a repetition (stride 0: grouped key heads). Sizes are tuples, one number for each sampled text, so
that an axis of 12 heads is never taken for a text of 12 tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

Size = tuple[int, ...]
"""The length of an axis in each sample."""
Shape = tuple[Size, ...]

TOKENS: Final = -1
"""Stride of the axis that runs over the tokens."""


class LayoutError(ValueError):
    """The operation would have to move numbers."""


@dataclass(frozen=True, slots=True)
class Atom:
    size: Size
    stride: int


Axis = tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class View:
    register: int
    offset: int
    axes: tuple[Axis, ...]

    @property
    def atoms(self) -> Axis:
        return tuple(atom for axis in self.axes for atom in axis)

    @property
    def columns(self) -> Axis:
        """Atoms over columns, the widest stride first."""
        return tuple(sorted((a for a in self.atoms if a.stride > 0), key=lambda a: -a.stride))

    @property
    def has_tokens(self) -> bool:
        return any(a.stride == TOKENS for a in self.atoms)


@dataclass(frozen=True, slots=True)
class Slice:
    """Columns offset .. offset + width of a register."""

    register: int
    offset: int
    width: int


def constant(size: Size) -> int:
    """The length of an axis that is the same in every sample. Raises LayoutError."""
    if len(set(size)) != 1:
        raise LayoutError("an axis whose length depends on the text")
    return size[0]


def product(sizes: Sequence[Size], samples: int) -> Size:
    result = [1] * samples
    for size in sizes:
        result = [a * b for a, b in zip(result, size, strict=True)]
    return tuple(result)


def whole(register: int, width: int, shape: Shape, tokens: Size) -> View:
    """A register of that width as a tensor of that shape: [..., tokens, ...columns in order]."""
    samples = len(tokens)
    axes: Axis = (Atom(tokens, TOKENS), Atom((width,) * samples, 1))
    total = product(shape, samples)
    if total == (width,) * samples:  # one row for each text
        axes = axes[1:]
    return reshape(View(register, 0, (axes,)), shape)


def reshape(view: View, shape: Shape) -> View:
    samples = len(shape[0]) if shape else 1
    left = list(view.atoms)
    axes: list[Axis] = []
    for size in shape:
        axis: list[Atom] = []
        have = (1,) * samples
        while have != size:
            if not left:
                raise LayoutError("the shape has more elements than the value")
            atom = left.pop(0)
            joined = product((have, atom.size), samples)
            if all(size[i] % joined[i] == 0 for i in range(samples)):
                axis.append(atom)
                have = joined
                continue
            outer, inner = _split_atom(atom, have, size)
            axis.append(outer)
            left.insert(0, inner)
            have = size
        axes.append(tuple(axis))
    if left:
        raise LayoutError("the shape has fewer elements than the value")
    return replace(view, axes=tuple(axes))


def _split_atom(atom: Atom, have: Size, size: Size) -> tuple[Atom, Atom]:
    wanted = [s // h for s, h in zip(size, have, strict=True)]
    if atom.stride == TOKENS or any(s % h for s, h in zip(size, have, strict=True)):
        raise LayoutError("tokens of one text would be split")
    if any(n % w for n, w in zip(atom.size, wanted, strict=True)) or len(set(wanted)) != 1:
        raise LayoutError("an axis would be split unevenly")
    inner = tuple(n // wanted[0] for n in atom.size)
    return Atom(tuple(wanted), atom.stride * constant(inner)), Atom(inner, atom.stride)


def transpose(view: View, order: Sequence[int]) -> View:
    return replace(view, axes=tuple(view.axes[i] for i in order))


def narrow(view: View, axis: int, start: int, count: int) -> View:
    """`count` columns of that axis from `start` on."""
    atoms = merge(view.axes[axis])
    if len(atoms) == 0 and start == 0 and count == 1:
        return view
    if not atoms or atoms[0].stride == TOKENS:
        raise LayoutError("some of the tokens are taken")
    inner = product([a.size for a in atoms[1:]], len(atoms[0].size))
    step = constant(inner)
    if start % step or count % step:
        if step > count and start // step == (start + count - 1) // step:
            raise LayoutError("a part of an axis that is not one run of columns")
        raise LayoutError("a slice that is not one run of columns")
    head = Atom((count // step,) * len(inner), atoms[0].stride)
    kept: Axis = ((head,) if count // step > 1 else ()) + atoms[1:]
    axes = (*view.axes[:axis], kept, *view.axes[axis + 1 :])
    return View(view.register, view.offset + start // step * max(atoms[0].stride, 0), axes)


def expand(view: View, shape: Shape) -> View:
    axes = list(view.axes)
    for _ in range(len(shape) - len(axes)):
        axes.insert(0, ())
    for i, size in enumerate(shape):
        have = product([a.size for a in axes[i]], len(size))
        if have == size:
            continue
        if axes[i]:
            raise LayoutError("an axis of more than one element is repeated")
        axes[i] = (Atom((constant(size),) * len(size), 0),)
    return replace(view, axes=tuple(axes))


def merge(axis: Axis) -> Axis:
    """The same axis with as few atoms as possible."""
    result: list[Atom] = []
    for atom in axis:
        last = result[-1] if result else None
        if last and last.stride > 0 and atom.stride > 0 and last.stride == atom.stride * atom.size[0]:
            size = product((last.size, atom.size), len(atom.size))
            result[-1] = Atom(size, atom.stride)
        elif last and last.stride == 0 and atom.stride == 0:
            result[-1] = Atom(product((last.size, atom.size), len(atom.size)), 0)
        else:
            result.append(atom)
    return tuple(result)


def cover(view: View) -> Slice:
    """The one run of columns that the view reads, whatever the order of its axes, however often. Raises LayoutError."""
    width = 1
    for atom in reversed(view.columns):
        if atom.stride != width:
            raise LayoutError("columns with gaps between them")
        width *= constant(atom.size)
    return Slice(view.register, view.offset, width)


def moved(view: View, register: int) -> View:
    """The same tensor when `cover(view)` has been computed into a register of its own."""
    return View(register, 0, view.axes)


def rows(view: View) -> Slice:
    """The view as plain rows: tokens first, then the columns in order. Raises LayoutError."""
    atoms = view.atoms
    if any(a.stride == TOKENS for a in atoms[1:]):
        raise LayoutError("tokens are not the first axis")
    last = merge(view.axes[-1]) if view.axes else ()
    if len(last) > 1 or (last and last[0].stride != 1):
        raise LayoutError("columns are out of order")
    if any(a.stride != TOKENS for axis in view.axes[:-1] for a in axis):
        raise LayoutError("more than one axis of columns")
    return Slice(view.register, view.offset, constant(last[0].size) if last else 1)


def heads(view: View) -> tuple[Slice, int]:
    """The run of columns and the width of one head, for a view whose last axis is one head. Raises LayoutError."""
    last = merge(view.axes[-1])
    if len(last) != 1 or last[0].stride != 1:
        raise LayoutError("the last axis is not one run of columns")
    return cover(view), constant(last[0].size)
