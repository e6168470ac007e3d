"""Plans of several environments as one comment on a change request: the most dangerous environment first, in each its
dangerous changes first, the rest folded; never longer than a comment may be.

Details go first, the least dangerous ones of all environments, then whole changes; what went is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from edgespec.plan.cost import usd
from edgespec.plan.model import Action
from edgespec.render import markdown
from edgespec.render.markdown import LIMIT, Entry, code, size
from edgespec.render.plans import Shown
from edgespec.secret import scrub

_DANGER: Final = (Action.DELETE, Action.REPLACE, Action.UPDATE, Action.ADOPT, Action.MOVE, Action.CREATE)
_IN_SIGHT: Final = frozenset({Action.DELETE, Action.REPLACE})
"""Changes that are not folded away."""
_MODELS: Final = 20
"""Models of an environment whose costs are listed."""
_FEW: Final = 5
"""Changes that are not worth a fold."""
_ROWS: Final = 200
_EXTRA: Final = 600
"""Bytes of an environment's titles, its fold, and what is said of what is left out."""


@dataclass(slots=True)
class _Section:
    shown: Shown
    top: str
    entries: list[Entry]
    listed: int = 0
    detailed: int = 0


def render(shown: Sequence[Shown], *, selector: str | None = None) -> str:
    """The whole comment, with an end of line."""
    ordered = sorted(shown, key=_danger)
    top = _overview(ordered, selector)
    each = max(500, (LIMIT - size(top)) // (2 * max(1, len(ordered))))
    sections = [_section(s, each) for s in ordered if _is_worth_telling(s)]
    _fit(sections, LIMIT - size(top))
    parts = [top]
    for section in sections:
        parts += _told(section)
    return scrub(markdown.closed(parts))


def _danger(shown: Shown) -> int:
    """Lower is more dangerous: no plan, a refused one, then by the worst that is done."""
    if shown.plan is None or len(shown.refused):
        return -1
    return min((_DANGER.index(c.action) for c in shown.plan.changes if c.action in _DANGER), default=len(_DANGER))


def _is_worth_telling(shown: Shown) -> bool:
    plan = shown.plan
    return plan is None or not plan.is_empty or bool(len(shown.refused) or shown.verdicts or plan.drift)


def _overview(shown: Sequence[Shown], selector: str | None) -> str:
    project = next((s.project for s in shown if s.project), "")
    of = f" for {code(project)}" if project else ""
    only = f" (specs with {code(selector)})" if selector is not None else ""
    rows = [
        f"| {code(s.environment)} | {_mark(s)} | {_month(s)} | {f'<code>{s.digest}</code>' if s.digest else ''} |"
        for s in shown[:_ROWS]
    ]
    more = [f"| and {len(shown) - _ROWS} more | | | |"] if len(shown) > _ROWS else []
    table = ["| environment | what happens | a month | plan |", "|---|---|---|---|", *rows, *more]
    return f"### Plans{of} in {len(shown)} environments{only}\n\n" + "\n".join(table)


def _mark(shown: Shown) -> str:
    return f"**{code(shown.summary)}**" if _danger(shown) <= _DANGER.index(Action.REPLACE) else code(shown.summary)


def _month(shown: Shown) -> str:
    costs = shown.costs
    if not costs.models:
        return ""
    least = "at least " if costs.after.missing else ""
    return f"{least}{usd(costs.after.usd)} (before: {usd(costs.before.usd)})"


def _section(shown: Shown, most: int) -> _Section:
    reasons = [str(d) for d in shown.refused]
    if shown.plan is None:
        title = f"### No plan for {code(shown.project)} in {code(shown.environment)}"
        top = f"{title}\n\n{markdown.listed([code(r) for r in reasons])}"
        return _Section(shown, markdown.cut_head(top, most), [])
    top = markdown.head(
        shown.plan,
        shown.project,
        shown.environment,
        costs=shown.costs,
        verdicts=shown.verdicts,
        refused=reasons,
        most=_MODELS,
    )
    return _Section(shown, markdown.cut_head(top, most), markdown.entries_of(shown.plan))


def _fit(sections: Sequence[_Section], room: int) -> None:
    """How much of each section is told: its own entries are in order of danger, so a part of each is a beginning."""
    room -= sum(size(s.top) + _EXTRA for s in sections)
    every = sorted(
        ((_DANGER.index(e.action), i, k) for i, s in enumerate(sections) for k, e in enumerate(s.entries)),
    )
    listed, detailed = markdown.fitting([sections[i].entries[k] for _, i, k in every], max(0, room))
    for n, (_, i, _) in enumerate(every):
        sections[i].listed += n < listed
        sections[i].detailed += n < detailed


def _told(section: _Section) -> list[str]:
    told = section.entries[: section.listed]
    dangerous = sum(e.action in _IN_SIGHT for e in told)
    rest = told[dangerous:]
    whole = [k < section.detailed for k in range(len(told))]
    parts = [section.top, *markdown.under_titles(told[:dangerous], whole[:dangerous])]
    safer = markdown.under_titles(rest, whole[dangerous:])
    if len(rest) > _FEW:
        noun = "other changes" if dangerous else "changes"
        parts += [f"<details><summary>{len(rest)} {noun}</summary>", *safer, "</details>"]
    else:
        parts += safer
    if section.detailed < section.listed or section.listed < len(section.entries):
        parts.append(markdown.left_out(section.entries[section.listed :], section.listed - section.detailed))
    return parts
