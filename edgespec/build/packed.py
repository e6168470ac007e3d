"""Matrices that a tool quantised (GPTQ, AWQ, bitsandbytes int8), read from its checkpoint integer by integer.

What is in the files, for a product y = x W^T with W [N, K]; a word is 32 bits:

    gptq  X.qweight int32 [K / per word, N], columns of W from a word's low bits up; X.qzeros int32 [groups, N / per
          word]; X.scales [groups, N]; X.g_idx [K], the group of each column. 4 or 8 bits. Format 1 stores zero points
          less one, and subtracts whole words; format 2 stores them as they are. Tools write the wrong format into
          config.json, so it is told from the numbers.
    awq   X.qweight int32 [K, N / 8] and X.qzeros int32 [groups, N / 8], rows of W in a word in the order 0, 2, 4, 6,
          1, 3, 5, 7 from the low bits up; X.scales [groups, N]. Zero points as they are.
    bnb   X.weight int8 [N, K], X.SCB [N]: the largest number of each row, which 127 stands for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from edgespec.build.weights import BrokenWeightsError, FloatArray, Tensors

Array = npt.NDArray[Any]
Bits = Literal[4, 8]
AWQ_ORDER: Final = (0, 2, 4, 6, 1, 3, 5, 7)
"""Which row a word's nibble holds, from the low bits up."""
_PARTS: Final = ("qweight", "qzeros", "scales", "g_idx", "SCB", "weight_format")
_FLOATS_OF_4_BITS: Final = (".quant_state.bitsandbytes__nf4", ".quant_state.bitsandbytes__fp4")
_ONE_127TH: Final = np.float32(1 / 127)
_TELLING: Final = 8
"""So many equal zero points are no accident."""
_NEAR: Final = 0.2
"""How much nearer to zero the mean weight must be in one format than in the other, in units of a scale."""


class PackedError(ValueError):
    """The packed weights cannot be read exactly: the message says which, why, and what to do."""


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """W[n, k] = (q[n, k] - zero[n, group of k]) * scale[n, group of k]."""

    method: Literal["gptq", "awq", "bnb"]
    bits: Bits
    q: Array
    """[N, K]: uint8, 0 to 15 or to 255; int8 for bnb."""
    scales: FloatArray
    """[N, groups]; float16 scales are floats that float16 holds."""
    zeros: Array | None = None
    """uint8 [N, groups]; None stands for the middle: 8, 128, or 0 for bnb."""
    group: int = 0
    """Columns that share a scale, the last group may have fewer; 0: all of a row."""

    @property
    def rows(self) -> int:
        return int(self.q.shape[0])

    @property
    def columns(self) -> int:
        return int(self.q.shape[1])

    @property
    def middle(self) -> int:
        return 0 if self.method == "bnb" else 1 << (self.bits - 1)

    def floats(self) -> FloatArray:
        """What the integers stand for, [N, K] float32."""
        q = self.q.astype(np.float32)
        zeros = np.float32(self.middle) if self.zeros is None else self._wide(self.zeros.astype(np.float32))
        return np.asarray((q - zeros) * self._wide(self.scales), np.float32)

    def taking(self, rows: Sequence[int]) -> Packed:
        """Those rows of it, in that order."""
        at = list(rows)
        zeros = None if self.zeros is None else self.zeros[at]
        return Packed(self.method, self.bits, self.q[at], self.scales[at], zeros, self.group)

    def _wide(self, groups: Array) -> Array:
        return np.repeat(groups, self.group or self.columns, axis=1)[:, : self.columns]


class Checkpoint(Tensors):
    """A model's tensors, where a packed matrix X also answers as X.weight, in floats. Raises PackedError.

    `packed` has the matrices by X, the module's name.
    """

    def __init__(self, *files: bytes) -> None:
        super().__init__(*files)
        self.packed: Mapping[str, Packed] = {}
        self.packed = read(self)

    def __contains__(self, name: object) -> bool:
        return self._module(name) in self.packed or super().__contains__(name)

    def get(self, name: str) -> FloatArray:
        found = self.packed.get(self._module(name))
        return super().get(name) if found is None else found.floats()

    def float_names(self) -> list[str]:
        """The tensors of the model as it would be without quantisation."""
        plain = [n for n in self.names() if not self._is_part(n) and self.is_float(n)]
        return sorted({*plain, *(f"{module}.weight" for module in self.packed)})

    def _is_part(self, name: str) -> bool:
        module, _, last = name.rpartition(".")
        return module in self.packed and last in _PARTS

    @staticmethod
    def _module(name: object) -> str:
        return name.removesuffix(".weight") if isinstance(name, str) and name.endswith(".weight") else ""


def read(tensors: Tensors) -> dict[str, Packed]:
    """Every packed matrix, by its module's name; none in a float model. Raises PackedError."""
    names = tensors.names()
    if foreign := [
        n for n in names if n.endswith((".quant_state.bitsandbytes__nf4", ".quant_state.bitsandbytes__fp4"))
    ]:
        raise PackedError(
            f"{foreign[0]}: bitsandbytes' 4-bit floats are no integers with a scale, which alone can be kept exactly; "
            "quantise with bnb in 8 bits, or with gptq or awq in 4"
        )
    words = [n.removesuffix(".qweight") for n in names if n.endswith(".qweight")]
    found: dict[str, Packed] = {}
    stored: dict[str, _Gptq] = {}
    try:
        for module in words:
            if _is_awq(tensors, module):
                found[module] = _awq(tensors, module)
            else:
                stored[module] = _gptq(tensors, module)
        for module in (n.removesuffix(".SCB") for n in names if n.endswith(".SCB")):
            found[module] = _bnb(tensors, module)
    except KeyError as why:
        raise PackedError(f"the packed weights have no tensor {why}") from None
    except BrokenWeightsError as why:
        raise PackedError(str(why)) from None
    if stored:
        first = _is_format_1(list(stored.values()))
        found |= {module: g.packed(first=first) for module, g in stored.items()}
    return found


# GPTQ


@dataclass(frozen=True, slots=True, eq=False)
class _Gptq:
    """As stored: which of the two formats the zero points are in is known of all matrices together."""

    bits: Bits
    q: Array
    """uint8 [K, N]."""
    zero_words: Array
    scales: FloatArray
    group: int

    def zeros(self, *, first: bool) -> Array:
        """uint8 [groups, N]. Format 1 takes one from each, a borrow running on into the next of a word: so one is
        added to whole words again."""
        words = self.zero_words.view(np.uint32)
        if first:
            ones = np.uint32(sum(1 << at for at in range(0, 32, self.bits)))
            words = words + ones
        return _fields(words, self.bits, along=1)[:, : self.q.shape[1]]

    def is_middle(self, *, first: bool) -> bool:
        zeros = self.zeros(first=first)
        return zeros.size >= _TELLING and bool((zeros == 1 << (self.bits - 1)).all())

    def row_means(self, *, first: bool) -> Array:
        """The mean weight of each row, in units of a scale: around zero with the right zero points, one off else."""
        zeros = np.repeat(self.zeros(first=first), self.group, axis=0)[: len(self.q)]
        return np.asarray(self.q.mean(0, dtype=np.float64) - zeros.mean(0, dtype=np.float64))

    def packed(self, *, first: bool) -> Packed:
        zeros = self.zeros(first=first)
        middle = bool((zeros == 1 << (self.bits - 1)).all())
        return Packed(
            "gptq", self.bits, np.ascontiguousarray(self.q.T), np.ascontiguousarray(self.scales.T),
            None if middle else np.ascontiguousarray(zeros.T), 0 if self.group == len(self.q) else self.group,
        )  # fmt: skip


def _fields(words: Array, bits: int, *, along: int) -> Array:
    """uint8 fields of words, from the low bits up, laid out along an axis of [rows, columns]."""
    shifts = range(0, 32, bits)
    fields = np.stack([(words >> np.uint32(s)) & np.uint32((1 << bits) - 1) for s in shifts], axis=along + 1)
    rows, columns = words.shape
    shape = (rows * len(shifts), columns) if along == 0 else (rows, columns * len(shifts))
    return fields.astype(np.uint8).reshape(shape)


def _gptq(tensors: Tensors, module: str) -> _Gptq:
    q, zeros, order = (tensors.integers(f"{module}.{part}") for part in ("qweight", "qzeros", "g_idx"))
    scales = tensors.get(f"{module}.scales")
    columns = int(order.shape[0])
    bits = _bits(module, len(q), columns)
    group = int(np.count_nonzero(order == order[0])) if columns else 0
    if not group or not np.array_equal(order, np.arange(columns) // group):
        raise PackedError(
            f"{module}: its groups follow the order of activation (g_idx, desc_act), which neither engine runs; "
            "quantise with desc_act false"
        )
    groups, rows = -(-columns // group), int(q.shape[1])
    wanted = {"scales": (groups, rows), "qzeros": (groups, -(-rows * bits // 32))}
    for part, array in (("scales", scales), ("qzeros", zeros)):
        if array.shape != wanted[part]:
            raise PackedError(f"{module}.{part} is {_shape(array)}, the other tensors want {_shape(wanted[part])}")
    values = _fields(_words(q), bits, along=0)[:columns]
    return _Gptq(bits, values, _words(zeros), scales, group)


def _bits(module: str, words: int, columns: int) -> Bits:
    for bits in (4, 8):
        if words == -(-columns * bits // 32):
            return 4 if bits == 4 else 8
    raise PackedError(
        f"{module}: {words} words for {columns} columns are {words * 32 / max(1, columns):.3g} bits a weight; "
        "4 and 8 are read"
    )


def _is_format_1(stored: Sequence[_Gptq]) -> bool:
    """A symmetric matrix tells it outright: its zero points are all 8 (or 128). Else the weights do, which are around
    zero: those of a tool that rounds asymmetrically have zero points of all kinds.
    """
    outright = {first for first in (True, False) if any(g.is_middle(first=first) for g in stored)}
    if len(outright) == 1:
        return True in outright
    means = {first: np.concatenate([g.row_means(first=first) for g in stored]) for first in (True, False)}
    doubt = 4 * float(means[True].std()) / len(means[True]) ** 0.5
    less_one, as_is = (abs(float(means[first].mean())) for first in (True, False))
    if abs(less_one - as_is) < max(_NEAR, doubt):
        raise PackedError(
            "it cannot be told whether the zero points (qzeros) are stored less one: the mean weight is "
            f"{less_one:.2f} scales from zero if they are, {as_is:.2f} if not; quantise with sym true"
        )
    return less_one < as_is


# AWQ and bitsandbytes


def _is_awq(tensors: Tensors, module: str) -> bool:
    """By shape: GPTQ packs along K, AWQ along N."""
    words, scales = tensors.shape(f"{module}.qweight"), tensors.shape(f"{module}.scales")
    if len(words) != 2 or len(scales) != 2:
        raise PackedError(f"{module}: qweight and scales are no matrices")
    if words[1] == scales[1]:
        return False
    if words[1] * 8 == scales[1]:
        return True
    raise PackedError(
        f"{module}: qweight is {_shape(words)} and scales {_shape(scales)}, which is neither GPTQ's layout nor AWQ's "
        "(gemm); quantise with checkpoint format gptq, or awq version gemm"
    )


def _awq(tensors: Tensors, module: str) -> Packed:
    q, zeros = (_words(tensors.integers(f"{module}.{part}")) for part in ("qweight", "qzeros"))
    scales = tensors.get(f"{module}.scales")
    columns, groups = len(q), len(scales)
    if zeros.shape != (groups, q.shape[1]) or columns % groups:
        raise PackedError(f"{module}: qweight {_shape(q)}, qzeros {_shape(zeros)} and {groups} groups do not fit")
    places = np.argsort(AWQ_ORDER)
    values, points = (_in_order(_fields(w, 4, along=1), places).T for w in (q, zeros))
    return Packed(
        "awq", 4, np.ascontiguousarray(values), np.ascontiguousarray(scales.T),
        None if (points == 8).all() else np.ascontiguousarray(points), 0 if groups == 1 else columns // groups,
    )  # fmt: skip


def _in_order(fields: Array, places: Array) -> Array:
    rows, columns = fields.shape
    return fields.reshape(rows, columns // 8, 8)[:, :, places].reshape(rows, columns)


def _bnb(tensors: Tensors, module: str) -> Packed:
    q, largest = tensors.integers(f"{module}.weight"), tensors.get(f"{module}.SCB").reshape(-1)
    layout = f"{module}.weight_format"
    if layout in tensors and (tensors.integers(layout) != 0).any():
        raise PackedError(f"{module}: its rows are tiled for a GPU; write it anew with bitsandbytes 0.45 or later")
    if q.dtype != np.int8 or q.ndim != 2 or largest.shape != (len(q),):
        raise PackedError(f"{module}: weight {_shape(q)} and SCB {_shape(largest)} are no int8 rows with their scales")
    return Packed("bnb", 8, q, (largest * _ONE_127TH).reshape(-1, 1))


def _words(array: Array) -> Array:
    if array.dtype != np.int32 or array.ndim != 2:
        raise PackedError(f"packed words are {array.dtype} {_shape(array)}, not an int32 matrix")
    return np.ascontiguousarray(array).view(np.uint32)


def _shape(array: Array | tuple[int, ...]) -> str:
    return "x".join(map(str, array if isinstance(array, tuple) else array.shape))
