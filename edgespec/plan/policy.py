"""What a project's policies say of a plan. One that cannot be evaluated denies: it was written to stop something.

Each is evaluated for the plan, for every model, for every change, or for every change and every model that owns it, by
what it names (edgespec/spec/expressions.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct

from edgespec.diagnostics import Diagnostic, SourceRange, error, some, warning
from edgespec.plan.budget import Fit
from edgespec.plan.cost import Costs
from edgespec.plan.model import Action, Change, Plan
from edgespec.plan.work import Work, total, work_of
from edgespec.records import as_dict
from edgespec.secret import Secret
from edgespec.spec.document import Node
from edgespec.spec.models import EdgeModel, Policy
from edgespec.spec.validate import place
from edgespec.state.model import Key
from edgespec.values import is_known

if TYPE_CHECKING:  # else imported where there are policies
    from edgespec.spec.expressions import Expression, Scope

_NAMED: Final = 8
"""Changes and models that a message names."""
_PROVENANCE: Final = re.compile(r"model\s*\.\s*provenance")
_WHOLE: Final = re.compile(r"change\s*\.\s*(before|after)")


class Verdict(Struct, frozen=True):
    """What one policy says, of everything that it says it of."""

    policy: str
    denies: bool
    message: str
    about: tuple[str, ...]
    """Addresses of changes, or names of models; empty for the plan itself."""
    failure: str
    """Why it could not be evaluated; empty where it could."""
    source: SourceRange


class Provenance(Struct, frozen=True):
    """What policies can ask of an artifact's statement; as it is here, nobody said anything."""

    present: bool = False
    signed: bool = False
    """By anybody."""
    trusted: bool = False
    """By one of the project's keys."""
    builder: str = ""
    revision: str = ""
    """The commit; empty where it was none, or had changes on top."""


ProvenanceOf: TypeAlias = Callable[[str], Provenance | None]
"""By the name of a spec; None where it is not known."""


class Facts(Struct, frozen=True):
    """What policies can ask about. `specs` has every model that the project has, by name."""

    project: str
    environment: str
    plan: Plan
    specs: Mapping[str, EdgeModel]
    fits: Sequence[Fit]
    costs: Costs
    provenance: ProvenanceOf = lambda _: None
    """Of the artifact that a model is to serve; None where it is not known. Asked only for policies that ask."""


def evaluate(policies: Sequence[Policy], facts: Facts, node: Node) -> tuple[Verdict, ...]:
    """Every policy that speaks, in the order of the project's document, which is `node`."""
    if not policies:
        return ()
    from edgespec.spec.expressions import Expression, compile_expression

    found: list[Verdict] = []
    subjects = _Subjects(facts)
    for i, policy in enumerate(policies):
        if policy.environments and facts.environment not in policy.environments:
            continue
        compiled = compile_expression(policy.when)
        if not isinstance(compiled, Expression):  # `validate` has refused it
            continue
        found += _speak(policy, compiled, subjects, place(node, ("policies", i, "when")))
    return tuple(found)


def _speak(policy: Policy, compiled: Expression, subjects: _Subjects, where: SourceRange) -> Iterator[Verdict]:
    true: list[str] = []
    failed: dict[str, list[str]] = {}
    served = _PROVENANCE.search(policy.when) is not None
    for about, data in subjects.of(compiled.scope, whole=_WHOLE.search(policy.when) is not None, served=served):
        answer = _ask(compiled, data)
        if answer is True:
            true.append(about)
        elif isinstance(answer, str):
            failed.setdefault(answer, []).append(about)
    if true:
        yield Verdict(policy.name, policy.deny is not None, policy.message, _unique(true), "", where)
    for why, names in failed.items():
        yield Verdict(policy.name, True, policy.message, _unique(names), why, where)


def _unique(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(n for n in names if n))


def _ask(compiled: Expression, data: Mapping[str, Any]) -> bool | str:
    """Whether it is true, or why that cannot be told."""
    try:
        found = compiled.program.eval(data=data)
    except (RuntimeError, ValueError, TypeError) as e:
        return _plain(str(e))
    value, kind = found.value(), found.type().name()
    if kind == "ERROR":
        return _plain(str(value))
    return value if isinstance(value, bool) else f"it gives a {kind.lower().partition('<')[0]}, and not true or false"


def _plain(message: str) -> str:
    """cel-cpp's message without its own codes."""
    said = re.sub(r"^[A-Z_]+: ", "", message.splitlines()[0])
    if missing := re.match(r'No value with name "([\w.]+)"', said):
        return f"`{missing[1]}` is not known here"
    if key := re.match(r"Key not found in map : (.*)", said):
        return f"there is no {key[1]}; ask for it by `has(...)` or `in` first"
    return said[:1].lower() + said[1:]


def diagnostics(verdicts: Sequence[Verdict]) -> Iterator[Diagnostic]:
    """Denials as errors, the rest as warnings, at the policy's place."""
    for v in verdicts:
        about = f" ({some(v.about, _NAMED)})" if v.about else ""
        if v.failure:
            detail = f"{v.policy}{about}: {v.failure}. What it is for: {v.message}"
            yield error("ES231", "A policy cannot be evaluated, and so denies", detail, source=v.source)
        elif v.denies:
            yield error("ES230", "A policy denies this", f"{v.policy}: {v.message}{about}", source=v.source)
        else:
            yield warning("ES232", "A policy warns", f"{v.policy}: {v.message}{about}", source=v.source)


class _Subjects:
    """The variables of everything that can be asked about, each made once. What is not known has no entry: asking for
    it is a failure, and not a comparison with nothing."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._work = work_of(facts.plan)
        self._plan = dict(_of_plan(facts))
        self._models: dict[str, dict[str, Any]] = {}

    def of(self, scope: Scope, *, whole: bool, served: bool) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """With `whole`, changes with all their inputs, which may be long; with `served`, only models that the plan
        leaves something to serve with."""
        from edgespec.spec.expressions import Scope

        changes = [c for c in self._facts.plan.changes if c.action is not Action.NOOP]
        if scope is Scope.PLAN:
            yield "", self._plan
        elif scope is Scope.MODEL:
            for name in sorted({o for c in changes for o in c.owners} | {f.spec.name for f in self._facts.fits}):
                if name in self._facts.specs and not (served and self._facts.provenance(name) is None):
                    yield name, {**self._plan, **self._model(name)}
        else:
            for change in changes:
                seen = {**self._plan, **dict(_of_change(change, self._facts.plan, self._work, whole=whole))}
                if scope is Scope.CHANGE:
                    yield str(change.key), seen
                    continue
                for owner in change.owners or ("",):
                    if served and self._facts.provenance(owner) is None:
                        continue
                    spec = self._facts.specs.get(owner)
                    labels = {"change.labels": dict(spec.metadata.labels) if spec else {}}
                    yield str(change.key), {**seen, **self._model(owner), **labels}

    def _model(self, name: str) -> dict[str, Any]:
        if name not in self._models:
            self._models[name] = dict(_of_model(name, self._facts))
        return self._models[name]


def _of_plan(facts: Facts) -> Iterator[tuple[str, Any]]:
    plan, upload = facts.plan, total(facts.plan).upload
    yield "project", facts.project
    yield "environment", facts.environment
    for action in Action:
        if action is not Action.NOOP:
            yield f"plan.{action.value}", plan.count(action)
    yield "plan.changes", sum(c.action is not Action.NOOP for c in plan.changes)
    yield "cost.before", facts.costs.before.usd
    yield "cost.after", facts.costs.after.usd
    if upload is not None:
        yield "plan.upload_bytes", upload


def _of_model(name: str, facts: Facts) -> Iterator[tuple[str, Any]]:
    spec = facts.specs.get(name)
    yield "spec", _plain_data(spec.model_dump(mode="json", exclude_none=True)) if spec else {}
    if (found := facts.provenance(name)) is not None:
        yield from ((f"model.provenance.{field}", value) for field, value in as_dict(found).items())
    fit = next((f for f in facts.fits if f.spec.name == name), None)
    yield "fit.measured", fit is not None and fit.measured is not None
    if fit is not None:
        yield "fit.script", fit.script
        if fit.measured is not None:
            yield "fit.memory", fit.measured.memory
            yield "fit.cpu_p50_ms", float(fit.measured.cpu_p50_ms)
            yield "fit.cpu_p99_ms", float(fit.measured.cpu_p99_ms)
    cost = next((m for m in facts.costs.models if m.name == name), None)
    yield "cost.model_before", cost.before.usd if cost and cost.before else 0.0
    yield "cost.model_after", cost.after.usd if cost and cost.after else 0.0


def _of_change(change: Change, plan: Plan, work: Mapping[Key, Work], *, whole: bool) -> Iterator[tuple[str, Any]]:
    held, upload = plan.contents.get(change.key), work.get(change.key, Work()).upload
    yield "change.address", str(change.key)
    yield "change.type", change.address.type
    yield "change.name", change.address.name
    yield "change.action", change.action.value
    yield "change.reason", change.reason.value
    yield "change.owners", list(change.owners)
    yield "change.protected", change.protected
    yield "change.moved_from", str(change.moved_from) if change.moved_from else ""
    yield (
        "change.fields",
        {
            f.path: {
                "before": _plain_data(f.before),
                "after": _plain_data(f.after),
                "known": is_known(f.after),
                "replaces": f.replaces,
            }
            for f in change.fields
        },
    )
    if whole:
        yield "change.before", _plain_data(dict(change.before or {}))
        yield "change.after", _plain_data(dict(change.after or {}))
    yield "change.objects", held.objects if held else 0
    if held is None or held.size is not None:
        yield "change.bytes", held.size if held and held.size else 0
    if upload is not None:
        yield "change.upload_bytes", upload


def _plain_data(value: Any) -> Any:
    """What CEL takes: null for what is not known yet, the name of a secret."""
    if isinstance(value, Secret):
        return str(value)
    if isinstance(value, Mapping):
        return {str(k): _plain_data(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain_data(v) for v in value]
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else float(value)
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else None
