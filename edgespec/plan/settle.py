"""What an apply writes to state before its first step: what is live, and what records must know of the specs."""

from __future__ import annotations

from edgespec.plan.model import Action, Plan
from edgespec.records import replace
from edgespec.state.model import Key, State


def settled(plan: Plan) -> State:
    """Records know the specs that need them now: a delete of one spec must leave what another shares.

    What a record was made with changes only when it is found, or made, to be what the specs ask for; its protection
    changes as the plan says."""
    right = {c.address for c in plan.changes if c.action in (Action.NOOP, Action.MOVE)}
    records = dict(plan.refreshed.records)
    for address, resource in plan.desired.resources.items():
        record = records.get(Key(address))
        if record is not None:
            records[Key(address)] = replace(
                record,
                owners=resource.owners,
                depends_on=resource.needs if address in right else record.depends_on,
                protected=plan.protections.get(address, record.protected),
            )
    return replace(plan.refreshed, records=records)
