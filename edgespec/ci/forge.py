"""What GitHub and GitLab have in common for us, and the way in which one comment or issue is kept up to date there.

Ours is found by an HTML comment at the beginning of its text, and only where our own account wrote it: whoever opens a
change request could otherwise write a comment that begins like ours, and later change the plan that was put into it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from edgespec.diagnostics import EdgespecError, error

LABEL: Final = "edgespec"
"""Of issues that we open: ours are looked for among those with it."""
_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/]*(-[A-Za-z0-9._/]+)*")


@dataclass(frozen=True, slots=True)
class Entry:
    """A comment or an issue. `id` is what the API calls it by; `mine` says that our account wrote it."""

    id: int
    body: str
    mine: bool
    url: str
    title: str = ""


class Forge(Protocol):
    """One repository on a forge. Every method raises EdgespecError where the forge does not do it."""

    @property
    def limit(self) -> int:
        """Characters that a comment or an issue may have."""
        ...

    def comments(self, change: int) -> Iterator[Entry]:
        """Of a change request, oldest first."""
        ...

    def add_comment(self, change: int, body: str) -> Entry: ...

    def edit_comment(self, change: int, comment: Entry, body: str) -> Entry: ...

    def delete_comment(self, change: int, comment: Entry) -> None: ...

    def issues(self) -> Iterator[Entry]:
        """The open ones with our label, oldest first."""
        ...

    def open_issue(self, title: str, body: str) -> Entry: ...

    def edit_issue(self, issue: Entry, title: str, body: str) -> Entry: ...

    def close_issue(self, issue: Entry, why: str) -> None: ...

    def reviewed_plans(self, artifact: str, run: int | None) -> bytes:
        """The ZIP file that the plan of the change request kept which this commit merged, or of the named run."""
        ...


class Done(StrEnum):
    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    CLOSED = "closed"
    NOTHING = "nothing to close"


def marker(kind: str, key: str) -> str:
    """The first line of what is ours. Raises where `key` could end the HTML comment."""
    if not _KEY.fullmatch(key):
        detail = f"{key!r}: write letters, digits and . _ / with single hyphens between them, as in plan/shop."
        raise EdgespecError(error("ES742", "Not a key", detail))
    return f"<!-- edgespec:{kind}:{key} -->"


def put_comment(forge: Forge, change: int, key: str, text: str) -> tuple[Done, str]:
    """The one comment of this key says `text`. What an interrupted or simultaneous run left twice is removed, so that
    no old plan stays beside the new one. Gives what was done and the comment's address."""
    mark = marker("comment", key)
    body = fitted(mark, text, forge.limit)
    ours = [c for c in forge.comments(change) if c.mine and c.body.startswith(mark)]
    if not ours:
        return Done.CREATED, forge.add_comment(change, body).url
    first, *more = ours
    for extra in more:
        forge.delete_comment(change, extra)
    if _same(first.body, body):
        return Done.UNCHANGED, first.url
    return Done.UPDATED, forge.edit_comment(change, first, body).url


def put_issue(forge: Forge, key: str, title: str, text: str) -> tuple[Done, str]:
    """The one open issue of this key says `text`."""
    mark = marker("issue", key)
    body = fitted(mark, text, forge.limit)
    found = _issue(forge, mark)
    if found is None:
        return Done.CREATED, forge.open_issue(title, body).url
    if _same(found.body, body) and found.title == title:
        return Done.UNCHANGED, found.url
    return Done.UPDATED, forge.edit_issue(found, title, body).url


def close_issue(forge: Forge, key: str, why: str) -> tuple[Done, str]:
    """There is no open issue of this key; the one that there was says why it was closed."""
    found = _issue(forge, marker("issue", key))
    if found is None:
        return Done.NOTHING, ""
    forge.close_issue(found, why)
    return Done.CLOSED, found.url


def _issue(forge: Forge, mark: str) -> Entry | None:
    return next((i for i in forge.issues() if i.mine and i.body.startswith(mark)), None)


def _same(kept: str, body: str) -> bool:
    """Forges end lines in their own way, and some drop what is at the end."""
    return kept.replace("\r\n", "\n").rstrip() == body.rstrip()


def fitted(mark: str, text: str, limit: int) -> str:
    """The text under its marker. One that is too long is cut at a line, and what was open there is closed."""
    body = f"{mark}\n{text}"
    if len(body) <= limit:
        return body
    kept = body[: limit - 400]
    kept = kept[: kept.rfind("\n") + 1]
    return kept + _closing(kept) + "\n_Cut: more is said than a comment has room for; the job's log has all of it._\n"


def _closing(text: str) -> str:
    """What ends the code blocks and folds that a cut left open."""
    fence = ""
    folds = 0
    for row in text.split("\n"):
        if fence:
            fence = "" if row.rstrip() == fence else fence
        elif (opened := re.match("(`{3,})", row)) is not None:
            fence = opened[1]
        else:
            folds += row.count("<details") - row.count("</details>")
    return (f"{fence}\n" if fence else "") + "\n</details>\n" * max(0, folds)
