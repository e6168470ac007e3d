"""Follow a plan's steps; decide nothing. The intent is written before each call and the result after it, so that
whatever kills the process leaves a state from which the next apply converges (see docs/lifecycle.md)."""

from __future__ import annotations

import queue
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from edgespec.address import Address
from edgespec.apply import PARALLELISM
from edgespec.apply.schedule import Schedule
from edgespec.diagnostics import Diagnostic, Diagnostics, EdgespecError, error, some, warning
from edgespec.plan.events import ApplyResult, Event, OnEvent, Outcome, StepFinished, StepProgress, StepStarted
from edgespec.plan.model import Plan, StepId, StepKind
from edgespec.plan.settle import settled
from edgespec.providers.base import Progress, Provider, ProviderError, StoppedError
from edgespec.records import replace
from edgespec.resources.base import DesiredResource, Ref, Verdict
from edgespec.state.journal import Drop, Mutation, Put
from edgespec.state.model import Key, ResourceRecord, State, Status
from edgespec.state.working import WorkingState
from edgespec.stores.base import StoreError
from edgespec.threads import take
from edgespec.values import Inputs, Outputs, Value, is_known

THREAD: Final = "edgespec step"
"""The name of the threads in which steps run."""
_LISTED: Final = 8
"""Steps that are named when a run was told to stop."""
_NO_REASON: Final = Diagnostics()
_WELL: Final = frozenset({Outcome.DONE, Outcome.UNCHANGED})


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


def new_nonce() -> str:
    return secrets.token_hex(8)


def apply(
    plan: Plan,
    stored: State,
    providers: Mapping[str, Provider],
    store: Saver,
    on_event: OnEvent,
    *,
    parallelism: int = PARALLELISM,
    stop: threading.Event | None = None,
    nonce: Callable[[], str] = new_nonce,
) -> ApplyResult:
    """Run every step whose needs are met, up to `parallelism` at once. A failed step skips only what needs it. The
    caller holds the lock.

    Once `stop` is set, no step starts; those that run come to their end, or are given up where that is safe. An
    exception that is no EdgespecError, KeyboardInterrupt in this thread included, ends the run at once: steps that
    still run write nothing to state any more, and what they were about is there as an intent."""
    check_fresh(plan, stored)
    state = settled(plan)
    if not stored.same_records(state) or plan.steps:
        state = store.save(state)
    run = _Run(plan, providers, store, on_event, WorkingState(state), stop or threading.Event(), nonce)
    run.steps(parallelism)
    return ApplyResult(run.state.freeze(), run.outcomes, Diagnostics(tuple(run.found)), run.interrupted)


class _OverError(BaseException):
    """The run has ended while a step of it was still running: the step ends without a word."""


@dataclass(slots=True)
class _Run:
    plan: Plan
    providers: Mapping[str, Provider]
    store: Saver
    on_event: OnEvent
    state: WorkingState
    """What is written; only `_record` changes it."""
    stop: threading.Event
    nonce: Callable[[], str]
    outcomes: dict[StepId, Outcome] = field(default_factory=dict)
    found: list[Diagnostic] = field(default_factory=list)
    interrupted: bool = False
    broken: bool = False
    """State cannot be written any more."""
    deposed: dict[Address, Key] = field(default_factory=dict)
    """Where this run pushed the old object of a create-first replacement."""
    over: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held for a write of state, whose order is the order of the writes, and while an event is told."""

    @property
    def halted(self) -> bool:
        return self.broken or self.stop.is_set()

    def steps(self, parallelism: int) -> None:
        """Start steps as their needs are done, until none is left to start and none runs."""
        schedule = Schedule(self.plan.steps, parallelism)
        todo: queue.SimpleQueue[StepId | None] = queue.SimpleQueue()
        done: queue.SimpleQueue[tuple[StepId, Outcome | BaseException]] = queue.SimpleQueue()
        started = 0
        try:
            while True:
                for step in schedule.start() if not self.halted else ():
                    if started < schedule.running:
                        # Daemons: a run that is ended at once does not wait for an answer from the other side.
                        threading.Thread(target=self._work, args=(todo, done), name=THREAD, daemon=True).start()
                        started += 1
                    todo.put(step)
                if not schedule.running:
                    break
                step, outcome = take(done)
                if isinstance(outcome, BaseException):
                    raise outcome
                for skipped in schedule.finished(step, outcome):
                    if outcome is not Outcome.LEFT:
                        self._end(skipped, Outcome.SKIPPED)
        finally:
            with self.lock:
                self.over = True
            for _ in range(started):
                todo.put(None)
        self._leave()

    def _leave(self) -> None:
        """Say what a run that was told to stop leaves to the next."""
        left = [s.id for s in self.plan.steps if self.outcomes.get(s.id, Outcome.LEFT) is Outcome.LEFT]
        self.outcomes.update(dict.fromkeys(left, Outcome.LEFT))
        self.interrupted = bool(left) and not self.broken
        if left:
            listed = some([f"{s.kind} {s.key}" for s in left], _LISTED)
            detail = (
                f"What was done is in state. Left to do, {len(left)} of {len(self.plan.steps)} steps: {listed}. "
                "Run apply again: it goes on from here."
            )
            self.found.append(warning("ES309", "Stopped", detail))

    def _work(
        self,
        todo: queue.SimpleQueue[StepId | None],
        done: queue.SimpleQueue[tuple[StepId, Outcome | BaseException]],
    ) -> None:
        while (step := todo.get()) is not None:
            try:
                done.put((step, self._step(step)))
            except BaseException as e:  # noqa: BLE001  # it is raised in the thread that runs the steps
                done.put((step, e))

    def _step(self, step: StepId) -> Outcome:
        self._tell(StepStarted(step))
        try:
            outcome = self._call(step)
        except StoppedError:
            return self._end(step, Outcome.LEFT)
        except StoreError as e:
            self.broken = True  # nothing may be changed that cannot be written down
            return self._end(step, Outcome.FAILED, e.diagnostics)
        except EdgespecError as e:
            return self._end(step, Outcome.FAILED, e.diagnostics)
        return self._end(step, outcome)

    def _end(self, step: StepId, outcome: Outcome, why: Diagnostics = _NO_REASON) -> Outcome:
        with self.lock:
            self.outcomes[step] = outcome
            self.found += why
        record = self.state.records.get(step.key) if outcome in _WELL else None
        self._tell(StepFinished(step, outcome, record.outputs if record else None, why))
        return outcome

    def _tell(self, event: Event) -> None:
        with self.lock:
            if not self.over:
                self.on_event(event)

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
        record = ResourceRecord(
            address,
            _settled(inputs, {}),
            {},
            resource.needs,
            resource.owners,
            Status.CREATING,
            resource.protected,
            self.nonce(),
        )
        self._record(*aside, Put(record))
        try:
            outputs = self._provider(address).create(address, inputs, self._progress(step), record.nonce)
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
        record = ResourceRecord(
            address, found.inputs, found.outputs, resource.needs, resource.owners, protected=resource.protected
        )
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
        """Written first, true afterwards; one write after the other, whichever threads they come from."""
        with self.lock:
            if self.over:
                raise _OverError
            self.state.advance(self.store.record(*changes), changes)

    def _provider(self, address: Address) -> Provider:
        return self.providers[address.type]

    def _progress(self, step: StepId) -> Progress:
        def tell(message: str, fraction: float | None) -> None:
            if self.halted and fraction != 1.0:  # what is whole is written down
                raise StoppedError(step.key.address)
            self._tell(StepProgress(step, message, fraction))

        return tell


def _settled(inputs: Inputs, outputs: Outputs) -> Inputs:
    """What a record keeps of `inputs`: one that only the call could tell (a package's digest before it is fetched)
    is the output of the same name."""
    told = {k: outputs[k] for k, v in inputs.items() if not is_known(v) and k in outputs}
    return {k: v for k, v in inputs.items() if is_known(v)} | told
