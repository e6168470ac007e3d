"""A plan as a person reviews it: totals, then the dangerous part, then the rest; unchanged things are not listed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from edgespec.diagnostics import some
from edgespec.plan.cost import NOTHING, Costs
from edgespec.plan.model import Action, Change, Contents, Drift, DriftKind, Plan, Reason
from edgespec.plan.policy import Verdict
from edgespec.plan.work import total
from edgespec.render import cost as render_cost
from edgespec.render import policies as render_policies
from edgespec.render.text import Line, Span, Unit, line, printable, show
from edgespec.resources.base import FieldChange, ResourceType
from edgespec.resources.canonical import DURATION, SIZE
from edgespec.resources.compile import TYPES
from edgespec.resources.facts import BuildFacts
from edgespec.secret import Secret
from edgespec.spec.units import format_size
from edgespec.values import Inputs, Value, is_known

_ORDER: Final = (Action.DELETE, Action.REPLACE, Action.UPDATE, Action.ADOPT, Action.MOVE, Action.CREATE)
_SIGNS: Final = {
    Action.CREATE: ("+", "green"),
    Action.UPDATE: ("~", "yellow"),
    Action.REPLACE: ("-/+", "magenta"),
    Action.DELETE: ("-", "red"),
    Action.ADOPT: (">", "cyan"),
    Action.MOVE: (">", "cyan"),
}
_WHY: Final = {
    Reason.CANNOT_UPDATE: "cannot be changed in place",
    Reason.NOT_IN_SPEC: "no spec asks for it any more",
    Reason.DRIFTED: "changed outside edgespec",
    Reason.MISSING_REMOTELY: "recorded in state, but gone",
    Reason.INTERRUPTED: "an interrupted apply left it unfinished",
    Reason.DEPOSED: "left over from a replacement",
    Reason.EXISTS: "exists, but not in this state: needs `apply --adopt`",
    Reason.DESTROY: "destroyed on request",
    Reason.RENAMED: "the spec has a new name; nothing live is touched",
}
_QUIET: Final = (
    "compatibility_date", "compatibility_flags", "config.limits", "config.name", "config.cache", "bindings", "bundle",
    "workers_dev", "tools", "manifest", "chunk",
)  # fmt: skip
"""Inputs that a new resource's listing leaves out, since they follow from the spec or from what is listed beside
them; a change to one is always shown."""
_INDENT: Final = " " * 8
_LISTED: Final = 12
"""Names in one line."""
_BUILT: Final = frozenset({Action.CREATE, Action.ADOPT, Action.UPDATE, Action.REPLACE})
"""Actions of a model that may build it."""


def render(
    plan: Plan, project: str, environment: str, *, costs: Costs = NOTHING, verdicts: Sequence[Verdict] = ()
) -> list[Line]:
    """Every change, after the totals: what it takes, what it costs a month, what the policies say."""
    if plan.request.refresh_only:
        return render_drift(plan.drift, project, environment)
    changes = [c for c in plan.changes if c.action is not Action.NOOP]
    part = " of what was asked for" if plan.request.targets or plan.request.excludes or plan.request.names else ""
    if not changes and not plan.protections:
        all_well = "" if part else " What is live is what the specs ask for."
        nothing = line(Span(f"{project} in {environment}: no changes{part}.{all_well}", "green"))
        return [nothing, *_unreleased(plan), *render_policies.render(verdicts)]
    title = line(Span(f"Plan for {project} in {environment}: ", "bold"), Span(summary(plan), "bold"))
    lines = [title, *takes(plan), *render_cost.render(costs), *render_policies.render(verdicts), *_unreleased(plan), ()]
    lines += _protections(plan)
    for change in ordered(plan):
        lines += change_lines(change, plan)
    return lines


def _unreleased(plan: Plan) -> Iterator[Line]:
    """What the environment leaves out until it is promoted."""
    if plan.unreleased:
        names = some(plan.unreleased, _LISTED)
        yield line(Span(f"Not promoted yet, so not deployed here: {names}.", "yellow"))


def _protections(plan: Plan) -> Iterator[Line]:
    """What can be destroyed from now on, and what not any more: lifted ones first."""
    for protected, doing, colour in ((False, "is lifted from", "red"), (True, "covers from now on", "dim")):
        names = [str(a) for a, p in sorted(plan.protections.items()) if p is protected]
        if names:
            yield line("  ", Span(f"prevent_destroy {doing}: ", colour), ", ".join(names))
            yield ()


def ordered(plan: Plan) -> list[Change]:
    """What changes, the dangerous part first; in the order of the graph within each action."""
    return sorted((c for c in plan.changes if c.action is not Action.NOOP), key=lambda c: _ORDER.index(c.action))


def render_drift(drift: Sequence[Drift], project: str, environment: str) -> list[Line]:
    """What is live in another way than state says."""
    if not drift:
        return [line(Span(f"{project} in {environment}: no drift. What is live is what state says.", "green"))]
    head = f"{project} in {environment}: {len(drift)} {'resource' if len(drift) == 1 else 'resources'} changed outside"
    lines = [line(Span(f"{head} edgespec", "bold")), ()]
    for found in drift:
        gone = found.kind is DriftKind.GONE
        sign, colour = ("-", "red") if gone else ("~", "yellow")
        why = Span("  (in state, but gone)" if gone else "", "dim")
        lines.append(line("  ", Span(f"{sign:>3} ", colour), Span(printable(str(found.key)), "bold"), why))
        type_ = TYPES[found.key.address.type]
        for f in found.fields:
            lines.append(_field(f.path, sides(f, type_, opaque=f.path in type_.opaque)))
        lines.append(())
    return lines


def summary(plan: Plan) -> str:
    """`3 to create, 1 to replace`: only the actions that occur."""
    parts = [f"{n} to {a.value}" for a in _ORDER if (n := plan.count(a))]
    return ", ".join(parts) or ("only protection changes" if plan.protections else "no changes")


def takes(plan: Plan) -> list[Line]:
    """What an apply takes, in one line; nothing where it takes nothing."""
    work, parts = total(plan), []
    if work.stages:
        parts.append(f"{len(work.stages)} build {'stage' if len(work.stages) == 1 else 'stages'} to run")
    for count, noun in ((work.r2_writes, "R2 object"), (work.kv_writes, "KV key")):
        parts += [f"{count} {noun}{'s' * (count != 1)} to write"] if count else []
    if work.upload is None:
        parts.append("bytes to upload known after build")
    elif work.upload:
        parts.append(f"{format_size(work.upload)} to upload")
    if work.r2_deletes or work.kv_deletes:
        parts.append(f"{work.r2_deletes + work.kv_deletes} stored objects to delete")
    return [line(Span(f"It takes at most: {', '.join(parts)}.", "dim"))] if parts else []


def change_lines(change: Change, plan: Plan) -> Iterator[Line]:
    """One change with its fields, and an empty line after it."""
    sign, colour = _SIGNS[change.action]
    why = f"  ({reason})" if (reason := _reason(change)) else ""
    yield line("  ", Span(f"{sign:>3} ", colour), Span(printable(str(change.key)), "bold"), Span(why, "dim"))
    if change.moved_from is not None:
        yield _field("moved from", str(change.moved_from))
    if (held := plan.contents.get(change.key)) is not None:
        yield (*_field("holds", ""), Span(_holds(held), "red" if held.objects else "dim"))
    if change.action in (Action.CREATE, Action.ADOPT) and change.after is not None:
        seen = change.before or {}
        new = {k: v for k, v in change.after.items() if k not in seen}
        type_ = TYPES[change.address.type]
        yield from (
            _field(path, show(path, value, unit=unit_of(type_, path))) for path, value in _flatten(type_.name, new)
        )
    if change.address.type == "archive" and change.after is not None:
        yield _field("keeps", _kept(change.after))
    if change.address.type == "model" and change.before and change.after and "artifact" in change.after:
        yield _field("artifact", _released(change.before, change.after))
    elif change.action is not Action.CREATE:
        yield from _fields(change)
    if change.action in _BUILT and (build := plan.builds.get(change.address)) is not None:
        yield from _build(build)
    yield ()


def _kept(after: Inputs) -> str:
    """How much an archive is."""
    artifacts, blobs = after["artifacts"], after["blobs"]
    if not isinstance(artifacts, list) or not isinstance(blobs, list):
        return "(none)"
    size = sum(b["size"] for b in blobs if isinstance(b, dict) and isinstance(b["size"], int))
    noun = "artifact" if len(artifacts) == 1 else "artifacts"
    return f"{len(artifacts)} {noun} that served before, {format_size(size)}, for a rollback"


def _released(before: Inputs, after: Inputs) -> str:
    """From one artifact that is deployed as it is to another; what was built here has no number."""
    digests = [show("artifact", side["artifact"]) if "artifact" in side else "built" for side in (before, after)]
    numbers = [str(side["release"]) for side in (before, after) if "release" in side]
    return f"{' -> '.join(digests)} (release {' -> '.join(numbers)})"


def _reason(change: Change) -> str:
    """Why, where the fields do not say so. An archive's list is written anew whenever it changes, and that is all."""
    if change.address.type == "archive" and change.reason in (Reason.CANNOT_UPDATE, Reason.NOT_IN_SPEC):
        return "" if change.reason is Reason.CANNOT_UPDATE else "nothing is kept any more"
    return _WHY.get(change.reason, "")


def _fields(change: Change) -> Iterator[Line]:
    type_ = TYPES[change.address.type]
    for f in change.fields:
        unseen = change.action is Action.ADOPT and f.before is None
        if unseen or _follows(f.path, change):
            continue
        hidden = f.path in type_.opaque
        spare = type_.spare
        mark = Span("  forces replacement", "magenta") if f.replaces and not spare else Span("")
        yield (*_field(f.path, sides(f, type_, opaque=hidden)), mark)
        if f.replaces and not spare and (fixed := type_.replace_on.get(f.path)) is not None:
            yield line(f"{_INDENT}  ", Span(f"{fixed.why}. To avoid it: {fixed.avoid}.", "dim"))


def sides(found: FieldChange, type_: ResourceType, *, opaque: bool) -> str:
    """`old -> new`."""
    if isinstance(found.before, Secret) and isinstance(found.after, Secret) and found.before.name == found.after.name:
        return f"{found.after}, changed"
    unit = unit_of(type_, found.path)
    return " -> ".join(show(found.path, v, opaque=opaque, unit=unit) for v in (found.before, found.after))


def unit_of(type_: ResourceType, path: str) -> Unit:
    """What a number at `path` counts, as the type's shape has it."""
    rules, found = type_.shape, None
    for part in path.split("."):
        found = rules.get(part) or (found.each if found is not None else None)
        if found is None:
            return ""
        rules = found.fields
    return "size" if found is SIZE else "duration" if found is DURATION else ""


def _holds(held: Contents) -> str:
    size = f", {format_size(held.size)}" if held.size is not None else ""
    return f"{held.objects} objects{size}, which go with it" if held.objects else "nothing"


def _follows(path: str, change: Change) -> bool:
    """A manifest changes with its artifact, and the artifact's digest already says so."""
    names = {f.path for f in change.fields}
    return (path in ("manifest", "blobs") and "artifact" in names) or (
        path in ("served", "blobs") and "artifacts" in names
    )


def _field(name: str, text: str) -> Line:
    return line(_INDENT, Span(f"{printable(name):<28} ", "dim"), printable(text))


def _build(build: BuildFacts) -> Iterator[Line]:
    """Which engine and why; which stages run and which are cached. Nothing where nothing is built."""
    if not build.stages:
        return
    reason = f": {build.engine_reason}" if build.engine_reason else ""
    yield _field("engine", f"{show('engine', build.inputs['engine'])}{reason}")
    cached = [s.name for s in build.stages if s.cached]
    remote = [s.name for s in build.stages if s.remote]
    todo = [s.name + (f" ({s.why})" if s.why else "") for s in build.stages if not s.cached and not s.remote]
    parts = [f"run {', '.join(todo)}"] if todo else []
    parts += [f"cached (remote) {', '.join(remote)}"] if remote else []
    parts += [f"cached {', '.join(cached)}"] if cached else []
    yield _field("stages", "; ".join(parts) or "(none)")


def _flatten(type_: str, inputs: Inputs) -> Iterator[tuple[str, Value]]:
    opaque = TYPES[type_].opaque
    told = {"model": {"engine"}, "archive": {"blobs"}}.get(type_, set())  # more is said of it, and elsewhere

    def walk(path: str, value: Value) -> Iterator[tuple[str, Value]]:
        if path in _QUIET or path in told or value is None or value in ([], ""):
            return
        if path in opaque:
            yield from _opaque(path, value)
        elif isinstance(value, Mapping):
            for key in sorted(value):
                if key != "bucket" or not path.startswith("config.shards."):  # a binding's name, not a bucket's
                    yield from walk(f"{path}.{key}", value[key])
        else:
            yield path, value

    for name in inputs:
        yield from walk(name, inputs[name])


def _opaque(path: str, value: Value) -> Iterator[tuple[str, Value]]:
    """Blobs are told by their number and size; other opaque inputs follow from what is shown."""
    if path == "blobs" and isinstance(value, list) and is_known(value):
        sizes = [b["size"] for b in value if isinstance(b, Mapping)]
        total = sum(s for s in sizes if isinstance(s, int))
        yield path, f"{len(value)} objects, {format_size(total)}"
    elif path == "blobs":
        yield path, value
