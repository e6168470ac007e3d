"""Changes to steps: who waits for whom.

Up-steps (create, adopt, update) wait for all that they need, also through resources that stay as they are: a version
goes live only after the weights that its Worker reads are whole again. A delete waits until everything that used the
object has moved away from it or is gone, however indirectly: old weights go only after traffic has left the version
that reads them. Who used it is told by state, since the specs may name something else by now. Create-first spreads to
all that a create-first resource needs or needed, and to all that a removed one needed; otherwise mixed orders could
form a cycle.

A delete also waits for whoever will name one of its objects: what another resource has from then on is neither taken
away nor sent again. No cycle comes of it, since what adds objects waits for no delete: it is create-first, and so is
all that it needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from edgespec import graph
from edgespec.address import Address
from edgespec.diagnostics import Checked
from edgespec.plan import content
from edgespec.plan.model import Action, Change, Step, StepId, StepKind
from edgespec.resources.base import DesiredState, ReplaceOrder
from edgespec.state.model import Key, State

_KINDS: Final = {
    Action.CREATE: (StepKind.CREATE,),
    Action.ADOPT: (StepKind.ADOPT,),
    Action.UPDATE: (StepKind.UPDATE,),
    Action.DELETE: (StepKind.DELETE,),
    Action.REPLACE: (StepKind.DELETE, StepKind.CREATE),
    Action.MOVE: (),
    Action.NOOP: (),
}


def make_steps(changes: Mapping[Key, Change], desired: DesiredState, state: State) -> Checked[tuple[Step, ...]]:
    """Steps in an order that keeps every need; the same order for the same plan."""
    if not any(_KINDS[c.action] for c in changes.values()):
        return Checked(())
    needs = {a: r.needs for a, r in desired.resources.items()}
    uses = _uses(needs, state)
    dependants = _dependants(uses)
    create_first = _create_first(changes, desired, uses)
    ups: dict[Address, frozenset[StepId]] = {}
    downs: dict[Address, frozenset[StepId]] = {}
    for key, change in changes.items():
        for kind in _KINDS[change.action]:
            side = downs if kind is StepKind.DELETE else ups
            side[key.address] = side.get(key.address, frozenset()) | {StepId(kind, key)}
    heirs = _heirs(changes)
    steps: dict[StepId, Step] = {}
    for key, change in changes.items():
        for kind in _KINDS[change.action]:
            step = StepId(kind, key)
            if kind is StepKind.DELETE:
                waits = _delete_waits(change, ups, downs, dependants, create_first)
                for heir in heirs.get(key, ()):
                    waits |= ups[heir.address]
            else:
                needed = graph.closure(needs[key.address], needs)
                waits = frozenset().union(*(ups.get(n, frozenset()) for n in needed))
                if change.action is Action.REPLACE and key.address not in create_first:
                    waits |= {StepId(StepKind.DELETE, key)}
            steps[step] = Step(step, waits - {step})
    ordered = graph.order({i: s.needs for i, s in steps.items()})
    if ordered.value is None:
        return Checked(None, ordered.diagnostics)
    return Checked(tuple(steps[i] for i in ordered.value))


def _heirs(changes: Mapping[Key, Change]) -> dict[Key, frozenset[Key]]:
    """For each delete of what is stored by content, those that will name its objects: of each object one."""
    leaving = [c for c in changes.values() if c.action in content.DOWNS and c.address.type in content.PLACES]
    added = content.adders(changes.values()) if leaving else {}
    found: dict[Key, frozenset[Key]] = {}
    for change in leaving:
        type_ = change.address.type
        if added and content.content_known(change.before, type_):
            place = content.place_of(type_, change.before)
            mine = ((place, sha) for sha in content.objects(type_, change.before))
            found[change.key] = frozenset(added[each] for each in mine if each in added)
    return found


def _delete_waits(
    change: Change,
    ups: Mapping[Address, frozenset[StepId]],
    downs: Mapping[Address, frozenset[StepId]],
    dependants: Mapping[Address, frozenset[Address]],
    create_first: frozenset[Address],
) -> frozenset[StepId]:
    address = change.address
    users = dependants.get(address, frozenset())
    waits = frozenset().union(*(downs.get(d, frozenset()) for d in users))
    if change.action is Action.DELETE or address in create_first:
        waits |= ups.get(address, frozenset())
        waits |= frozenset().union(*(ups.get(d, frozenset()) for d in users))
    return waits


def _uses(needs: Mapping[Address, frozenset[Address]], state: State) -> dict[Address, frozenset[Address]]:
    """What each address needs by the specs, and what its records, deposed ones included, were made with."""
    found = dict(needs)
    for key, record in state.records.items():
        found[key.address] = found.get(key.address, frozenset()) | record.depends_on
    return found


def _dependants(uses: Mapping[Address, frozenset[Address]]) -> dict[Address, frozenset[Address]]:
    """Who uses each address, directly or through others."""
    direct: dict[Address, set[Address]] = {}
    for address, needed in uses.items():
        for n in needed:
            direct.setdefault(n, set()).add(address)
    return {a: graph.closure(d, direct) for a, d in direct.items()}


def _create_first(
    changes: Mapping[Key, Change], desired: DesiredState, uses: Mapping[Address, frozenset[Address]]
) -> frozenset[Address]:
    """Every address whose replacement is made before the old one goes."""
    first = {a for a, r in desired.resources.items() if r.type.replace_order is ReplaceOrder.CREATE_FIRST}
    first |= {key.address for key, change in changes.items() if change.action is Action.DELETE}
    return graph.closure(first, uses)
