"""`${NAME}` in `target` and `state` of a Project: read from the environment, nowhere else and never for a secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from edgespec.diagnostics import Diagnostic, error
from edgespec.spec.document import Node

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_STAND_IN: Final = "0" * 32
"""Keeps the shape of an account id in environments that are not the one in use."""


def substitute(project: Node, variables: Mapping[str, str], selected: str | None) -> list[Diagnostic]:
    """Replace variables in place; an unset one is an error only in the `selected` environment."""
    found: list[Diagnostic] = []
    environments = project.child("environments")
    allowed: set[int] = set()
    for name, environment in environments.entries.items() if environments else ():
        for field in ("target", "state"):
            branch = environment.child(field)
            for node in branch.walk() if branch else ():
                allowed.add(id(node))
                found += _replace(node, variables, required=name == selected)
    found += [_misplaced(n) for n in project.walk() if id(n) not in allowed and _has_variable(n)]
    return found


def refuse(spec: Node) -> list[Diagnostic]:
    """Variables in an EdgeModel: never allowed, since a spec must mean the same on every machine."""
    return [_misplaced(n) for n in spec.walk() if _has_variable(n)]


def _has_variable(node: Node) -> bool:
    return node.kind == "scalar" and node.value is not None and _VARIABLE.fullmatch(node.value) is not None


def _misplaced(node: Node) -> Diagnostic:
    detail = f"{node.value} is read only under `target` and `state` of an environment; write the value itself."
    return error("ES120", "A variable is not allowed here", detail, source=node.where)


def _replace(node: Node, variables: Mapping[str, str], *, required: bool) -> list[Diagnostic]:
    if node.kind != "scalar" or node.value is None:
        return []
    unset = sorted({n for n in _VARIABLE.findall(node.value) if not variables.get(n)})
    node.value = _VARIABLE.sub(lambda m: variables.get(m[1]) or _STAND_IN, node.value)
    if not (unset and required):
        return []
    detail = f"Set {' and '.join(unset)} in the environment and run again."
    return [error("ES121", "Variable is not set", detail, source=node.where)]
