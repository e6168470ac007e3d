"""What edgespec.yaml says differently: of one environment, and of all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from edgespec.spec.diff.leaves import notes, sides
from edgespec.spec.diff.model import Note, Risk
from edgespec.spec.models import Environment, Policy, Project

_LATER: Final = frozenset({"target", "state", "protect", "overrides"})
"""What has rules of its own here; overrides are seen in the specs that they change."""
_STATE_MOVED: Final = (
    "edgespec looks for its state in another place: until it is moved, by `state pull` and `state push`, all that is "
    "deployed looks new"
)
_TARGET_MOVED: Final = "everything is deployed to another place, and what is deployed now stays where it is"


def environment_notes(before: Environment, after: Environment) -> Iterator[Note]:
    """Without what the overlays do, which the specs show."""
    old, new = before.model_dump(mode="json"), after.model_dump(mode="json")
    for note in _place("target", old["target"], new["target"]):
        harmless = note.path == "target.port"
        risk, why = (Risk.LOW, "") if harmless else (Risk.HIGH, _TARGET_MOVED)
        yield Note(note.facet, note.path, note.said, risk, why, note.before, note.after)
    for note in _place("state", old["state"], new["state"]):
        yield Note(note.facet, note.path, note.said, Risk.HIGH, _STATE_MOVED, note.before, note.after)
    if before.protect != after.protect:
        lifted = before.protect
        said = "protection is lifted" if lifted else "it is protected from now on"
        risk, why = (Risk.HIGH, "things can be destroyed without --allow-destroy") if lifted else (Risk.LOW, "")
        yield Note("protect", "protect", said, risk, why, before.protect, after.protect)
    for section in sorted({*old, *new} - _LATER):
        for note in notes(section, old.get(section), new.get(section), section):
            risk, why = _judge(note)
            yield Note(note.facet, note.path, note.said, risk, why, note.before, note.after)


def _place(name: str, before: dict[str, Any], after: dict[str, Any]) -> Iterator[Note]:
    """Field by field where it is of the same type, else as a whole."""
    if before["type"] == after["type"]:
        yield from notes(name, before, after, name)
    else:
        yield Note(name, name, sides(name, before, after), before=before, after=after)


def _judge(note: Note) -> tuple[Risk, str]:
    if note.path == "promote_from":
        if note.after is None:
            return Risk.HIGH, "what the specs say is built and deployed without a promotion"
        return Risk.MEDIUM, "only promoted artifacts are deployed from now on"
    if (
        note.path == "keep"
        and isinstance(note.before, int)
        and isinstance(note.after, int)
        and note.after < note.before
    ):
        return Risk.MEDIUM, "fewer artifacts are kept to go back to"
    return Risk.LOW, ""


def project_notes(before: Project, after: Project) -> Iterator[Note]:
    """What holds for every environment."""
    if before.name != after.name:
        why = "every name changes: all is made anew, and what is deployed under the old names stays"
        said = f"name: {before.name} -> {after.name}"
        yield Note("project", "name", said, Risk.HIGH, why, before.name, after.name)
    yield from _policies({p.name: p for p in before.policies}, {p.name: p for p in after.policies})
    old, new = (p.model_dump(mode="json", exclude={"name", "policies", "environments"}) for p in (before, after))
    for section in sorted({*old, *new} - {"apiVersion", "kind"}):
        for note in notes(section, old.get(section), new.get(section), section):
            risk, why = _trust(note)
            yield Note(note.facet, note.path, note.said, risk, why, note.before, note.after)


def _trust(note: Note) -> tuple[Risk, str]:
    """Who is trusted to have built what is deployed."""
    if note.facet == "provenance":
        return Risk.HIGH, "whose artifacts are trusted changes"
    return Risk.LOW, ""


def _policies(before: Mapping[str, Policy], after: Mapping[str, Policy]) -> Iterator[Note]:
    for name in [*before, *(n for n in after if n not in before)]:
        old, new = before.get(name), after.get(name)
        path = f"policies.{name}"
        if old == new:
            continue
        if old is None and new is not None:
            yield Note("policies", path, f"{name} is new: {_effect(new)}", after=_plain(new))
        elif new is None and old is not None:
            risk, why = _lost(old)
            yield Note("policies", path, f"{name} is removed: {_effect(old)}", risk, why, _plain(old))
        elif old is not None and new is not None:
            yield _changed(name, path, old, new)


def _changed(name: str, path: str, old: Policy, new: Policy) -> Note:
    if old.deny is not None and new.deny is None:
        said = f"{name} warns and no longer denies"
        return Note("policies", path, said, *_lost(old), _plain(old), _plain(new))
    if (old.when, old.environments) != (new.when, new.environments):
        what = "asks something else" if old.when != new.when else "holds in other environments"
        why = "it may let through what it stopped"
        return Note("policies", path, f"{name} {what}", Risk.MEDIUM, why, _plain(old), _plain(new))
    return Note("policies", path, f"{name} is worded otherwise", before=_plain(old), after=_plain(new))


def _lost(old: Policy) -> tuple[Risk, str]:
    if old.deny is not None:
        return Risk.HIGH, "nothing denies this any more"
    return Risk.MEDIUM, "nobody is warned of this any more"


def _effect(policy: Policy) -> str:
    return f"{'denies' if policy.deny is not None else 'warns'} where {' '.join(policy.when.split())}"


def _plain(policy: Policy) -> Any:
    return policy.model_dump(mode="json", exclude_none=True)
