"""Rules of a project's policies: names, environments, and expressions that can be read and can be true."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edgespec.diagnostics import Diagnostic, error
from edgespec.spec.document import Node
from edgespec.spec.expressions import check_expression, check_literals
from edgespec.spec.models import Project
from edgespec.spec.validate import Path, locate, place, suggest

_ACTIONS: Final = ("create", "adopt", "update", "replace", "delete", "move")
_REASONS: Final = (
    "new", "changed", "renamed", "cannot-update", "not-in-spec", "drifted", "missing-remotely", "interrupted",
    "deposed", "exists-unmanaged", "destroy",
)  # fmt: skip
"""As the planner has them, which this package does not know."""


def check_policies(project: Project, node: Node) -> Iterator[Diagnostic]:
    """Every broken rule of the policies."""
    known = {"change.action": _ACTIONS, "change.reason": _REASONS, "environment": tuple(project.environments)}
    names: dict[str, int] = {}
    for i, policy in enumerate(project.policies):
        path: Path = ("policies", i)
        if policy.name in names:
            first = place(node, ("policies", names[policy.name], "name"))
            detail = f"{policy.name!r} is also at {first}; a refusal could not be told from the other's."
            yield error("ES175", "Duplicate policy", detail, source=place(node, (*path, "name")))
        names.setdefault(policy.name, i)
        for j, environment in enumerate(policy.environments):
            if environment not in project.environments:
                detail = (
                    f"{environment!r} is no environment of this project.{suggest(environment, project.environments)}"
                )
                where = place(node, (*path, "environments", j))
                yield error("ES133", "Unknown environment", detail, source=where)
        expression, _ = locate(node, (*path, "when"))
        found = list(check_expression(policy.when, expression))
        yield from found or check_literals(policy.when, expression, known)
