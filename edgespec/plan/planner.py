"""Pure: (desired, previous, refreshed) -> Plan. No clock, no network, no disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from edgespec import graph
from edgespec.address import Address
from edgespec.diagnostics import Checked, Diagnostic, Diagnostics, error
from edgespec.plan import selection as select
from edgespec.plan.drift import INCOMPLETE, drift_of
from edgespec.plan.model import EVERYTHING, Action, Change, Plan, Reason, Refreshed, Request
from edgespec.plan.selection import Selection
from edgespec.plan.steps import make_steps
from edgespec.records import replace
from edgespec.resources.base import (
    DesiredResource,
    DesiredState,
    FieldChange,
    Ref,
    ResourceType,
    Verdict,
    references,
)
from edgespec.spec.validate import suggest
from edgespec.state.model import Key, ResourceRecord, State, Status
from edgespec.values import UNKNOWN, Inputs, Outputs, Value


def make_plan(
    desired: DesiredState,
    previous: State,
    refreshed: Refreshed,
    *,
    spec_digest: str,
    request: Request = EVERYTHING,
    moved: Mapping[Address, Address] | None = None,
) -> Checked[Plan]:
    """What has to be done so that live becomes desired, or the part of it that is asked for.

    `previous` and `refreshed` have what `moved` (new address -> old) moves at its new addresses. With
    `request.destroy`, `desired` does not have what is to go."""
    found = _unknown_addresses(request, desired, refreshed.state)
    if found:
        return Checked(None, Diagnostics(found))
    drift = drift_of(previous, refreshed.state)
    if request.refresh_only:
        return Checked(Plan(spec_digest, refreshed.state, DesiredState(), (), (), request=request, drift=drift))
    ordered = graph.order({a: r.needs for a, r in desired.resources.items()})
    if ordered.value is None:
        return Checked(None, ordered.diagnostics)
    work = _Work(desired, previous, refreshed, request, moved or {}, ordered.value)
    chosen, part = select.first(desired, request), _Part()
    while True:
        part = work.part(chosen)
        more = select.grown(chosen, request, part.changes, desired, refreshed.state)
        more = select.shrunk(more, part.changes, part.withheld, desired, refreshed.state)
        if more == chosen:
            break
        chosen = more
    withheld = _left_out(work.part(replace(chosen, blocked=frozenset())), part) if chosen.blocked else ()
    steps = make_steps(part.changes, desired, refreshed.state)
    if steps.value is None:
        return Checked(None, steps.diagnostics)
    return Checked(
        Plan(
            spec_digest,
            refreshed.state,
            desired,
            tuple(part.changes.values()),
            steps.value,
            request=request,
            drift=drift,
            moved=work.moved,
            protections=_protections(part, refreshed.state),
            withheld=withheld,
        )
    )


def _unknown_addresses(request: Request, desired: DesiredState, state: State) -> tuple[Diagnostic, ...]:
    known = {str(a): a for a in (*desired.resources, *(k.address for k in state.records))}
    found = []
    for option, addresses in (("--target", request.targets), ("--exclude", request.excludes)):
        for address in addresses:
            if str(address) not in known:
                detail = f"{option} {address}: neither the specs nor state have it.{suggest(str(address), known)}"
                found.append(error("ES223", "Unknown address", detail))
    return tuple(found)


class _Part(Struct):
    """The changes of one selection, and those that an exclusion keeps from being made."""

    changes: dict[Key, Change] = field(default_factory=dict)
    withheld: dict[Address, Change] = field(default_factory=dict)


def _left_out(whole: _Part, part: _Part) -> tuple[Address, ...]:
    """What would change without the exclusions, and does not."""
    wanted = {k.address for k, c in whole.changes.items() if c.action is not Action.NOOP}
    return tuple(sorted(wanted - {k.address for k, c in part.changes.items() if c.action is not Action.NOOP}))


def _protections(part: _Part, state: State) -> dict[Address, bool]:
    """Where the specs of what exists say otherwise than state."""
    found: dict[Address, bool] = {}
    for key, change in part.changes.items():
        record = state.records.get(key)
        if record is not None and change.action is not Action.DELETE and record.protected != change.protected:
            found[key.address] = change.protected
    return found


class _Work(Struct, frozen=True):
    desired: DesiredState
    previous: State
    refreshed: Refreshed
    request: Request
    moved: Mapping[Address, Address]
    order: tuple[Address, ...]

    def part(self, chosen: Selection) -> _Part:
        part = _Part()
        outputs: dict[Address, Outputs] = {}
        for address in self.order:
            change, outputs[address] = self._change(self.desired.resources[address], outputs)
            if chosen.takes(address):
                part.changes[change.key] = change
                continue
            if (record := self.refreshed.state.get(address)) is not None:
                outputs[address] = record.outputs
            if address in chosen.blocked and change.action is not Action.NOOP:
                part.withheld[address] = change
        for key, change in self._removals(chosen).items():
            if key.address in chosen.blocked:
                part.withheld[key.address] = change
            else:
                part.changes[key] = change
        return part

    def _change(self, resource: DesiredResource, known: Mapping[Address, Outputs]) -> tuple[Change, Outputs]:
        """The change of one resource, and the outputs that its dependants may count on."""
        address, type_ = resource.address, resource.type

        def resolver(ref: Ref) -> Value:
            return known[ref.address].get(ref.output, UNKNOWN)

        after: Inputs = resource.resolve(resolver)
        fresh = {**type_.known_outputs(after), **resource.outputs}
        record, before = self.refreshed.state.get(address), self.previous.get(address)
        base = Change(
            Key(address),
            Action.NOOP,
            record.inputs if record is not None else None,
            after,
            owners=resource.owners,
            protected=resource.protected,
            moved_from=self.moved.get(address),
        )
        if record is None:
            return self._new(base, resource, before, fresh)
        diff = type_.diff(record.inputs, after)
        fields = tuple(_sourced(diff.fields, resource))
        if diff.verdict is Verdict.REPLACE:
            return replace(base, action=Action.REPLACE, fields=fields, reason=Reason.CANNOT_UPDATE), fresh
        if diff.verdict is Verdict.SAME and record.status is Status.READY:
            if base.moved_from is not None:
                return replace(base, action=Action.MOVE, reason=Reason.RENAMED), record.outputs
            return base, record.outputs
        reason = _update_reason(type_, record, before)
        if not fields:  # a plan never says that something changed without saying what
            found = INCOMPLETE if reason is Reason.DRIFTED else record.status.value
            fields = (FieldChange("status", found, Status.READY.value),)
        stable = {k: v for k, v in record.outputs.items() if k in type_.stable_outputs}
        return replace(base, action=Action.UPDATE, fields=fields, reason=reason), {**stable, **fresh}

    def _new(
        self, base: Change, resource: DesiredResource, before: ResourceRecord | None, fresh: Outputs
    ) -> tuple[Change, Outputs]:
        found = self.refreshed.unmanaged.get(resource.address)
        if found is not None and base.after is not None:
            fields = tuple(_sourced(resource.type.diff(found[0], base.after).fields, resource))
            adopted = replace(base, action=Action.ADOPT, before=found[0], fields=fields, reason=Reason.EXISTS)
            return adopted, {**found[1], **fresh}
        existed = before is not None and before.status in (Status.READY, Status.UPDATING)
        return replace(base, action=Action.CREATE, reason=Reason.MISSING_REMOTELY if existed else Reason.NEW), fresh

    def _removals(self, chosen: Selection) -> dict[Key, Change]:
        """Records that no spec asks for any more, and what earlier replacements pushed aside."""
        state, desired, request = self.refreshed.state, self.desired, self.request
        unwanted = frozenset(k for k in state.records if k.deposed or k.address not in desired.resources)
        if chosen.chosen is not None:
            named = set(request.names)
            owned = frozenset(k for k in unwanted if not named.isdisjoint(state.records[k].owners))
            targeted = frozenset(k for k in unwanted if k.address in chosen.chosen)
            unwanted = (owned - _still_used(desired, state, owned, chosen)) | (targeted if request.targets else set())
        gone = Reason.DESTROY if request.destroy else Reason.NOT_IN_SPEC
        found: dict[Key, Change] = {}
        for key in sorted(unwanted):
            record = state.records[key]
            found[key] = Change(
                key,
                Action.DELETE,
                record.inputs,
                None,
                reason=Reason.DEPOSED if key.deposed else gone,
                owners=record.owners,
                protected=record.protected and not key.deposed,
                moved_from=self.moved.get(key.address),
            )
        return found


def _sourced(fields: tuple[FieldChange, ...], resource: DesiredResource) -> Iterator[FieldChange]:
    """Fields with the other resource's output that gives them, where there is one."""
    for found in fields:
        path = found.path.split(".")
        value: object = resource.inputs
        while path and isinstance(value, Mapping) and path[0] in value:
            value = value[path.pop(0)]
        refs = {f"{r.address}.{r.output}" for r in references(value)} if not path else set()
        yield replace(found, source=refs.pop()) if len(refs) == 1 else found


def _update_reason(type_: ResourceType, record: ResourceRecord, before: ResourceRecord | None) -> Reason:
    if before is None or before.status is not Status.READY:
        return Reason.INTERRUPTED if record.status is not Status.READY else Reason.CHANGED
    if record.status is not Status.READY:
        return Reason.DRIFTED
    return Reason.CHANGED if type_.diff(before.inputs, record.inputs).verdict is Verdict.SAME else Reason.DRIFTED


def _still_used(desired: DesiredState, state: State, unwanted: frozenset[Key], chosen: Selection) -> frozenset[Key]:
    """What the other records go on using: those not chosen live on what they were made with, whatever specs say."""
    uses: dict[Key, frozenset[Key]] = {}
    for key, record in state.records.items():
        moves = not key.deposed and key.address in desired.resources and chosen.takes(key.address)
        now = desired.resources[key.address].needs if moves else record.depends_on
        uses[key] = frozenset(Key(a) for a in now)
    return graph.closure((k for k in state.records if k not in unwanted), uses)
