"""Follow a plan's steps; decide nothing. The intent is written before each call and the result after it, so that
whatever kills the process leaves a state from which the next apply converges (see docs/lifecycle.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from edgespec.address import Address
from edgespec.diagnostics import Diagnostic, Diagnostics, EdgespecError, error
from edgespec.plan.events import ApplyResult, OnEvent, Outcome, StepFinished, StepProgress, StepStarted
from edgespec.plan.model import Action, Plan, Step, StepId, StepKind
from edgespec.providers.base import Progress, Provider, ProviderError
from edgespec.resources.base import DesiredResource, Ref, Verdict
from edgespec.state.journal import Drop, Mutation, Put
from edgespec.state.model import Key, ResourceRecord, State, Status
from edgespec.state.working import WorkingState
from edgespec.values import Inputs, Outputs, Value, is_known


class Saver(Protocol):
    """What the applier asks of a StateStore."""

    def save(self, state: State) -> State:
        """Write `state` atomically; returns it with the serial that it got."""

    def record(self, *changes: Mutation) -> int:
        """Write these changes of what was saved, together; returns the serial that they got."""


def check_fresh(plan: Plan, stored: State) -> None:
    """Raise unless state is what the plan was made from; before any side effect."""
    base = plan.refreshed
    if (stored.lineage, stored.serial) != (base.lineage, base.serial):
        detail = f"State is at serial {stored.serial}; the plan was made at {base.serial}. Run plan again."
        raise EdgespecError(error("ES302", "The plan is stale", detail))


def apply(plan: Plan, stored: State, providers: Mapping[str, Provider], store: Saver, on_event: OnEvent) -> ApplyResult:
    """Run every step whose needs are met. A failed step skips only what needs it. The caller holds the lock."""
    check_fresh(plan, stored)
    state = plan.refreshed
    if not stored.same_records(state) or plan.steps:
        state = store.save(_with_owners(state, plan))
    run = _Run(plan, providers, store, on_event, WorkingState(state))
    for step in plan.steps:
        run.step(step)
    return ApplyResult(run.state.freeze(), run.outcomes, Diagnostics(tuple(run.found)))


def _with_owners(state: State, plan: Plan) -> State:
    """Records know the specs that need them now: a delete of one spec must leave what another shares.

    What a record was made with changes only when it is found, or made, to be what the specs ask for."""
    right = {c.address for c in plan.changes if c.action is Action.NOOP}
    records = dict(state.records)
    for address, resource in plan.desired.resources.items():
        record = state.get(address)
        if record is not None:
            depends_on = resource.needs if address in right else record.depends_on
            records[Key(address)] = replace(record, owners=resource.owners, depends_on=depends_on)
    return replace(state, records=records)


@dataclass(slots=True)
class _Run:
    plan: Plan
    providers: Mapping[str, Provider]
    store: Saver
    on_event: OnEvent
    state: WorkingState
    """What is written; only `_record` changes it."""
    outcomes: dict[StepId, Outcome] = field(default_factory=dict)
    found: list[Diagnostic] = field(default_factory=list)
    deposed: dict[Address, Key] = field(default_factory=dict)
    """Where this run pushed the old object of a create-first replacement."""

    def step(self, step: Step) -> None:
        if any(self.outcomes.get(n) in (Outcome.FAILED, Outcome.SKIPPED) for n in step.needs):
            self.outcomes[step.id] = Outcome.SKIPPED
            self.on_event(StepFinished(step.id, Outcome.SKIPPED))
            return
        self.on_event(StepStarted(step.id))
        try:
            outcome = self._call(step.id)
        except EdgespecError as e:
            outcome = Outcome.FAILED
            self.found += e.diagnostics
            self.outcomes[step.id] = outcome
            self.on_event(StepFinished(step.id, outcome, None, e.diagnostics))
            return
        self.outcomes[step.id] = outcome
        record = self.state.records.get(step.id.key)
        self.on_event(StepFinished(step.id, outcome, record.outputs if record else None))

    def _call(self, step: StepId) -> Outcome:
        if step.kind is StepKind.DELETE:
            return self._delete(step)
        resource = self.plan.desired.resources[step.key.address]
        inputs = resource.resolve(self._resolve)
        if step.kind is StepKind.CREATE:
            return self._create(step, resource, inputs)
        if step.kind is StepKind.ADOPT:
            return self._adopt(step, resource, inputs)
        return self._update(step, resource, inputs)

    def _resolve(self, ref: Ref) -> Value:
        record = self.state.get(ref.address)
        if record is None or ref.output not in record.outputs:
            detail = f"{ref.address} has no `{ref.output}`. This is a bug in edgespec."
            raise EdgespecError(error("ES303", "An input is not known", detail))
        return record.outputs[ref.output]

    def _create(self, step: StepId, resource: DesiredResource, inputs: Inputs) -> Outcome:
        address = step.key.address
        current = self.state.get(address)
        aside: list[Mutation] = []
        if current is not None:  # a create-first replacement
            if resource.type.diff(current.inputs, inputs).verdict is Verdict.SAME:
                return self._update(step, resource, inputs)  # the build gave what is there: nothing to replace
            self.deposed[address] = self.state.free_key(address)
            aside = [Put(current, self.deposed[address].deposed)]
        record = ResourceRecord(address, _settled(inputs, {}), {}, resource.needs, resource.owners, Status.CREATING)
        self._record(*aside, Put(record))
        try:
            outputs = self._provider(address).create(address, inputs, self._progress(step))
        except ProviderError as e:
            if e.nothing_done:
                self._withdraw(address)
            raise
        self._record(Put(replace(record, inputs=_settled(inputs, outputs), outputs=outputs, status=Status.READY)))
        return Outcome.DONE

    def _withdraw(self, address: Address) -> None:
        """Nothing was made: forget the intent, and put back what was pushed aside for it."""
        key = self.deposed.pop(address, None)
        if key is None:
            self._record(Drop(Key(address)))
        else:
            self._record(Put(self.state.records[key]), Drop(key))

    def _adopt(self, step: StepId, resource: DesiredResource, inputs: Inputs) -> Outcome:
        address = step.key.address
        found = self._provider(address).find(address, inputs)
        if found is None:
            return self._create(step, resource, inputs)
        record = ResourceRecord(address, found.inputs, found.outputs, resource.needs, resource.owners)
        self._record(Put(record))
        if resource.type.diff(found.inputs, inputs).verdict is Verdict.SAME:
            return Outcome.DONE
        return self._update(step, resource, inputs)

    def _update(self, step: StepId, resource: DesiredResource, inputs: Inputs) -> Outcome:
        address = step.key.address
        record = self.state.records[Key(address)]
        right = replace(record, depends_on=resource.needs, owners=resource.owners)
        if record.status is Status.READY and resource.type.diff(record.inputs, inputs).verdict is Verdict.SAME:
            if right != record:  # made with what has another address now
                self._record(Put(right))
            return Outcome.UNCHANGED
        pending = replace(right, status=Status.UPDATING, depends_on=record.depends_on | resource.needs)
        self._record(Put(pending))
        try:
            outputs = self._provider(address).update(record, inputs, self._progress(step))
        except ProviderError as e:
            if e.nothing_done:
                self._record(Put(record))
            raise
        self._record(Put(replace(right, inputs=_settled(inputs, outputs), outputs=outputs, status=Status.READY)))
        return Outcome.DONE

    def _delete(self, step: StepId) -> Outcome:
        key = step.key
        if StepId(StepKind.CREATE, key) in self.outcomes:  # create-first: what was pushed aside goes, if anything was
            if key.address not in self.deposed:
                return Outcome.UNCHANGED
            key = self.deposed[key.address]
        record = self.state.records[key]
        self._record(Put(replace(record, status=Status.DELETING), key.deposed))
        self._provider(key.address).delete(record, self.state.others(key))
        self._record(Drop(key))
        return Outcome.DONE

    def _record(self, *changes: Mutation) -> None:
        """Written first, true afterwards."""
        self.state.advance(self.store.record(*changes), changes)

    def _provider(self, address: Address) -> Provider:
        return self.providers[address.type]

    def _progress(self, step: StepId) -> Progress:
        return lambda message, fraction: self.on_event(StepProgress(step, message, fraction))


def _settled(inputs: Inputs, outputs: Outputs) -> Inputs:
    """What a record keeps of `inputs`: one that only the call could tell (a package's digest before it is fetched)
    is the output of the same name."""
    told = {k: outputs[k] for k, v in inputs.items() if not is_known(v) and k in outputs}
    return {k: v for k, v in inputs.items() if is_known(v)} | told
