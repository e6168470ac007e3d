"""What each change costs in bytes to send, objects to write and stages to build: known before anything is done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, TypeGuard

from msgspec import Struct

from edgespec.artifact import Manifest
from edgespec.plan.model import Action, Change, Plan
from edgespec.resources.base import family
from edgespec.state.model import Key
from edgespec.values import Inputs, canonical_json, is_known

_UPS: Final = frozenset({Action.CREATE, Action.ADOPT, Action.UPDATE, Action.REPLACE})
_DOWNS: Final = frozenset({Action.DELETE, Action.REPLACE})


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
    if type_ == "model" and change.action in _UPS:
        build = plan.builds.get(change.address)
        stages = () if build is None else tuple(s.name for s in build.stages if not s.cached and not s.remote)
        return Work(stages=stages)
    if type_ == "worker" and change.action in _UPS:
        return _version(change, plan)
    if type_ in _PLACES:
        return _content(change, held)
    return Work()


def _version(change: Change, plan: Plan) -> Work:
    code, manifest = plan.desired.resources[change.address].payload, (change.after or {}).get("manifest")
    if code is None or not is_known(manifest):
        return Work(upload=None)
    return Work(upload=code + len(canonical_json(manifest)))


# --- what is stored by content ---------------------------------------------------------------------------------------

_PLACES: Final[Mapping[str, tuple[str, ...]]] = {
    "weights": ("bucket", "jurisdiction"),
    "archive": ("bucket", "jurisdiction"),
    "kv_pins": ("namespace_id",),
}
"""The inputs that name where the objects are."""
_CONTENT: Final[Mapping[str, tuple[str, ...]]] = {
    "weights": ("blobs",),
    "archive": ("blobs",),
    "kv_pins": ("manifest", "files"),
}
_Place: TypeAlias = tuple[object, ...]


def objects(type_: str, inputs: Inputs) -> dict[str, int]:
    """SHA-256 -> bytes of what a resource stores."""
    data: Any = inputs
    if type_ in ("weights", "archive"):
        return {b["sha256"]: b["size"] for b in data["blobs"]}
    manifest = Manifest.from_json(data["manifest"])
    return {c.sha256: c.size for name in data["files"] if name in manifest.files for c in manifest.files[name].chunks}


def place_of(type_: str, inputs: Inputs) -> _Place:
    return (family(type_), *(inputs.get(name) for name in _PLACES[type_]))


class _Held:
    """What stays where, whatever becomes of the plan's changes, and what goes. Counted once for a whole plan."""

    def __init__(self, plan: Plan) -> None:
        leaving = {c.key for c in plan.changes if c.action in _DOWNS}
        self._staying: dict[_Place, set[str]] = {}
        self._wanted: dict[_Place, set[str]] = {}
        self._claimed: set[tuple[_Place, str]] = set()
        self._sent: set[tuple[_Place, str]] = set()
        self._archived: dict[tuple[str, _Place], set[str]] = {}
        """Of each shard, by its weights' name: what its archive has goes only after new weights have taken from it."""
        for key, record in plan.refreshed.records.items():
            if key.address.type == "archive":
                mine = (key.address.name, place_of("archive", record.inputs))
                self._archived.setdefault(mine, set()).update(objects("archive", record.inputs))
            if key.address.type in _PLACES and key not in leaving:
                place = place_of(key.address.type, record.inputs)
                self._staying.setdefault(place, set()).update(objects(key.address.type, record.inputs))
        for change in plan.changes:
            type_ = change.address.type
            if type_ in _PLACES and change.action in _UPS and _content_known(change.after, type_):
                place = place_of(type_, change.after)
                self._wanted.setdefault(place, set()).update(objects(type_, change.after))

    def sent(self, change: Change) -> list[int] | None:
        """Bytes of each object that is not there yet, each counted for one change only; None where that is not
        known."""
        type_, after = change.address.type, change.after
        if not _content_known(after, type_):
            return None
        place = place_of(type_, after)
        there: set[str] = set()
        if change.action is not Action.UPDATE:  # else some of its own are missing: which, only the call can tell
            there = self._staying.get(place, set()) | self._archived.get((change.address.name, place), set())
            if change.action is Action.REPLACE and change.before is not None:
                there |= set(objects(type_, change.before)) if place_of(type_, change.before) == place else set()
        missing = {s: n for s, n in objects(type_, after).items() if s not in there and (place, s) not in self._sent}
        self._sent.update((place, sha) for sha in missing)
        return list(missing.values())

    def gone(self, change: Change) -> int:
        """Objects that nothing names any more once this is carried out, each counted for one change only."""
        if change.action not in _DOWNS or change.before is None:
            return 0
        type_ = change.address.type
        place = place_of(type_, change.before)
        kept = self._staying.get(place, set()) | self._wanted.get(place, set())
        doomed = {(place, sha) for sha in objects(type_, change.before)} - {(place, k) for k in kept} - self._claimed
        self._claimed |= doomed
        return len(doomed)


def _content_known(inputs: Inputs | None, type_: str) -> TypeGuard[Inputs]:
    return inputs is not None and all(is_known(inputs.get(name)) for name in _CONTENT[type_])


def _content(change: Change, held: _Held) -> Work:
    sent = held.sent(change) if change.action in _UPS and change.address.type != "archive" else []
    upload, writes = (None, None) if sent is None else (sum(sent), len(sent))
    deletes = held.gone(change)
    if change.address.type == "archive":  # what it names is there
        return Work(r2_deletes=deletes)
    if change.address.type == "weights":
        return Work(upload, writes, deletes)
    return Work(upload, 0, 0, writes, deletes)
