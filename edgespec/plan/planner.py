"""Pure: (desired, previous, refreshed) -> Plan. No clock, no network, no disk."""

from __future__ import annotations

from collections.abc import Mapping

from edgespec import graph
from edgespec.address import Address
from edgespec.diagnostics import Checked
from edgespec.plan.model import Action, Change, Plan, Reason, Refreshed
from edgespec.plan.steps import make_steps
from edgespec.resources.base import DesiredResource, DesiredState, Ref, Verdict
from edgespec.state.model import Key, ResourceRecord, State, Status
from edgespec.values import UNKNOWN, Inputs, Outputs, Value


def make_plan(
    desired: DesiredState,
    previous: State,
    refreshed: Refreshed,
    *,
    spec_digest: str,
    only: frozenset[str] | None = None,
    destroy: bool = False,
) -> Checked[Plan]:
    """What has to be done so that live becomes desired.

    `only` keeps the changes to what those specs own and all that it needs; other resources are left as they are.
    With `destroy`, `desired` is empty and the reason says so.
    """
    ordered = graph.order({a: r.needs for a, r in desired.resources.items()})
    if ordered.value is None:
        return Checked(None, ordered.diagnostics)
    chosen = _chosen(desired, only)
    changes: dict[Key, Change] = {}
    outputs: dict[Address, Outputs] = {}
    for address in ordered.value:
        resource = desired.resources[address]
        change, outputs[address] = _change(resource, previous, refreshed, outputs)
        if address in chosen:
            changes[change.key] = change
        elif (record := refreshed.state.get(address)) is not None:
            outputs[address] = record.outputs
    changes.update(_removals(desired, refreshed.state, only, chosen, destroy=destroy))
    steps = make_steps(changes, desired, refreshed.state)
    if steps.value is None:
        return Checked(None, steps.diagnostics)
    return Checked(Plan(spec_digest, refreshed.state, desired, tuple(changes.values()), steps.value))


def _chosen(desired: DesiredState, only: frozenset[str] | None) -> frozenset[Address]:
    if only is None:
        return frozenset(desired.resources)
    owned = [a for a, r in desired.resources.items() if only & set(r.owners)]
    return graph.closure(owned, {a: r.needs for a, r in desired.resources.items()})


def _change(
    resource: DesiredResource, previous: State, refreshed: Refreshed, known: Mapping[Address, Outputs]
) -> tuple[Change, Outputs]:
    """The change of one resource, and the outputs that its dependants may count on."""
    address, type_ = resource.address, resource.type

    def resolver(ref: Ref) -> Value:
        return known[ref.address].get(ref.output, UNKNOWN)

    after: Inputs = resource.resolve(resolver)
    fresh = {**type_.known_outputs(after), **resource.outputs}
    record, before = refreshed.state.get(address), previous.get(address)
    key = Key(address)
    if record is None:
        found = refreshed.unmanaged.get(address)
        if found is not None:
            fields = type_.diff(found[0], after).fields
            return Change(key, Action.ADOPT, found[0], after, fields, Reason.EXISTS, resource.owners), {
                **found[1],
                **fresh,
            }
        existed = before is not None and before.status in (Status.READY, Status.UPDATING)
        reason = Reason.MISSING_REMOTELY if existed else Reason.NONE
        return Change(key, Action.CREATE, None, after, (), reason, resource.owners), fresh
    diff = type_.diff(record.inputs, after)
    if diff.verdict is Verdict.REPLACE:
        return Change(
            key, Action.REPLACE, record.inputs, after, diff.fields, Reason.CANNOT_UPDATE, resource.owners
        ), fresh
    if diff.verdict is Verdict.SAME and record.status is Status.READY:
        return Change(key, Action.NOOP, record.inputs, after, (), Reason.NONE, resource.owners), record.outputs
    reason = _update_reason(record, before)
    stable = {k: v for k, v in record.outputs.items() if k in type_.stable_outputs}
    return Change(key, Action.UPDATE, record.inputs, after, diff.fields, reason, resource.owners), {**stable, **fresh}


def _update_reason(record: ResourceRecord, before: ResourceRecord | None) -> Reason:
    if before is None or before.status is not Status.READY:
        return Reason.INTERRUPTED if record.status is not Status.READY else Reason.NONE
    incomplete = record.status is not Status.READY
    return Reason.DRIFTED if incomplete or record.inputs != before.inputs else Reason.NONE


def _removals(
    desired: DesiredState,
    state: State,
    only: frozenset[str] | None,
    chosen: frozenset[Address],
    *,
    destroy: bool,
) -> dict[Key, Change]:
    """Records that no spec asks for any more, and what earlier replacements pushed aside."""
    unwanted = frozenset(k for k in state.records if k.deposed or k.address not in desired.resources)
    if only is not None:
        owned = frozenset(k for k in unwanted if only & set(state.records[k].owners))
        unwanted = owned - _still_used(desired, state, owned, chosen)
    gone = Reason.DESTROY if destroy else Reason.NOT_IN_SPEC
    found: dict[Key, Change] = {}
    for key in sorted(unwanted):
        record = state.records[key]
        reason = Reason.DEPOSED if key.deposed else gone
        found[key] = Change(key, Action.DELETE, record.inputs, None, (), reason, record.owners)
    return found


def _still_used(
    desired: DesiredState, state: State, unwanted: frozenset[Key], chosen: frozenset[Address]
) -> frozenset[Key]:
    """What the other records go on using: those not chosen live on what they were made with, whatever specs say."""
    uses: dict[Key, frozenset[Key]] = {}
    for key, record in state.records.items():
        now = desired.resources[key.address].needs if not key.deposed and key.address in chosen else record.depends_on
        uses[key] = frozenset(Key(a) for a in now)
    return graph.closure((k for k in state.records if k not in unwanted), uses)
