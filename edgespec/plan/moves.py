"""`renamed_from`: what was deployed under a spec's old name goes on under its new one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from edgespec.address import Address
from edgespec.diagnostics import Checked
from edgespec.plan.model import EVERYTHING, Request
from edgespec.resources.compile import TYPES
from edgespec.spec.models import EdgeModel
from edgespec.state.edit import move
from edgespec.state.model import State


class Moved(Struct, frozen=True):
    state: State
    moves: Mapping[Address, Address] = field(default_factory=dict)
    """New address -> old one."""


def renamed(state: State, specs: Iterable[EdgeModel], request: Request = EVERYTHING) -> Checked[Moved]:
    """`state` with the records of renamed specs at their new addresses, of those that the request is about. Once done
    it changes nothing: no record has the old name any more, so the field may stay in the spec."""
    if request.refresh_only:
        return Checked(Moved(state))
    names: dict[str, str] = {}
    moves: dict[Address, Address] = {}
    part = {*request.names, *(a.spec for a in request.targets)}
    for spec in specs:
        old = spec.lifecycle.renamed_from
        if old is None or (part and spec.name not in part):
            continue
        names[old] = spec.name
        for key in state.records:
            address = key.address
            first, slash, rest = address.name.partition("/")
            if first == old and not TYPES[address.type].shared:
                moves[address] = Address(address.type, f"{spec.name}{slash}{rest}")
    if not moves:
        return Checked(Moved(state))
    made = move(state, moves, names)
    if made.value is None:
        return Checked(None, made.diagnostics)
    return Checked(Moved(made.value, {new: old for old, new in moves.items()}), made.diagnostics)
