"""What `releases/ENVIRONMENT.yaml` says differently of one model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from edgespec.spec.diff.leaves import short
from edgespec.spec.diff.model import Note, Risk
from edgespec.spec.releases import ModelReleases, Release

_SHOWN: Final = 12
"""Digits of a digest that people are shown."""


def release_notes(before: ModelReleases | None, after: ModelReleases | None, *, promoted: bool) -> Iterator[Note]:
    """`promoted` where nothing else is deployed than what the file names; elsewhere it counts only while pinned."""
    old = before.deployed if before and (promoted or before.pinned) else None
    new = after.deployed if after and (promoted or after.pinned) else None
    if old is None and new is not None:
        said = f"release {new.number} is deployed: {_about(new)}"
        yield Note("release", "models", said, *_measured(new), None, _plain(new))
    elif new is None and old is not None:
        yield _gone(old, promoted=promoted)
    elif old is not None and new is not None and old.artifact != new.artifact:
        yield _moved(old, new)
    was, now = (m.pinned if m else None for m in (before, after))
    if was != now:
        said = f"pinned: {now}" if now is not None else f"no longer pinned ({was})"
        yield Note("release", "models.pinned", said, before=was, after=now)


def _gone(old: Release, *, promoted: bool) -> Note:
    if promoted:
        why = "nothing of it is deployed any more: its Worker and its weights go"
        return Note("release", "models", f"release {old.number} is taken away", Risk.HIGH, why, _plain(old))
    why = "what the spec builds is deployed again"
    return Note("release", "models", f"release {old.number} is no longer held", Risk.MEDIUM, why, _plain(old))


def _moved(old: Release, new: Release) -> Note:
    back = new.number < old.number
    word = "rolled back" if back else "promoted"
    said = f"{word}: release {old.number} -> {new.number}, {_digest(old)} -> {_digest(new)}"
    figures = [
        f"{name} {old.metrics[name]:g} -> {new.metrics[name]:g}" if name in old.metrics else f"{name} {value:g}"
        for name, value in sorted(new.metrics.items())
    ]
    said += f"; {', '.join(figures)}" if figures else ""
    worse = sorted(n for n, value in new.metrics.items() if value < old.metrics.get(n, value))
    if back:
        risk, why = Risk.MEDIUM, "users get the older answers"
    elif worse:
        risk, why = Risk.MEDIUM, f"lower than before: {short(worse)}"
    else:
        risk, why = _measured(new)
    return Note("release", "models", said, risk, why, _plain(old), _plain(new))


def _measured(release: Release) -> tuple[Risk, str]:
    if release.dirty:
        return Risk.MEDIUM, "it was built from changes that are in no commit"
    return (Risk.LOW, "") if release.metrics else (Risk.MEDIUM, "no gate has measured it")


def _about(release: Release) -> str:
    figures = ", ".join(f"{n} {v:g}" for n, v in sorted(release.metrics.items()))
    return f"{_digest(release)}{f'; {figures}' if figures else ''}"


def _digest(release: Release) -> str:
    return release.artifact[:_SHOWN]


def _plain(release: Release) -> Any:
    return release.model_dump(mode="json", by_alias=True, exclude_none=True)
