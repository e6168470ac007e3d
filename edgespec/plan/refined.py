"""Whether a plan made anew is the saved one with more of it known.

Machines have different build caches: what was `known after build` where a plan was reviewed may be at hand where it is
applied. That is what the reviewer agreed to. The other way round it is not: an artifact that was known by its digest
is that artifact, and no other that a build may give.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Document = Mapping[str, Any]
_OF_A_CHANGE: Final = ("fields", "after", "work")
"""What of a change a build tells more about."""
_DERIVED: Final = ("digest", "artifacts", "changes", "work", "costs", "fits")
"""What of a plan follows from it."""


def other_builds(saved: Document, current: Document) -> tuple[str, ...]:
    """The models whose build is not the one that was planned. For a model that stays as it is, the key is enough."""
    old, new = saved["artifacts"], current["artifacts"]
    changed = {str(c["address"]) for plan in (saved, current) for c in plan["changes"]}
    return tuple(n for n in sorted({*old, *new}) if not _same_build(old.get(n), new.get(n), deployed=n not in changed))


def _same_build(old: Document | None, new: Document | None, *, deployed: bool) -> bool:
    if old is None or new is None or old["key"] != new["key"]:
        return old == new
    return deployed or old["artifact"] in (None, new["artifact"])


def says_the_same(saved: Document, current: Document) -> bool:
    """Whether nothing differs but what was not known when `saved` was made. The builds are the planned ones."""
    if saved["artifacts"] == current["artifacts"]:
        return False  # nothing was told since: whatever differs has another cause
    if any(saved[k] != current.get(k) for k in saved if k not in _DERIVED):
        return False
    old, new = saved["changes"], current["changes"]
    return len(old) == len(new) and all(map(_same_change, old, new))


def _same_change(old: Document, new: Document) -> bool:
    if any(old[k] != new[k] for k in old if k not in _OF_A_CHANGE):
        return False
    if len(old["fields"]) != len(new["fields"]) or not _completes(old["after"], new["after"]):
        return False
    return all(map(_same_field, old["fields"], new["fields"]))


def _same_field(old: Document, new: Document) -> bool:
    if old["known_after"] != "build" or new["known_after"] is not None:
        return old == new
    return {**old, "after": None, "known_after": None} == {**new, "after": None}


def _completes(old: Any, new: Any) -> bool:
    """Whether `new` is `old` with values where it had null, which stands for what is not known."""
    if old is None:
        return True
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return old.keys() == new.keys() and all(_completes(v, new[k]) for k, v in old.items())
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_completes, old, new))
    return bool(old == new)
