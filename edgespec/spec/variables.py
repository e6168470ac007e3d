"""`${NAME}` in `target` and `state` of a Project: read from the environment, nowhere else and never for a secret."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from edgespec.diagnostics import Diagnostic, error
from edgespec.spec.document import Node

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_FIELDS: Final = ("target", "state")
STAND_IN: Final = "0" * 32
"""Keeps the shape of an account id in environments that are not the one in use."""


def substitute(project: Node, variables: Mapping[str, str], selected: str | None) -> list[Diagnostic]:
    """Replace variables in place; an unset one is an error only in the `selected` environment."""
    branches = list(_branches(project))
    inside = {id(node): node for _, branch in branches for node in branch.walk()}
    required = {id(node) for name, branch in branches if name == selected for node in branch.walk()}
    found = [_misplaced(n) for n in _outside(project) if _has_variable(n)]
    for key, node in inside.items():
        found += _replace(node, variables, required=key in required)
    return found


def refuse(spec: Node) -> list[Diagnostic]:
    """Variables in an EdgeModel: never allowed, since a spec must mean the same on every machine."""
    return [_misplaced(n) for n in spec.walk() if _has_variable(n)]


def _branches(project: Node) -> Iterator[tuple[str, Node]]:
    """Each environment's name and what may hold variables in it."""
    environments = project.child("environments")
    for name, environment in environments.entries.items() if environments else ():
        for field in _FIELDS:
            if (branch := environment.child(field)) is not None:
                yield name, branch


def _outside(project: Node) -> Iterator[Node]:
    """Everything else, by where it stands: what is inside may be meant elsewhere too, by an alias."""
    for name, node in project.entries.items():
        if name != "environments" or node.kind != "map":
            yield from node.walk()
            continue
        for environment in node.entries.values():
            inside = environment.entries.items() if environment.kind == "map" else [("", environment)]
            for field, value in inside:
                if field not in _FIELDS:
                    yield from value.walk()


def _has_variable(node: Node) -> bool:
    return node.kind == "scalar" and node.value is not None and _VARIABLE.search(node.value) is not None


def _misplaced(node: Node) -> Diagnostic:
    detail = f"{node.value} is read only under `target` and `state` of an environment; write the value itself."
    return error("ES120", "A variable is not allowed here", detail, source=node.where)


def _replace(node: Node, variables: Mapping[str, str], *, required: bool) -> list[Diagnostic]:
    if node.value is None or not _has_variable(node):
        return []
    unset = sorted({n for n in _VARIABLE.findall(node.value) if not variables.get(n)})
    node.written = node.value
    node.value = _VARIABLE.sub(lambda m: variables.get(m[1]) or STAND_IN, node.value)
    if not (unset and required):
        return []
    detail = f"Set {' and '.join(unset)} in the environment and run again."
    return [error("ES121", "Variable is not set", detail, source=node.where)]
