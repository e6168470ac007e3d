"""Which specs a label selector picks, in the environment in use."""

from __future__ import annotations

from edgespec.diagnostics import EdgespecError, error
from edgespec.plan.model import Request
from edgespec.records import replace
from edgespec.spec.selectors import parse_selector
from edgespec.workspace import Workspace


def selected(workspace: Workspace, request: Request, selector: str | None) -> Request:
    """`request` for the specs that have the labels, by those of the environment's overlays; as it is without selector.
    Raises where there is no such spec, since a request without names is for everything."""
    if selector is None:
        return request
    names = names_of(workspace, selector)
    workspace.check_names(request.names)
    both = tuple(n for n in names if not request.names or n in request.names)
    if not both:
        detail = f"No spec in {workspace.environment} has labels that {selector!r} selects{_among(request)}."
        raise EdgespecError(error("ES185", "Nothing is selected", detail))
    return replace(request, names=both)


def narrowed(workspace: Workspace, names: tuple[str, ...], selector: str | None) -> tuple[str, ...]:
    """`selected` for what takes names: the ones that are meant, none for all."""
    return selected(workspace, Request(names), selector).names


def names_of(workspace: Workspace, selector: str) -> tuple[str, ...]:
    """The specs that have the labels."""
    try:
        parsed = parse_selector(selector)
    except ValueError as e:
        detail = f"{selector!r}: {e}. Write labels such as `team=support` or `tier in (a, b)`."
        raise EdgespecError(error("ES180", "Not a selector", detail)) from None
    return tuple(s.name for s in workspace.specs if parsed.matches(s.metadata.labels))


def _among(request: Request) -> str:
    return f" among {', '.join(request.names)}" if request.names else ""
