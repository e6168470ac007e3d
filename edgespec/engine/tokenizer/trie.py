"""Double-array tries of byte strings: one u32 per node, searched in place. Pure.

A node's unit is `base << 10 | value follows << 9 | label`, its label the byte it was reached by plus 1; its child by
byte b is unit `base + b + 1` where that has the label b + 1, its value unit `base`: `1 << 31 | value`.
No two nodes have one base, so a label alone tells whose child a unit is.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping

LABELS = 257
MAX_UNITS = 1 << 21
"""What 21 bits of base reach; a vocabulary of 250,000 pieces takes about half."""
WINDOW = 1 << 11
"""Units considered at a time when a node's children are placed; what stays free before them is lost."""
STEP = 1 << 8


class TrieTooLargeError(ValueError):
    """The keys need more units than a base can name."""


class _Places:
    """Which units and bases of the window are free, as bits: one `&` per label tries every place at once."""

    def __init__(self) -> None:
        self.origin = 1
        self.free = (1 << WINDOW + LABELS) - 1
        self.bases = (1 << WINDOW) - 1

    def take(self, labels: list[int]) -> int:
        """The first base with which all labels fall on free units."""
        while True:
            fitting = self.bases
            for label in labels:
                fitting &= self.free >> label
            if fitting:
                break
            self.origin += STEP
            self.free = self.free >> STEP | (1 << STEP) - 1 << WINDOW + LABELS - STEP
            self.bases = self.bases >> STEP | (1 << STEP) - 1 << WINDOW - STEP
        base = (fitting & -fitting).bit_length() - 1
        if self.origin + base + LABELS > MAX_UNITS:
            raise TrieTooLargeError
        self.bases ^= 1 << base
        taken = 0
        for label in labels:
            taken |= 1 << label
        self.free ^= taken << base
        return self.origin + base


def build_trie(items: Mapping[bytes, int]) -> bytes:
    """Little-endian units; keys must not be empty, values below 2^31. Raises TrieTooLargeError."""
    keys = sorted(items)
    units = array("I", bytes(4))
    if units.itemsize != 4:
        raise AssertionError("array('I') is not 32 bits wide here")
    places = _Places()
    last = 0
    pending = [(0, 0, len(keys), 0, 0)] if keys else []
    while pending:
        slot, low, high, depth, label = pending.pop()
        ends = len(keys[low]) == depth
        children = _children(keys, low + ends, high, depth)
        base = places.take([0] * ends + [code for code, _, _ in children])
        last = max(last, base + (children[-1][0] if children else 0))
        if last >= len(units):
            units.extend(array("I", bytes(4 * (last + WINDOW))))
        units[slot] = base << 10 | ends << 9 | label
        if ends:
            units[base] = 1 << 31 | items[keys[low]]
        pending.extend((base + code, start, end, depth + 1, code) for code, start, end in reversed(children))
    return units[: last + 1].tobytes()


def _children(keys: list[bytes], low: int, high: int, depth: int) -> list[tuple[int, int, int]]:
    """Label, first and last key of each child of the node that keys[low:high] share to `depth`."""
    found = []
    at = low
    while at < high:
        start, byte = at, keys[at][depth]
        if keys[high - 1][depth] == byte:
            at = high
        while at < high and keys[at][depth] == byte:
            at += 1
        found.append((byte + 1, start, at))
    return found
