"""The randomised test of issue 5: specs come and go, things change behind the back of state, calls fail and processes
die. After each of it the next undisturbed apply makes the account what the specs ask for: nothing orphaned, nothing
twice, nothing lost, and the plan after it is empty."""

from __future__ import annotations

import contextlib
import functools
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from edgespec import operations
from edgespec.operations import Applied
from edgespec.plan.model import Action
from edgespec.providers.cloudflare.account import Account
from edgespec.session import current_state
from edgespec.state.model import Status
from tests.faults.ground import CACHES, METHODS, NAMES, QUALITIES, REGIONS, Ground, Wanted, archived, inventory
from tests.faults.injector import Crash, Fault, Injector
from tests.world import join_steps

wanteds = st.tuples(*(st.integers(0, len(values) - 1) for values in (REGIONS, CACHES, METHODS, QUALITIES)))


@dataclass
class Figures:
    """What a run of the machine did, for the report."""

    runs: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    checks: int = 0
    violations: list[str] = field(default_factory=list)


def told(event: Callable[..., None]) -> Callable[..., None]:
    """What is violated is kept with all that led to it: with threads, the same history may end otherwise next time."""

    @functools.wraps(event)
    def wrapped(self: Machine, **drawn: Any) -> None:
        self.history.append(f"{event.__name__}({', '.join(f'{k}={v!r}' for k, v in drawn.items())})")
        try:
            event(self, **drawn)
        except Exception:
            self.figures.violations.append("\n".join([*self.history, traceback.format_exc()]))
            raise

    return wrapped


class Machine(RuleBasedStateMachine):
    """Subclasses give it its ground, its injector and where to count."""

    ground: Ground
    injector: Injector
    figures: Figures
    undisturbed: dict[Wanted, dict[str, Any]]

    def __init__(self) -> None:
        super().__init__()
        self.history: list[str] = []

    @initialize(wanted=st.dictionaries(st.sampled_from(NAMES), wanteds, min_size=1), applied=st.booleans())
    @told
    def begin(self, wanted: dict[str, Wanted], applied: bool) -> None:
        self.figures.runs += 1
        self.ground.write(wanted)
        if applied:
            self.check()

    @rule(name=st.sampled_from(NAMES), wanted=wanteds)
    @told
    def write(self, name: str, wanted: Wanted) -> None:
        self.figures.steps["a spec written"] += 1
        self.ground.write({**self.ground.wanted, name: wanted})

    @precondition(lambda self: self.ground.wanted)
    @rule(number=st.integers(0, 1))
    @told
    def remove(self, number: int) -> None:
        self.figures.steps["a spec removed"] += 1
        names = sorted(self.ground.wanted)
        kept = {n: w for n, w in self.ground.wanted.items() if n != names[number % len(names)]}
        self.ground.write(kept)

    @rule(
        changed=st.none() | st.tuples(st.sampled_from(NAMES), wanteds),
        fault=st.sampled_from(Fault),
        first=st.integers(0, 20) | st.integers(0, 90),
        length=st.sampled_from([1, 1, 2, 6, 100]),
        parallelism=st.sampled_from([1, 2, 8]),
        destroy=st.sampled_from([False, False, False, False, True]),
        again=st.booleans(),
    )
    @told
    def apply_with_a_fault(
        self,
        changed: tuple[str, Wanted] | None,
        fault: Fault,
        first: int,
        length: int,
        parallelism: int,
        destroy: bool,
        again: bool,
    ) -> None:
        """`again`: before it is made good, something else happens."""
        self.figures.steps["an apply with a fault"] += 1
        if changed is not None:
            self.ground.write({**self.ground.wanted, changed[0]: changed[1]})
        self.injector.arm(fault, first, length)
        try:
            applied = self._apply(parallelism=parallelism, destroy=destroy)
        except (Crash, KeyboardInterrupt) as e:
            join_steps()
            self._ended("killed" if isinstance(e, Crash) else "interrupted before the first step")
        except operations.EdgespecError as e:
            self._ended(f"refused: {', '.join(sorted({d.code for d in e.diagnostics}))}")
        else:
            self._count(applied)
        finally:
            self.injector.disarm()
        if not again:
            self.check()

    @precondition(lambda self: self.ground.wanted)
    @rule(number=st.integers(0, 10_000), again=st.booleans())
    @told
    def somebody_else_changes_something(self, number: int, again: bool) -> None:
        self.figures.steps["a change behind its back"] += 1
        with contextlib.closing(operations.connect(self.ground.project.session())) as account:
            state = current_state(self.ground.project.session())
            ids = {str(r.outputs.get("id")) for r in (state.records.values() if state is not None else ())}
            self.history.append(f"    {disturb(account, self.ground.project.name, number, ids)}")
        if not again:
            self.check()

    @told
    def teardown(self) -> None:
        self.injector.disarm()
        self.check()
        self.ground.write({})
        self.check()

    def check(self) -> None:
        """The next apply, undisturbed, makes everything good."""
        self.figures.checks += 1
        applied = self._apply()
        failed = [] if applied.result is None else [str(d) for d in applied.result.diagnostics]
        assert not failed, failed
        planned = self.ground.project.plan(destroy=not self.ground.wanted)
        assert [str(c.key) for c in planned.plan.changes if c.action is not Action.NOOP] == []
        found = inventory(self.ground.project)
        tags = found.pop("tags")
        assert all(len(set(t)) == len(t) for t in tags.values()), f"a version was uploaded twice: {tags}"
        for place, kept in archived(self.ground.project).items():
            assert kept <= found["objects"][place]
            found["objects"][place] -= kept
        assert found == self._expected()
        self._check_state()

    def _check_state(self) -> None:
        state = current_state(self.ground.project.session())
        records = state.records if state is not None else {}
        assert not [k for k in records if k.deposed]
        assert all(r.status is Status.READY for r in records.values())
        if not self.ground.wanted:
            assert not records

    def _apply(self, *, destroy: bool = False, **options: Any) -> Applied:
        destroy = destroy or not self.ground.wanted
        return self.ground.project.apply(adopt=True, allow_destroy=True, destroy=destroy, **options)

    def _count(self, applied: Applied) -> None:
        if applied.result is None:
            self._ended("nothing to do")
            return
        self.figures.outcomes.update(o.value for o in applied.result.outcomes.values())
        failed = applied.result.diagnostics.has_errors
        self._ended("interrupted" if applied.result.interrupted else "failed" if failed else "done")

    def _ended(self, how: str) -> None:
        self.figures.ended[how] += 1
        self.history.append(f"    {how}")

    def _expected(self) -> dict[str, Any]:
        """The union of what each spec alone leaves: buckets and namespaces are shared."""
        whole: dict[str, Any] = {"objects": {}, "pinned": {}, "served": {}, "open": {}}
        for name, wanted in self.ground.wanted.items():
            if wanted not in self.undisturbed:
                self.undisturbed[wanted] = self.ground.undisturbed(wanted)
            alone = self.undisturbed[wanted]
            for part in ("objects", "pinned"):
                for place, keys in alone[part].items():
                    whole[part][place] = whole[part].get(place, frozenset()) | keys
            for part in ("served", "open"):
                whole[part][name] = alone[part][NAMES[0]]
        return whole


def disturb(account: Account, project: str, number: int, ids: Set[str]) -> str:
    """Remove, close or change one of the things that exist; says which. A namespace whose id never came to be recorded
    is not renamed: it has no other mark, so that nobody could find it again."""
    doings = dict(_possible(account, f"{project}-local-", ids))
    if not doings:
        return "nothing is there"
    what = sorted(doings)[number % len(doings)]
    doings[what]()
    return what


def _possible(account: Account, mine: str, ids: Set[str]) -> Iterator[tuple[str, Callable[[], object]]]:
    live = operations.Live(account)
    kv, workers = account.sdk.kv.namespaces, account.sdk.workers.scripts
    for place in ("default", "eu"):
        for bucket in (b for b in live.buckets(place) if b.startswith(mine)):
            s3 = account.s3(place)
            for sha in live.objects(bucket, place) or ():
                at = {"Bucket": bucket, "Key": f"artifacts/{sha}"}
                yield f"object {place}/{bucket}/{sha} deleted", partial(s3.delete_object, **at)
                yield f"object {place}/{bucket}/{sha} cut", partial(s3.put_object, Body=b"x", **at)
    for id_ in (i for i, t in live.namespaces().items() if t.startswith(mine)):
        if id_ in ids:
            yield "namespace renamed", partial(kv.update, id_, account_id=account.id, title=f"{mine}by-hand")
        yield "namespace deleted", partial(kv.delete, id_, account_id=account.id)
        for sha in live.pinned(id_) or ():
            keys = [f"artifacts/{sha}"]
            yield f"pin {sha} deleted", partial(kv.bulk_delete, id_, account_id=account.id, body=keys)
    for script in (s for s in live.scripts() if s.startswith(mine)):
        close = {"account_id": account.id, "enabled": False, "previews_enabled": False}
        yield f"{script} deleted", partial(workers.delete, script, account_id=account.id, force=True)
        yield f"{script} closed", partial(workers.subdomain.create, script, **close)
        yield f"{script} rolled back", partial(_deploy_oldest, account, script)


def _deploy_oldest(account: Account, script: str) -> None:
    items = account.get(f"/workers/scripts/{script}/versions", {"per_page": 100})["result"]["items"]
    account.sdk.workers.scripts.deployments.create(
        script,
        account_id=account.id,
        strategy="percentage",
        versions=[{"version_id": items[-1]["id"], "percentage": 100}],
    )
