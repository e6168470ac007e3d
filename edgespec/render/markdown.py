"""A plan as a comment on a change request: the order of the terminal's, details folded, never longer than a comment
may be.

Whatever comes from specs, labels, policies or an account stands in `<code>` with every punctuation character as an
entity, or in a fenced block whose fence is longer than any run of backticks within: it cannot format, link, mention
anybody or end the block that it is in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from edgespec.plan.cost import NOTHING, Costs, usd
from edgespec.plan.model import Action, Change, Plan
from edgespec.plan.policy import Verdict
from edgespec.render import plan as render_plan
from edgespec.render.cost import between
from edgespec.render.policies import about
from edgespec.render.text import plain, printable
from edgespec.secret import scrub
from edgespec.spec.units import format_count

LIMIT: Final = 65_400
"""Characters of a comment on GitHub, 65,536, without the line by which `ci comment` finds its own; counted here as
UTF-8 bytes, which are never fewer."""
_ONE: Final = 12_000
"""Of one change's details: a manifest must not push everything else out."""
_NAMES: Final = {
    Action.DELETE: "Delete", Action.REPLACE: "Replace", Action.UPDATE: "Update", Action.ADOPT: "Adopt",
    Action.MOVE: "Move", Action.CREATE: "Create",
}  # fmt: skip
_TITLES: Final = 400
"""Bytes of the titles of the actions, and of what is said of changes that are left out."""
_MANY: Final = 100
"""Models and policies that are listed."""


def render(
    plan: Plan,
    project: str,
    environment: str,
    *,
    costs: Costs = NOTHING,
    verdicts: Sequence[Verdict] = (),
    refused: Sequence[str] = (),
) -> str:
    """The whole comment, with an end of line. `refused` are the reasons why the plan may not be carried out."""
    top = head(plan, project, environment, costs=costs, verdicts=verdicts, refused=refused)
    return scrub(_fitted(top, entries_of(plan)))


def entries_of(plan: Plan) -> list[Entry]:
    """Every change, the dangerous ones first."""
    return [_entry(change, plan) for change in render_plan.ordered(plan)]


# --- the beginning, which is never cut -------------------------------------------------------------------------------


def head(
    plan: Plan,
    project: str,
    environment: str,
    *,
    costs: Costs,
    verdicts: Sequence[Verdict],
    refused: Sequence[str],
    most: int = _MANY,
) -> str:
    """What is said before the changes. At most `most` models are listed."""
    where = f"{code(project)} in {code(environment)}"
    if plan.request.refresh_only or not any(c.action is not Action.NOOP for c in plan.changes):
        lines = plain(render_plan.render(plan, project, environment))
        parts = [f"### {where}", fenced(_cut(lines, _ONE))]
    else:
        parts = [f"### Plan for {where}: {render_plan.summary(plan)}"]
        parts += [plain([row]) for row in render_plan.takes(plan)]
        if plan.unreleased:
            names = ", ".join(code(n) for n in plan.unreleased[:_MANY])
            parts.append(f"Not promoted yet, so not deployed here: {names}.")
    if refused:
        parts.append("**Refused**\n\n" + listed([code(r) for r in refused]))
    if verdicts:
        parts.append("**Policies**\n\n" + listed([_verdict(v) for v in sorted(verdicts, key=lambda v: not v.denies)]))
    if costs.models:
        parts.append(_costs(costs, most))
    return "\n\n".join(parts)


def _verdict(found: Verdict) -> str:
    word = "denies" if found.denies else "warns"
    why = f" It cannot be evaluated: {code(found.failure)}." if found.failure else ""
    of = f" {code(about(found).strip())}" if found.about else ""
    return f"{code(found.policy)} **{word}**{of}: {code(found.message)}{why} ({code(str(found.source))})"


def _costs(costs: Costs, most: int) -> str:
    least = "at least " if costs.after.missing else ""
    rows = []
    for m in costs.models:
        budget = usd(m.budget) if m.budget is not None else ""
        rows.append(f"| {code(m.name)} | {format_count(m.requests)} | {between(m)} | {budget} |")
    missing = f" Not in it: {code(', '.join(costs.after.missing))}." if costs.after.missing else ""
    return "\n".join(
        [
            f"**A month costs {least}{usd(costs.after.usd)}** (before: {usd(costs.before.usd)}).{missing}",
            "",
            "| model | requests | at list prices | budget |",
            "|---|---|---|---|",
            *rows[:most],
            *([f"| and {len(rows) - most} more | | | |"] if len(rows) > most else []),
        ]
    )


def listed(items: Sequence[str]) -> str:
    more = [f"and {len(items) - _MANY} more"] if len(items) > _MANY else []
    return "\n".join(f"- {item}" for item in [*items[:_MANY], *more])


# --- changes ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """One change."""

    action: Action
    whole: str
    short: str
    """In one line, without its fields."""


def _entry(change: Change, plan: Plan) -> Entry:
    title, *fields = plain(list(render_plan.change_lines(change, plan))).rstrip("\n").split("\n")
    sign, _, rest = title.strip().partition(" ")
    summary = f"{code(sign)} {code(rest)}"
    body = "\n".join(row.removeprefix("        ") for row in fields).rstrip()
    short = f"- {summary}"
    if not body:
        return Entry(change.action, short, short)
    whole = f"<details><summary>{summary}</summary>\n\n{fenced(_cut(body, _ONE))}\n\n</details>"
    return Entry(change.action, whole, short)


def fitting(entries: Sequence[Entry], room: int) -> tuple[int, int]:
    """How many of the first are listed, and how many of these with their details: all are listed before any has
    details, since details go from the end, the least dangerous first, and then whole changes."""
    shorts = [size(e.short) + 2 for e in entries]
    count = len(entries)
    while count and sum(shorts[:count]) > room:
        count -= 1
    left = room - sum(shorts[:count])
    detailed = 0
    for i in range(count):
        extra = size(entries[i].whole) + 2 - shorts[i]
        if extra > left:
            break
        left -= extra
        detailed = i + 1
    return count, detailed


def _fitted(top: str, entries: Sequence[Entry]) -> str:
    top = cut_head(top, LIMIT // 2)
    count, detailed = fitting(entries, LIMIT - size(top) - _TITLES)
    parts = [top, *under_titles(entries[:count], [i < detailed for i in range(count)])]
    if detailed < count or count < len(entries):
        parts.append(left_out(entries[count:], count - detailed))
    return closed(parts)


def under_titles(entries: Sequence[Entry], detailed: Sequence[bool]) -> list[str]:
    """Each change, with a title before the first of each action."""
    parts = []
    action: Action | None = None
    for entry, whole in zip(entries, detailed, strict=True):
        if entry.action is not action:
            action = entry.action
            parts.append(f"#### {_NAMES[action]}")
        parts.append(entry.whole if whole else entry.short)
    return parts


def closed(parts: Sequence[str]) -> str:
    text = "\n\n".join(parts) + "\n"
    assert size(text) <= LIMIT, "the parts were measured"  # noqa: S101
    return text


def left_out(unlisted: Sequence[Entry], folded: int) -> str:
    """`folded` changes are listed without their details."""
    said = []
    if folded:
        said.append(f"The details of {folded} changes are left out, the least dangerous ones.")
    if unlisted:
        counted = ", ".join(f"{n} to {a.value}" for a in _NAMES if (n := sum(e.action is a for e in unlisted)))
        said.append(f"{len(unlisted)} more changes are not listed: {counted}.")
    return f"_{' '.join(said)} A comment has room for {LIMIT:,} characters; `edgespec plan` shows all._"


def cut_head(top: str, most: int) -> str:
    """Only absurd ones are that long: a hundred policies with a thousand characters each."""
    if size(top) <= most:
        return top
    kept = top.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")
    return kept[: kept.rfind("\n")] + "\n\n_Cut: more is said than a comment has room for._"


def size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _cut(text: str, most: int) -> str:
    if size(text) <= most:
        return text
    kept = text.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")
    kept = kept[: kept.rfind("\n")] if "\n" in kept else kept
    return f"{kept}\n... {text.count(chr(10)) - kept.count(chr(10))} more lines"


# --- texts of others -------------------------------------------------------------------------------------------------


def code(text: str) -> str:
    """One line that is shown as it is, whatever it holds."""
    shown = printable(" ".join(text.split()))
    return f"<code>{_ACTIVE.sub(lambda m: f'&#{ord(m[0])};', shown)}</code>"


def fenced(text: str) -> str:
    """Lines that are shown as they are, whatever they hold."""
    lines = [printable(row) for row in text.split("\n")]
    longest = max((len(run) for row in lines for run in re.findall("`+", row)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}text", *lines, fence])


_ACTIVE: Final = re.compile(r"[!$&*:<>@\[\\\]_`|~]|(?<=www)\.", re.IGNORECASE)
"""What Markdown, HTML or a comment's own rules read within a line: emphasis, code, links and addresses, images, tags,
tables, formulas, mentions."""
