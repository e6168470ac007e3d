"""Two versions of a project as a reviewer reads them: risks first, models that change alike in several environments
once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from edgespec.plan.comparison import Effect, EnvironmentDiff, Kind, ModelDiff, Point, ProjectDiff
from edgespec.plan.cost import Estimate, usd
from edgespec.records import replace
from edgespec.render.markdown import LIMIT, code, fenced
from edgespec.render.text import Line, Span, line, plain, printable
from edgespec.secret import scrub
from edgespec.spec.diff.model import Note, Risk

_SIGNS: Final = {
    Kind.REMOVED: ("-", "red"), Kind.RENAMED: (">", "cyan"), Kind.CHANGED: ("~", "yellow"), Kind.ADDED: ("+", "green"),
}  # fmt: skip
_COLOURS: Final = {Risk.HIGH: "red", Risk.MEDIUM: "yellow", Risk.LOW: "dim"}
_EFFECTS: Final = {
    Effect.REPACKED: "repacked: the weights stay as they are",
    Effect.REDEPLOYED: "redeployed: nothing is built",
    Effect.RELEASED: "another release: nothing is built",
    Effect.WAITS: "waits for a promotion: nothing that is deployed changes",
    Effect.RELABELLED: "relabelled: nothing is built",
    Effect.GATE: "another gate: what answers now stays",
    Effect.NONE: "nothing that is deployed changes",
}
_RISKS: Final = (Risk.HIGH, Risk.MEDIUM, Risk.LOW)
_VERBS: Final = ("delete", "replace", "update", "move", "create")
_MANY: Final = 40
"""Risks that a comment lists."""


def render(found: ProjectDiff) -> list[Line]:
    title = f"{found.project}: {_point(found.before)} -> {_point(found.after)}"
    if found.is_empty:
        return [line(Span(f"{title}: nothing differs that edgespec knows of.", "green"))]
    lines = [line(Span(title, "bold")), line("Risk: ", _risk(found.risk))]
    if found.notes:
        lines += [(), line(Span("In every environment", "bold"))]
        lines += _notes(found.notes, "  ")
    for names, environment in grouped(found):
        lines += [(), line(Span(_heading(names, environment), "bold"), "  risk: ", _risk(environment.risk))]
        lines += _environment(environment)
    same = [e.name for e in found.environments if e.is_empty]
    if same:
        lines += [(), line(Span(f"Nothing differs in {', '.join(same)}.", "dim"))]
    return lines


def grouped(found: ProjectDiff) -> list[tuple[tuple[str, ...], EnvironmentDiff]]:
    """Environments that change alike, together; those with the greatest risk first."""
    groups: list[tuple[list[str], EnvironmentDiff]] = []
    for environment in found.environments:
        if environment.is_empty:
            continue
        shared = _without_names(environment.resources, f"{found.project}-{environment.name}-")
        own = replace(environment, name="", resources=shared)
        for names, other in groups:
            if other == own:
                names.append(environment.name)
                break
        else:
            groups.append(([environment.name], own))
    made = [(tuple(names), other) for names, other in groups]
    return sorted(made, key=lambda g: _RISKS.index(g[1].risk))


def _without_names(resources: Mapping[str, tuple[str, ...]], prefix: str) -> dict[str, tuple[str, ...]]:
    return {verb: tuple(a.replace(prefix, "", 1) for a in found) for verb, found in resources.items()}


def _heading(names: Sequence[str], environment: EnvironmentDiff) -> str:
    word = f" ({environment.kind})" if environment.kind is not None else ""
    return f"{', '.join(names)}{word}"


def _environment(environment: EnvironmentDiff) -> Iterator[Line]:
    yield from _notes(environment.notes, "  ")
    if environment.resources:
        yield _field("  ", "shared", _touches(environment.resources))
    for model in _ordered(environment.models):
        yield ()
        yield from model_lines(model)


def _ordered(models: Sequence[ModelDiff]) -> list[ModelDiff]:
    return sorted(models, key=lambda m: (_RISKS.index(m.risk), m.name))


def model_lines(model: ModelDiff) -> Iterator[Line]:
    sign, colour = _SIGNS[model.kind]
    yield line("  ", Span(f"{sign} ", colour), Span(printable(model.name), "bold"), f"  {what(model)}")
    if model.build.stages:
        listed = ", ".join(s.name + (f" ({s.why})" if s.why else "") for s in model.build.stages)
        yield _field("      ", "runs again", listed)
    yield from _notes(model.notes, "      ")
    if model.resources:
        yield _field("      ", "touches", "; ".join(_counted(model.resources)))
    if (cost := _cost(model)) is not None:
        yield _field("      ", "cost", cost)


def what(model: ModelDiff) -> str:
    """What happens to it, in a few words."""
    if model.kind is Kind.ADDED:
        return "new"
    if model.kind is Kind.REMOVED:
        return "removed"
    effect = f"rebuilt from {model.build.stages[0].name} on" if model.effect is Effect.REBUILT else ""
    effect = effect or (_EFFECTS[model.effect] if model.effect is not None else "")
    return f"renamed from {model.previous}; {effect}" if model.kind is Kind.RENAMED else effect


def _notes(notes: Sequence[Note], indent: str) -> Iterator[Line]:
    facet = ""
    for note in notes:
        yield _field(indent, note.facet if note.facet != facet else "", note.said)
        facet = note.facet
        if note.risk is not Risk.LOW:
            yield line(f"{indent}{'':13}", _risk(note.risk), Span(f": {printable(note.why)}", "dim"))


def _field(indent: str, name: str, text: str) -> Line:
    return line(indent, Span(f"{name:<12} ", "dim"), printable(text))


def _risk(risk: Risk) -> Span:
    return Span(risk.value, _COLOURS[risk])


def _touches(resources: Mapping[str, tuple[str, ...]]) -> str:
    return "; ".join(f"{verb} {', '.join(resources[verb])}" for verb in _VERBS if verb in resources)


def _counted(resources: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """`replace 3 weights`: all of them are the model's own."""
    for verb in (v for v in _VERBS if v in resources):
        types = Counter(address.partition("/")[0] for address in resources[verb])
        yield f"{verb} {', '.join(f'{n} {t}' if n > 1 else t for t, n in sorted(types.items()))}"


def _cost(model: ModelDiff) -> str | None:
    """Nothing where it does not change."""
    sides = [None if e is None else usd(e.usd) for e in (model.before, model.after)]
    if sides[0] == sides[1] or model.after is None:
        return None
    budget = f" (budget {usd(model.budget)})" if model.budget is not None else ""
    before = f"{_amount(model.before)} -> " if model.before is not None else ""
    missing = f"; not in it: {', '.join(model.after.missing)}" if model.after.missing else ""
    return f"{before}{_amount(model.after)} a month at list prices{budget}{missing}"


def _amount(found: Estimate | None) -> str:
    if found is None:
        return "nothing"
    return f"{'at least ' if found.missing else ''}{usd(found.usd)}"


def _point(point: Point) -> str:
    if point.commit is None or point.commit.startswith(point.name):
        return point.name if point.commit is None else point.commit[:12]
    return f"{point.name} ({point.commit[:12]})"


# --- a comment -------------------------------------------------------------------------------------------------------


def markdown(found: ProjectDiff) -> str:
    """A comment for a change request, with an end of line; never longer than one may be."""
    where = f"{code(_point(found.before))} to {code(_point(found.after))}"
    if found.is_empty:
        return f"### {code(found.project)}: {where}\n\nNothing differs that edgespec knows of.\n"
    head = [f"### {code(found.project)}: {where}", f"**Risk: {found.risk.value}**"]
    head += [_table(found), _risky(found)]
    details = []
    if found.notes:
        details.append(_folded("In every environment", list(_notes(found.notes, ""))))
    for names, environment in grouped(found):
        title = f"{_heading(names, environment)}: risk {environment.risk.value}"
        details.append(_folded(title, list(_environment(environment))))
    return scrub(_fitted([h for h in head if h], details))


def _table(found: ProjectDiff) -> str:
    rows = []
    for names, environment in grouped(found):
        for model in _ordered(environment.models):
            rows.append(f"| {code(model.name)} | {code(what(model))} | {code(', '.join(names))} | {model.risk.value} |")
    if not rows:
        return ""
    more = [f"| and {len(rows) - _MANY} more | | | |"] if len(rows) > _MANY else []
    return "\n".join(["| model | what happens | where | risk |", "|---|---|---|---|", *rows[:_MANY], *more])


def _risky(found: ProjectDiff) -> str:
    """Every reason for a risk, the greatest first."""
    told: list[tuple[Risk, str]] = [(n.risk, f"{code(n.said)}: {code(n.why)}") for n in found.notes]
    for names, environment in grouped(found):
        where = code(", ".join(names))
        told += [(n.risk, f"{where}: {code(n.said)}: {code(n.why)}") for n in environment.notes]
        for model in environment.models:
            about = f"{code(model.name)} in {where}"
            told += [(n.risk, f"{about}: {code(n.said)}: {code(n.why)}") for n in model.notes]
    told = [t for t in sorted(told, key=lambda t: _RISKS.index(t[0])) if t[0] is not Risk.LOW]
    lines = [f"- **{risk.value}**: {text}" for risk, text in told[:_MANY]]
    return "\n".join([*lines, *([f"- and {len(told) - _MANY} more"] if len(told) > _MANY else [])])


def _folded(title: str, lines: list[Line]) -> str:
    return f"<details><summary>{code(title)}</summary>\n\n{fenced(plain(lines))}\n\n</details>"


def _fitted(head: Sequence[str], details: Sequence[str]) -> str:
    """Details go from the end, the least risky first; what went is counted."""
    room = LIMIT - 200
    parts = list(head)
    while len(parts) > 2 and _size(parts) > room:
        parts.pop()
    kept = 0
    for detail in details:
        if _size([*parts, detail]) > room:
            break
        parts.append(detail)
        kept += 1
    if kept < len(details) or len(parts) - kept < len(head):
        parts.append(f"_More differs than a comment has room for ({LIMIT:,} characters); `edgespec diff` shows all._")
    return "\n\n".join(parts) + "\n"


def _size(parts: Sequence[str]) -> int:
    return sum(len(p.encode("utf-8", "replace")) + 2 for p in parts)
