"""Double-array tries of byte strings: one u32 per node, searched in place. Pure.

A node's unit is `base << 10 | value follows << 9 | label`, its label the byte it was reached by plus 1; its child by
byte b is unit `base ^ (b + 1)` where that has the label b + 1, its value unit `base ^ 0`: `1 << 31 | value`.
No two nodes have one base, so a label alone tells whose child a unit is.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping

BLOCK = 512
MAX_UNITS = 1 << 21
"""What 21 bits of base reach; a vocabulary of 250,000 pieces takes about half."""
PATIENCE = 48
"""Places tried for a node of several children before the search moves on."""


class TrieTooLargeError(ValueError):
    """The keys need more units than a base can name."""


class _Units:
    def __init__(self) -> None:
        self.units = array("I", [0]) * BLOCK
        self.taken = bytearray(BLOCK)
        self.based = bytearray(BLOCK)
        self.taken[0] = self.based[0] = 1
        self.head = 1
        self.wide_head = 1

    def free(self, start: int) -> int:
        slot = self.taken.find(0, start)
        while slot < 0:
            start = len(self.taken)
            if start + BLOCK > MAX_UNITS:
                raise TrieTooLargeError
            self.units.extend(array("I", [0]) * BLOCK)
            self.taken.extend(bytes(BLOCK))
            self.based.extend(bytes(BLOCK))
            slot = self.taken.find(0, start)
        return slot

    def place(self, labels: list[int]) -> int:
        """A base with which all labels fall on free units; takes them."""
        taken, based, first = self.taken, self.based, labels[0]
        if len(labels) == 1:
            slot = self.head = self.free(self.head)
            while based[slot ^ first]:
                slot = self.free(slot + 1)
            taken[slot] = based[slot ^ first] = 1
            return slot ^ first
        slot = self.free(self.wide_head)
        for tries in range(1 << 30):
            base = slot ^ first
            if not based[base] and not any(taken[base ^ label] for label in labels):
                break
            if tries == PATIENCE:
                self.wide_head = slot
            slot = self.free(slot + 1)
        based[base] = 1
        for label in labels:
            taken[base ^ label] = 1
        return base


def build_trie(items: Mapping[bytes, int]) -> bytes:
    """Little-endian units; keys must not be empty, values below 2^31. Raises TrieTooLargeError."""
    keys = sorted(items)
    array_ = _Units()
    pending = [(0, 0, len(keys), 0, 0)] if keys else []
    while pending:
        slot, low, high, depth, label = pending.pop()
        ends = len(keys[low]) == depth
        groups = []
        at = low + ends
        while at < high:
            start, byte = at, keys[at][depth]
            while at < high and keys[at][depth] == byte:
                at += 1
            groups.append((byte + 1, start, at))
        base = array_.place([0] * ends + [group[0] for group in groups])
        units = array_.units
        units[slot] = base << 10 | ends << 9 | label
        if ends:
            units[base] = 1 << 31 | items[keys[low]]
        pending.extend((base ^ code, first, last, depth + 1, code) for code, first, last in reversed(groups))
    used = len(array_.taken.rstrip(b"\0"))
    units = array_.units[:used]
    if units.itemsize != 4:
        raise AssertionError("array('I') is not 32 bits wide here")
    return units.tobytes()
