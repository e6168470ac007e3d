"""Texts to a project and its specs: every error of every file at once. Pure: the texts are given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from edgespec.diagnostics import Checked, Diagnostic, Diagnostics, error
from edgespec.spec import variables
from edgespec.spec.check import check_project, check_spec
from edgespec.spec.document import Node, Source, parse
from edgespec.spec.models import API_VERSION, EdgeModel, Project
from edgespec.spec.validate import key_place, place, suggest, validate

KINDS = ("Project", "EdgeModel")


@dataclass(frozen=True, slots=True)
class LoadedSpec:
    spec: EdgeModel
    node: Node
    path: str


@dataclass(frozen=True, slots=True)
class LoadedProject:
    project: Project
    node: Node
    path: str


def load_project(source: Source, environ: Mapping[str, str], selected: str | None) -> Checked[LoadedProject]:
    """The one Project document of edgespec.yaml; variables of the `selected` environment must be set."""
    parsed = parse(source)
    found: list[Diagnostic] = list(parsed.diagnostics)
    if parsed.value is None:
        return Checked(None, Diagnostics(tuple(found)))
    nodes = [n for n in parsed.value if _expect_kind(n, "Project", found)]
    if not nodes:
        if not found:
            detail = f"{source.path} must hold one document with `apiVersion: {API_VERSION}` and `kind: Project`."
            found.append(error("ES131", "No project", detail, source=source.range(0, 0)))
        return Checked(None, Diagnostics(tuple(found)))
    if len(nodes) > 1:
        found.append(error("ES132", "More than one project", "A file describes one project.", source=nodes[1].where))
    node = nodes[0]
    found += variables.substitute(node, environ, selected)
    checked = validate(Project, node, "Project")
    found += checked.diagnostics
    if checked.value is None:
        return Checked(None, Diagnostics(tuple(found)))
    if selected is not None and selected not in checked.value.environments:
        known = ", ".join(sorted(checked.value.environments))
        where = key_place(node, ("environments",))
        detail = f"{selected!r} is not one of {known}.{suggest(selected, checked.value.environments)}"
        found.append(error("ES133", "Unknown environment", detail, source=where))
    found += check_project(checked.value, node)
    return Checked(LoadedProject(checked.value, node, source.path), Diagnostics(tuple(found)))


def load_specs(sources: Sequence[Source], project: Project) -> Checked[tuple[LoadedSpec, ...]]:
    """Every EdgeModel of the files, sorted by name."""
    found: list[Diagnostic] = []
    specs: dict[str, LoadedSpec] = {}
    for source in sources:
        parsed = parse(source)
        found += parsed.diagnostics
        nodes = parsed.value or []
        if not nodes and not parsed.diagnostics.has_errors:
            found.append(error("ES134", "Empty file", "It holds no EdgeModel.", source=source.range(0, 0)))
        for node in nodes:
            loaded = _load_spec(node, source.path, project, found)
            if loaded is None:
                continue
            if (other := specs.get(loaded.spec.name)) is not None:
                first = key_place(other.node, ("metadata", "name"))
                detail = f"{loaded.spec.name!r} is also defined at {first}; names are unique in a project."
                found.append(error("ES135", "Duplicate name", detail, source=key_place(node, ("metadata", "name"))))
            else:
                specs[loaded.spec.name] = loaded
    found += _check_renames(specs)
    return Checked(tuple(specs[n] for n in sorted(specs)), Diagnostics(tuple(found)))


def _check_renames(specs: Mapping[str, LoadedSpec]) -> Iterator[Diagnostic]:
    """What was deployed under a name goes to one spec, and to none while a spec still has that name."""
    path = ("lifecycle", "renamed_from")
    claims: dict[str, LoadedSpec] = {}
    for name, loaded in sorted(specs.items()):
        old = loaded.spec.lifecycle.renamed_from
        if old is None:
            continue
        where = place(loaded.node, path)
        if (holder := specs.get(old)) is not None:
            at = place(holder.node, ("metadata", "name"))
            detail = f"{old!r} is a spec of this project, at {at}: what is deployed under that name belongs to it."
            yield error("ES171", "Cannot be renamed from this", detail, source=where)
        elif (other := claims.get(old)) is not None:
            detail = (
                f"{name} and {other.spec.name} both claim what {old} deployed; the other claim is at "
                f"{place(other.node, path)}. Keep one."
            )
            yield error("ES171", "Cannot be renamed from this", detail, source=where)
        else:
            claims[old] = loaded


def _load_spec(node: Node, path: str, project: Project, found: list[Diagnostic]) -> LoadedSpec | None:
    if not _expect_kind(node, "EdgeModel", found):
        return None
    found += variables.refuse(node)
    checked = validate(EdgeModel, node, "EdgeModel")
    found += checked.diagnostics
    if checked.value is None:
        return None
    found += check_spec(checked.value, node, project)
    return LoadedSpec(checked.value, node, path)


def _expect_kind(node: Node, wanted: str, found: list[Diagnostic]) -> bool:
    """Whether the document says that it is of the wanted kind; says why where it is not."""
    if node.kind != "map":
        start = f"`apiVersion: {API_VERSION}` and `kind: {wanted}`"
        detail = f"A document is a map that starts with {start}, got a {node.kind}."
        found.append(error("ES130", "Not a document", detail, source=node.where))
        return False
    version, kind = node.child("apiVersion"), node.child("kind")
    if version is not None and version.value not in (API_VERSION, None):
        detail = f"This edgespec reads {API_VERSION}, not {version.value!r}."
        found.append(error("ES136", "Unknown apiVersion", detail, source=version.where))
        return False
    if kind is None or kind.value is None:
        where = node.where if kind is None else node.keys["kind"]
        found.append(error("ES111", "Missing field", f"Write `kind: {wanted}`.", source=where))
        return False
    if kind.value == wanted:
        return True
    name = kind.value
    detail = (
        f"This file holds {wanted} documents; {name} documents stand in another."
        if name in KINDS
        else f"{name!r} is not a kind; this file holds {wanted} documents.{suggest(name, KINDS)}"
    )
    found.append(error("ES137", "Wrong kind", detail, source=kind.where))
    return False
