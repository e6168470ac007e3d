"""Follow a plan's steps; decide nothing. The intent is written before each call and the result after it, so that
whatever kills the process leaves a state from which the next apply converges (see docs/lifecycle.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from edgespec.address import Address
from edgespec.diagnostics import Diagnostic, Diagnostics, EdgespecError, error
from edgespec.plan.events import ApplyResult, OnEvent, Outcome, StepFinished, StepProgress, StepStarted
from edgespec.plan.model import Plan, Step, StepId, StepKind
from edgespec.providers.base import Progress, Provider, ProviderError
from edgespec.resources.base import DesiredResource, Ref, Verdict
from edgespec.state.model import Key, ResourceRecord, State, Status
from edgespec.values import Inputs, Value


class Saver(Protocol):
    def save(self, state: State) -> State:
        """Write `state` atomically; returns it with the serial that it got."""


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
    run = _Run(plan, providers, store, on_event, state)
    for step in plan.steps:
        run.step(step)
    return ApplyResult(run.state, run.outcomes, Diagnostics(tuple(run.found)))


def _with_owners(state: State, plan: Plan) -> State:
    """Records know the specs that need them now: a delete of one spec must leave what another shares."""
    for address, resource in plan.desired.resources.items():
        record = state.get(address)
        if record is not None:
            state = state.put(replace(record, owners=resource.owners, depends_on=resource.needs))
    return state


@dataclass(slots=True)
class _Run:
    plan: Plan
    providers: Mapping[str, Provider]
    store: Saver
    on_event: OnEvent
    state: State
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
        if current is not None:  # a create-first replacement
            if resource.type.diff(current.inputs, inputs).verdict is Verdict.SAME:
                self.deposed[address] = step.key  # the build gave what is already there: nothing to replace
                return Outcome.UNCHANGED
            before = set(self.state.deposed())
            self.state = self.state.depose(address)
            self.deposed[address] = next(k for k in self.state.deposed() if k not in before)
        record = ResourceRecord(address, inputs, {}, resource.needs, resource.owners, Status.CREATING)
        self._save(record)
        try:
            outputs = self._provider(address).create(address, inputs, self._progress(step))
        except ProviderError as e:
            if e.nothing_done:
                self._withdraw(address)
            raise
        self._save(replace(record, outputs=outputs, status=Status.READY))
        return Outcome.DONE

    def _withdraw(self, address: Address) -> None:
        """Nothing was made: forget the intent, and put back what was pushed aside for it."""
        state = self.state.drop(Key(address))
        key = self.deposed.pop(address, None)
        if key is not None and key.deposed:
            state = state.put(state.records[key]).drop(key)
        self.state = self.store.save(state)

    def _adopt(self, step: StepId, resource: DesiredResource, inputs: Inputs) -> Outcome:
        address = step.key.address
        found = self._provider(address).find(address, inputs)
        if found is None:
            return self._create(step, resource, inputs)
        record = ResourceRecord(address, found.inputs, found.outputs, resource.needs, resource.owners)
        self._save(record)
        if resource.type.diff(found.inputs, inputs).verdict is Verdict.SAME:
            return Outcome.DONE
        return self._update(step, resource, inputs)

    def _update(self, step: StepId, resource: DesiredResource, inputs: Inputs) -> Outcome:
        address = step.key.address
        record = self.state.records[Key(address)]
        if record.status is Status.READY and resource.type.diff(record.inputs, inputs).verdict is Verdict.SAME:
            return Outcome.UNCHANGED
        pending = replace(record, status=Status.UPDATING, depends_on=resource.needs, owners=resource.owners)
        self._save(pending)
        try:
            outputs = self._provider(address).update(record, inputs, self._progress(step))
        except ProviderError as e:
            if e.nothing_done:
                self._save(record)
            raise
        self._save(replace(pending, inputs=inputs, outputs=outputs, status=Status.READY))
        return Outcome.DONE

    def _delete(self, step: StepId) -> Outcome:
        key = self.deposed.get(step.key.address, step.key) if not step.key.deposed else step.key
        replaced = StepId(StepKind.CREATE, step.key)
        if self.outcomes.get(replaced) is Outcome.UNCHANGED:
            return Outcome.UNCHANGED
        record = self.state.records[key]
        self.state = self.store.save(self.state.put(replace(record, status=Status.DELETING), key.deposed))
        self._provider(key.address).delete(record, self.state.others(key))
        self.state = self.store.save(self.state.drop(key))
        return Outcome.DONE

    def _save(self, record: ResourceRecord) -> None:
        self.state = self.store.save(self.state.put(record))

    def _provider(self, address: Address) -> Provider:
        return self.providers[address.type]

    def _progress(self, step: StepId) -> Progress:
        return lambda message, fraction: self.on_event(StepProgress(step, message, fraction))
