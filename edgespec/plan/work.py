"""What each change costs in bytes to send, objects to write and stages to build: known before anything is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from edgespec.address import Address
from edgespec.artifact import Manifest
from edgespec.plan.model import Action, Change, Plan
from edgespec.state.model import Key, ResourceRecord, State
from edgespec.values import Inputs, canonical_json, is_known

_UPS: Final = frozenset({Action.CREATE, Action.ADOPT, Action.UPDATE, Action.REPLACE})
_DOWNS: Final = frozenset({Action.DELETE, Action.REPLACE})


@dataclass(frozen=True, slots=True)
class Work:
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
    held = _Held(plan.refreshed)
    return {c.key: _work(c, plan, held) for c in plan.changes if c.action not in (Action.NOOP, Action.MOVE)}


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

_PLACES: Final[Mapping[str, tuple[str, ...]]] = {"weights": ("bucket", "jurisdiction"), "kv_pins": ("namespace_id",)}
"""The inputs that name where the objects are."""


def objects(type_: str, inputs: Inputs) -> dict[str, int]:
    """SHA-256 -> bytes of what a resource stores."""
    data: Any = inputs
    if type_ == "weights":
        return {b["sha256"]: b["size"] for b in data["blobs"]}
    manifest = Manifest.from_json(data["manifest"])
    return {c.sha256: c.size for name in data["files"] if name in manifest.files for c in manifest.files[name].chunks}


def place_of(type_: str, inputs: Inputs) -> tuple[object, ...]:
    return (type_, *(inputs.get(name) for name in _PLACES[type_]))


class _Held:
    """Which records name each stored object. Counted once for a whole plan: it is asked for every change."""

    def __init__(self, state: State) -> None:
        self._count: dict[tuple[object, ...], dict[str, int]] = {}
        for key, record in state.records.items():
            if key.address.type in _PLACES:
                there = self._count.setdefault(place_of(key.address.type, record.inputs), {})
                for sha in _objects(key.address, record):
                    there[sha] = there.get(sha, 0) + 1

    def at(self, place: tuple[object, ...]) -> Mapping[str, int]:
        return self._count.get(place, {})


def _objects(address: Address, record: ResourceRecord) -> dict[str, int]:
    return objects(address.type, record.inputs)


def _content(change: Change, held: _Held) -> Work:
    type_ = change.address.type
    upload: int | None = 0
    writes: int | None = 0
    if change.action in _UPS and change.after is not None:
        if not is_known(dict(change.after)):
            upload = writes = None
        else:
            whole = change.action is Action.UPDATE  # some of its own objects are missing: which, only the call can tell
            there = {} if whole else held.at(place_of(type_, change.after))
            sent = [size for sha, size in objects(type_, change.after).items() if sha not in there]
            upload, writes = sum(sent), len(sent)
    deletes = _gone(change, held)
    if type_ == "weights":
        return Work(upload, writes, deletes)
    return Work(upload, 0, 0, writes, deletes)


def _gone(change: Change, held: _Held) -> int:
    if change.action not in _DOWNS or change.before is None:
        return 0
    type_, place = change.address.type, place_of(change.address.type, change.before)
    kept: frozenset[str] = frozenset()
    if change.action is Action.REPLACE and change.after is not None and is_known(dict(change.after)):
        kept = frozenset(objects(type_, change.after)) if place_of(type_, change.after) == place else kept
    there = held.at(place)
    return sum(there.get(sha, 0) <= 1 and sha not in kept for sha in objects(type_, change.before))
