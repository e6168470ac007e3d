"""Which part of a plan is wanted: by spec names, by target addresses, without excluded ones.

A part is never one that harms the rest. What a target needs comes with it; where a target is replaced or removed, its
users come too, since they must move away first. What cannot be done without something excluded is left as well, and so
is what would take something away from what stays.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from edgespec import graph
from edgespec.address import Address
from edgespec.plan.model import Action, Change, Request
from edgespec.records import replace
from edgespec.resources.base import DesiredState
from edgespec.state.model import Key, State

_TAKES: frozenset[Action] = frozenset({Action.REPLACE, Action.DELETE})


class Selection(Struct, frozen=True):
    """`chosen` is None for everything; `blocked` are left as they are, whatever is chosen."""

    chosen: frozenset[Address] | None
    blocked: frozenset[Address] = frozenset()

    def takes(self, address: Address) -> bool:
        return (self.chosen is None or address in self.chosen) and address not in self.blocked


def first(desired: DesiredState, request: Request) -> Selection:
    """What is asked for, with what it needs by the specs."""
    needs = {a: r.needs for a, r in desired.resources.items()}
    blocked = frozenset(request.excludes)
    if not request.names and not request.targets:
        return Selection(None, blocked)
    named = set(request.names)
    owned = [a for a, r in desired.resources.items() if not named.isdisjoint(r.owners)]
    return Selection(graph.closure({*owned, *request.targets}, needs), blocked)


def grown(
    selection: Selection, request: Request, changes: Mapping[Key, Change], desired: DesiredState, state: State
) -> Selection:
    """With the users of every target that is replaced or removed, and what those need."""
    if selection.chosen is None or not request.targets:
        return selection
    users = _users(state)
    taken = [k.address for k, c in changes.items() if c.action in _TAKES]
    more = graph.closure((u for a in taken for u in users.get(a, ())), users)
    needs = {a: r.needs for a, r in desired.resources.items()}
    return replace(selection, chosen=selection.chosen | graph.closure(more, needs))


def shrunk(
    selection: Selection,
    changes: Mapping[Key, Change],
    withheld: Mapping[Address, Change],
    desired: DesiredState,
    state: State,
) -> Selection:
    """Without what cannot be done while `withheld` changes are not, and without what takes away what stays needs."""
    if not selection.blocked:
        return selection
    blocked = set(selection.blocked)
    for address, resource in desired.resources.items():
        for needed in resource.needs & withheld.keys():
            made = state.get(needed) is not None
            if not made or needed in resource.depends_on:  # its outputs are not there, or not what they should be
                blocked.add(address)
    uses = {k.address: r.depends_on for k, r in state.records.items() if not k.deposed}
    stays = graph.closure((a for a in selection.blocked if a in uses), uses)
    blocked |= {k.address for k, c in changes.items() if c.action in _TAKES and k.address in stays}
    return replace(selection, blocked=frozenset(blocked))


def _users(state: State) -> dict[Address, set[Address]]:
    """Who uses what, by state."""
    found: dict[Address, set[Address]] = {}
    for key, record in state.records.items():
        if not key.deposed:
            for address in record.depends_on:
                found.setdefault(address, set()).add(key.address)
    return found
