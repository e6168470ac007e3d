"""What is stored by content: objects named by their digests, which several resources may share. A delete leaves what
another record names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias, TypeGuard

from edgespec.artifact import Manifest
from edgespec.plan.model import Action, Change
from edgespec.resources.base import family
from edgespec.state.model import Key
from edgespec.values import Inputs, is_known

UPS: Final = frozenset({Action.CREATE, Action.ADOPT, Action.UPDATE, Action.REPLACE})
DOWNS: Final = frozenset({Action.DELETE, Action.REPLACE})
PLACES: Final[Mapping[str, tuple[str, ...]]] = {
    "weights": ("bucket", "jurisdiction"),
    "archive": ("bucket", "jurisdiction"),
    "kv_pins": ("namespace_id",),
}
"""By type, the inputs that name where the objects are."""
_CONTENT: Final[Mapping[str, tuple[str, ...]]] = {
    "weights": ("blobs",),
    "archive": ("blobs",),
    "kv_pins": ("manifest", "files"),
}
Place: TypeAlias = tuple[object, ...]


def objects(type_: str, inputs: Inputs) -> dict[str, int]:
    """SHA-256 -> bytes of what a resource stores."""
    data: Any = inputs
    if type_ in ("weights", "archive"):
        return {b["sha256"]: b["size"] for b in data["blobs"]}
    manifest = Manifest.from_json(data["manifest"])
    return {c.sha256: c.size for name in data["files"] if name in manifest.files for c in manifest.files[name].chunks}


def place_of(type_: str, inputs: Inputs) -> Place:
    return (family(type_), *(inputs.get(name) for name in PLACES[type_]))


def content_known(inputs: Inputs | None, type_: str) -> TypeGuard[Inputs]:
    return inputs is not None and all(is_known(inputs.get(name)) for name in _CONTENT[type_])


def adders(changes: Iterable[Change]) -> dict[tuple[Place, str], Key]:
    """For each object that a change will have named, the first change that does. Where that one is done, its record
    keeps the object from every delete."""
    found: dict[tuple[Place, str], Key] = {}
    for change in changes:
        type_ = change.address.type
        if type_ in PLACES and change.action in UPS and content_known(change.after, type_):
            place = place_of(type_, change.after)
            for sha in objects(type_, change.after):
                found.setdefault((place, sha), change.key)
    return found
