"""Policies' expressions in CEL: which variables they have, and whether they can be read. Google's CEL is imported only
where there is a policy.

The fields of `change`, `plan`, `cost` and `fit` are declared one by one under their dotted names, so that a mistyped
one is an error of `validate` and not a policy that never denies anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from edgespec.diagnostics import Diagnostic, EdgespecError, error
from edgespec.spec.document import Node
from edgespec.spec.inside import place_inside
from edgespec.spec.validate import suggest

BOOL, INT, NUMBER, TEXT, TEXTS, MAP = "bool", "int", "double", "string", "list of string", "map"

PLAN: Final[Mapping[str, str]] = {
    "project": TEXT,
    "environment": TEXT,
    **{f"plan.{action}": INT for action in ("create", "adopt", "update", "replace", "delete", "move")},
    "plan.changes": INT,
    "plan.upload_bytes": INT,
    "cost.before": NUMBER,
    "cost.after": NUMBER,
}
"""Of the whole plan. Costs are USD a month."""
MODEL: Final[Mapping[str, str]] = {
    "spec": MAP,
    "model.provenance.present": BOOL,
    "model.provenance.signed": BOOL,
    "model.provenance.trusted": BOOL,
    "model.provenance.builder": TEXT,
    "model.provenance.revision": TEXT,
    "fit.script": INT,
    "fit.measured": BOOL,
    "fit.memory": INT,
    "fit.cpu_p50_ms": NUMBER,
    "fit.cpu_p99_ms": NUMBER,
    "cost.model_before": NUMBER,
    "cost.model_after": NUMBER,
}
"""Of one model."""
CHANGE: Final[Mapping[str, str]] = {
    "change.address": TEXT,
    "change.type": TEXT,
    "change.name": TEXT,
    "change.action": TEXT,
    "change.reason": TEXT,
    "change.owners": TEXTS,
    "change.protected": BOOL,
    "change.moved_from": TEXT,
    "change.fields": MAP,
    "change.before": MAP,
    "change.after": MAP,
    "change.bytes": INT,
    "change.objects": INT,
    "change.upload_bytes": INT,
}
"""Of one change."""
OWNER: Final[Mapping[str, str]] = {"change.labels": MAP}
"""Of one change and one of the models that own it."""


class Scope(StrEnum):
    """What an expression is evaluated for, once each."""

    PLAN = "plan"
    MODEL = "model"
    CHANGE = "change"
    OWNER = "change and model"


VARIABLES: Final[Mapping[Scope, Mapping[str, str]]] = {
    Scope.PLAN: PLAN,
    Scope.MODEL: {**PLAN, **MODEL},
    Scope.CHANGE: {**PLAN, **CHANGE},
    Scope.OWNER: {**PLAN, **MODEL, **CHANGE, **OWNER},
}
"""From the fewest to the most: an expression's scope is the first that has all that it names."""
_NAMESPACES: Final = frozenset(name.split(".")[0] for name in VARIABLES[Scope.OWNER] if "." in name)


class Expression(Struct, frozen=True):
    """One that can be read."""

    scope: Scope
    program: Any


class Fault(Struct, frozen=True):
    """What is wrong, at a line and column of the expression, from 1."""

    line: int
    column: int
    length: int
    detail: str


def compile_expression(text: str) -> Expression | tuple[Fault, ...]:
    """The expression, or everything that is wrong with it."""
    cel = _cel()
    faults: tuple[Fault, ...] = ()
    for scope in Scope:
        try:
            program = _environment(cel, scope).compile(text)
        except RuntimeError as e:
            faults = tuple(_faults(str(e), text))  # those of the last scope count: it knows every name
            continue
        result = program.return_type()
        if result not in (cel.Type.BOOL, cel.Type.DYN):
            detail = f"It gives {_plain_type(result.name())}; `when` must give true or false."
            return (Fault(1, 1, len(text.split("\n")[0]), detail),)
        return Expression(scope, program)
    return faults


def check_expression(text: str, node: Node) -> Iterable[Diagnostic]:
    """What is wrong with the expression that `node` holds, at its places in the file."""
    found = compile_expression(text)
    if isinstance(found, Expression):
        return
    for fault in found:
        where = place_inside(node, fault.line, fault.column, fault.length)
        yield error("ES172", "Not a valid expression", fault.detail, source=where)


def check_literals(text: str, node: Node, known: Mapping[str, Iterable[str]]) -> Iterable[Diagnostic]:
    """Texts that a variable is compared to and can never be: a policy with one never speaks."""
    for name, values in known.items():
        pattern = rf"(?<![\w.]){re.escape(name)}\s*(?:[=!]=\s*({_QUOTED})|in\s*\[([^\]]*)\])"
        for match in re.finditer(pattern, text):
            for quoted in re.finditer(_QUOTED, match[0]):
                word = quoted[0][1:-1]
                if word not in values:
                    start = match.start() + quoted.start()
                    before = text[:start].split("\n")
                    where = place_inside(node, len(before), len(before[-1]) + 1, len(quoted[0]))
                    listed = ", ".join(values)
                    detail = f"`{name}` is never {quoted[0]}; it is one of {listed}.{suggest(word, values)}"
                    yield error("ES173", "Never true", detail, source=where)


_QUOTED: Final = r"\"[^\"\\\n]*\"|'[^'\\\n]*'"
_ERROR: Final = re.compile(r"^(?:INVALID_ARGUMENT: )?ERROR: <input>:(\d+):(\d+): (.*)$", re.MULTILINE)
_NAME: Final = re.compile(r"[A-Za-z_][\w.]*")


def _faults(message: str, text: str) -> Iterable[Fault]:
    rows = text.split("\n")
    matches = list(_ERROR.finditer(message))
    for match in matches:
        line, column, said = int(match[1]), int(match[2]), match[3]
        row = rows[line - 1] if line <= len(rows) else ""
        if said.startswith("Syntax error") and match is not matches[0]:
            continue  # it follows from the first
        undeclared = re.match(r"undeclared reference to '([^']*)'", said)
        if undeclared:
            yield _undeclared(undeclared[1], line, column, row)
        else:
            yield Fault(line, column, 1, _sentence(said))
    if not matches:
        yield Fault(1, 1, len(rows[0]), f"{message.splitlines()[0]}.")


def _undeclared(name: str, line: int, column: int, row: str) -> Fault:
    """CEL points at the last dot of a dotted name, and at the parenthesis of a call."""
    called = row[column - 1 : column] == "("
    start = column - 1 - len(name) if called else column - 1
    if not called:
        start = next((m.start() for m in _NAME.finditer(row) if m.start() < column <= m.end()), start)
    known = VARIABLES[Scope.OWNER]
    if name in _NAMESPACES:
        fields = ", ".join(sorted(n for n in known if n.startswith(f"{name}.")))
        return Fault(line, start + 1, len(name), f"`{name}` alone is no value; it has {fields}.")
    if called:
        return Fault(line, start + 1, len(name), f"`{name}` is not a function of CEL.")
    namespace = name.split(".")[0]
    listed = sorted(n for n in known if n.split(".")[0] == namespace) if namespace in _NAMESPACES else sorted(known)
    hint = suggest(name, listed) or f" Known: {', '.join(listed)}."
    detail = f"`{name}` is not a variable.{hint}"
    return Fault(line, start + 1, len(name), detail)


def _sentence(said: str) -> str:
    """cel-cpp's message for people who write YAML."""
    said = said.removesuffix(" [INVALID_ARGUMENT]")
    overload = re.match(r"found no matching overload for '(\S+)' applied to '\((.*)\)'", said)
    if overload:
        operator = overload[1].strip("_").replace("_", " ").strip()
        types = [_plain_type(t.strip()) for t in re.split(r",\s*(?![^(]*\))", overload[2])]
        detail = f"`{operator}` does not take {' and '.join(types)}."
        if {"double", "int"} == {t.strip() for t in overload[2].split(",")}:
            detail += " Write the whole number with a decimal point: 20.0."
        return detail
    said = said.removeprefix("Syntax error: ")
    said = re.sub(r" expecting (\{.*\}|<EOF>)", "", said).replace("mismatched input '<EOF>'", "it ends too early")
    return f"{said[0].upper()}{said[1:]}."


def _plain_type(name: str) -> str:
    words = {"string": "a text", "int": "a whole number", "double": "a decimal number", "bool": "true or false"}
    return words.get(name.lower(), f"a value of type {name.lower()}")


_ENVIRONMENTS: dict[Scope, Any] = {}


def _environment(cel: Any, scope: Scope) -> Any:
    if scope not in _ENVIRONMENTS:
        types = {
            BOOL: cel.Type.BOOL,
            INT: cel.Type.INT,
            NUMBER: cel.Type.DOUBLE,
            TEXT: cel.Type.STRING,
            TEXTS: cel.Type.List(cel.Type.STRING),
            MAP: cel.Type.Map(cel.Type.STRING, cel.Type.DYN),
        }
        _ENVIRONMENTS[scope] = cel.NewEnv(variables={name: types[t] for name, t in VARIABLES[scope].items()})
    return _ENVIRONMENTS[scope]


def _cel() -> Any:
    try:
        from cel_expr_python import cel
    except ImportError as e:
        detail = f"`policies` need the package cel-expr-python, which cannot be imported here: {e}."
        raise EdgespecError(error("ES233", "Policies cannot be read", detail)) from e
    return cel
