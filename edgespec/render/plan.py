"""A plan as a person reviews it: totals, then the dangerous part, then the rest; unchanged things are not listed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from edgespec.address import Address
from edgespec.plan.model import Action, Change, Plan, Reason
from edgespec.render.text import Line, Span, line, show
from edgespec.resources.compile import TYPES
from edgespec.resources.facts import BuildFacts
from edgespec.spec.units import format_size
from edgespec.values import Inputs, Value, is_known

_ORDER: Final = (Action.DELETE, Action.REPLACE, Action.UPDATE, Action.ADOPT, Action.CREATE)
_SIGNS: Final = {
    Action.CREATE: ("+", "green"),
    Action.UPDATE: ("~", "yellow"),
    Action.REPLACE: ("-/+", "magenta"),
    Action.DELETE: ("-", "red"),
    Action.ADOPT: (">", "cyan"),
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
}
_QUIET: Final = (
    "compatibility_date", "compatibility_flags", "config.limits", "config.name", "config.cache", "bindings", "bundle",
    "workers_dev", "tools", "manifest", "chunk",
)  # fmt: skip
"""Inputs that a new resource's listing leaves out, since they follow from the spec or from what is listed beside
them; a change to one is always shown."""
_INDENT: Final = " " * 8


def render(plan: Plan, project: str, environment: str) -> list[Line]:
    """Every change and the totals."""
    title = line(Span(f"Plan for {project} in {environment}: ", "bold"), Span(summary(plan), "bold"))
    changes = [c for c in plan.changes if c.action is not Action.NOOP]
    if not changes:
        return [line(Span(f"{project} in {environment}: no changes. What is live is what the specs ask for.", "green"))]
    lines = [title, ()]
    for change in sorted(changes, key=lambda c: _ORDER.index(c.action)):  # in the order of the graph within each
        lines += _change(change, plan.builds)
    return lines


def summary(plan: Plan) -> str:
    """`3 to create, 1 to replace`: only the actions that occur."""
    words = {
        Action.DELETE: "delete",
        Action.REPLACE: "replace",
        Action.UPDATE: "update",
        Action.ADOPT: "adopt",
        Action.CREATE: "create",
    }
    parts = [f"{n} to {words[a]}" for a in _ORDER if (n := plan.count(a))]
    return ", ".join(parts) or "no changes"


def _change(change: Change, builds: Mapping[Address, BuildFacts]) -> Iterator[Line]:
    sign, colour = _SIGNS[change.action]
    why = f"  ({_WHY[change.reason]})" if change.reason in _WHY else ""
    yield line("  ", Span(f"{sign:>3} ", colour), Span(str(change.key), "bold"), Span(why, "dim"))
    if change.action in (Action.CREATE, Action.ADOPT) and change.after is not None:
        seen = change.before or {}
        new = {k: v for k, v in change.after.items() if k not in seen}
        yield from (_field(path, show(path, value)) for path, value in _flatten(change.address.type, new))
    if change.action is not Action.CREATE:
        opaque = TYPES[change.address.type].opaque
        for f in change.fields:
            unseen = change.action is Action.ADOPT and f.before is None
            if unseen or _follows(f.path, change):
                continue
            hidden = f.path in opaque
            before, after = show(f.path, f.before, opaque=hidden), show(f.path, f.after, opaque=hidden)
            mark = Span("  forces replacement", "magenta") if f.replaces else Span("")
            yield (*_field(f.path, f"{before} -> {after}"), mark)
    if change.action is not Action.DELETE and (build := builds.get(change.address)) is not None:
        yield from _build(build)
    yield ()


def _follows(path: str, change: Change) -> bool:
    """A manifest changes with its artifact, and the artifact's digest already says so."""
    names = {f.path for f in change.fields}
    return path in ("manifest", "blobs") and "artifact" in names


def _field(name: str, text: str) -> Line:
    return line(_INDENT, Span(f"{name:<28} ", "dim"), text)


def _build(build: BuildFacts) -> Iterator[Line]:
    """Which engine and why; which stages run and which are cached."""
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
    told = {"engine"} if type_ == "model" else set()  # with its reason, from the build

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
