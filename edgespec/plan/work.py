"""What each change costs in bytes to send, objects to write and stages to build: known before anything is done."""

from __future__ import annotations

from msgspec import Struct

from edgespec.plan.content import DOWNS, PLACES, UPS, Place, adders, content_known, objects, place_of
from edgespec.plan.model import Action, Change, Plan
from edgespec.state.model import Key, Status
from edgespec.values import canonical_json, is_known


class Work(Struct, frozen=True):
    """At most this much; None for what is not known before a build. Every object is a write, every key of KV too."""

    upload: int | None = 0
    """Bytes."""
    r2_writes: int | None = 0
    r2_deletes: int = 0
    kv_writes: int | None = 0
    kv_deletes: int = 0
    stages: tuple[str, ...] = ()
    """Build stages that run, since no cache has their result."""

    def __add__(self, other: Work) -> Work:
        return Work(
            _sum(self.upload, other.upload),
            _sum(self.r2_writes, other.r2_writes),
            self.r2_deletes + other.r2_deletes,
            _sum(self.kv_writes, other.kv_writes),
            self.kv_deletes + other.kv_deletes,
            self.stages + other.stages,
        )


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def work_of(plan: Plan) -> dict[Key, Work]:
    """For every change that does something."""
    changes = [c for c in plan.changes if c.action not in (Action.NOOP, Action.MOVE)]
    if not changes:
        return {}
    held = _Held(plan)
    return {c.key: _work(c, plan, held) for c in changes}


def total(plan: Plan) -> Work:
    return sum(work_of(plan).values(), Work())


def _work(change: Change, plan: Plan, held: _Held) -> Work:
    type_ = change.address.type
    if type_ == "model" and change.action in UPS:
        build = plan.builds.get(change.address)
        stages = () if build is None else tuple(s.name for s in build.stages if not s.cached and not s.remote)
        return Work(stages=stages)
    if type_ == "worker" and change.action in UPS:
        return _version(change, plan)
    if type_ in PLACES:
        return _content(change, held)
    return Work()


def _version(change: Change, plan: Plan) -> Work:
    code, manifest = plan.desired.resources[change.address].payload, (change.after or {}).get("manifest")
    if code is None or not is_known(manifest):
        return Work(upload=None)
    return Work(upload=code + len(canonical_json(manifest)))


# --- what is stored by content ---------------------------------------------------------------------------------------


class _Held:
    """What is where, what stays whatever becomes of the plan's changes, and what goes. Counted once for a whole plan.

    A delete waits for those that will name its objects (steps.py): what one has, another neither sends nor loses."""

    def __init__(self, plan: Plan) -> None:
        leaving = {c.key for c in plan.changes if c.action in DOWNS}
        self._there: dict[Place, set[str]] = {}
        self._staying: dict[Place, set[str]] = {}
        self._claimed: set[tuple[Place, str]] = set()
        self._sent: set[tuple[Place, str]] = set()
        self._added = adders(plan.changes)
        for key, record in plan.refreshed.records.items():
            type_ = key.address.type
            if type_ not in PLACES:
                continue
            place, mine = place_of(type_, record.inputs), objects(type_, record.inputs)
            if key not in leaving:
                self._staying.setdefault(place, set()).update(mine)
            if key not in leaving or record.status is Status.READY:
                self._there.setdefault(place, set()).update(mine)

    def sent(self, change: Change) -> list[int] | None:
        """Bytes of each object that is not there yet, each counted for one change only, and of each key of KV, which is
        written whether it is there or not; None where that is not known."""
        type_, after = change.address.type, change.after
        if not content_known(after, type_):
            return None
        if type_ == "kv_pins":
            return list(objects(type_, after).values())
        place = place_of(type_, after)
        there: set[str] = set()
        if change.action is not Action.UPDATE:  # else some of its own are missing: which, only the call can tell
            there = self._there.get(place, there)
        missing = {s: n for s, n in objects(type_, after).items() if s not in there and (place, s) not in self._sent}
        self._sent.update((place, sha) for sha in missing)
        return list(missing.values())

    def gone(self, change: Change) -> int:
        """Objects that nothing names any more once this is carried out, each counted for one change only."""
        if change.action not in DOWNS or change.before is None:
            return 0
        type_ = change.address.type
        place = place_of(type_, change.before)
        lone = objects(type_, change.before).keys() - self._staying.get(place, set())
        doomed = {(place, sha) for sha in lone} - self._added.keys() - self._claimed
        self._claimed |= doomed
        return len(doomed)


def _content(change: Change, held: _Held) -> Work:
    sent = held.sent(change) if change.action in UPS and change.address.type != "archive" else []
    upload, writes = (None, None) if sent is None else (sum(sent), len(sent))
    deletes = held.gone(change)
    if change.address.type == "archive":  # what it names is there
        return Work(r2_deletes=deletes)
    if change.address.type == "weights":
        return Work(upload, writes, deletes)
    return Work(upload, 0, 0, writes, deletes)
