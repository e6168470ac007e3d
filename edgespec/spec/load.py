"""Texts to a project and its specs: every error of every file at once. Pure: the texts are given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from edgespec.diagnostics import Checked, Diagnostic, Diagnostics, error
from edgespec.spec import variables
from edgespec.spec.check import check_project, check_spec
from edgespec.spec.document import Node, Source, parse
from edgespec.spec.models import API_VERSION, EdgeModel, Project
from edgespec.spec.overlays import Overlay, check_matches, check_overlays, chosen, name_of, overlaid
from edgespec.spec.validate import key_place, place, suggest, validate

KINDS = ("Project", "EdgeModel", "Releases")


class LoadedSpec(Struct, frozen=True):
    spec: EdgeModel
    node: Node
    path: str


class LoadedProject(Struct, frozen=True):
    project: Project
    node: Node
    path: str
    diagnostics: Diagnostics = Diagnostics()


def load_project(source: Source, environ: Mapping[str, str], selected: str | None) -> Checked[LoadedProject]:
    """The one Project document of edgespec.yaml; variables of the `selected` environment must be set."""
    parsed = parse(source)
    found: list[Diagnostic] = list(parsed.diagnostics)
    if parsed.value is None:
        return Checked(None, Diagnostics(tuple(found)))
    nodes = [n for n in parsed.value if expect_kind(n, "Project", found)]
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
    found += check_overlays(node)
    return Checked(LoadedProject(checked.value, node, source.path), Diagnostics(tuple(found)))


class SpecFiles:
    """The EdgeModel documents of a project's files, read once for any number of environments."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._found: list[Diagnostic] = []
        self._documents: list[tuple[Node, str]] = []
        self._validated: dict[int, Checked[EdgeModel]] = {}
        """By the document's identity, of those that no overlay changes."""
        self._whole = True
        """Whether every file could be read: else specs may be missing that an overlay names."""
        for source in sources:
            parsed = parse(source)
            self._found += parsed.diagnostics
            self._whole &= not parsed.diagnostics.has_errors
            if not parsed.value and not parsed.diagnostics.has_errors:
                self._found.append(error("ES134", "Empty file", "It holds no EdgeModel.", source=source.range(0, 0)))
            for node in parsed.value or ():
                if expect_kind(node, "EdgeModel", self._found):
                    if "${" in source.text or "\\" in source.text:  # what an escape stands for may be either of them
                        self._found += variables.refuse(node)
                    self._documents.append((node, source.path))

    def load(self, project: Project, overlays: Sequence[Overlay] = ()) -> Checked[tuple[LoadedSpec, ...]]:
        """Every spec with the overlays that it is chosen by, sorted by name."""
        found: list[Diagnostic] = []
        specs: dict[str, LoadedSpec] = {}
        used: set[str] = set()
        for node, path in self._documents:
            mine = chosen(overlays, node)
            used.update(o.text for o in mine)
            merged = overlaid(node, mine)
            checked = self._validate(merged, project, base=merged is node)
            found += checked.diagnostics
            if checked.value is None:
                continue
            name, where = checked.value.name, key_place(node, ("metadata", "name"))
            if (other := specs.get(name)) is not None:
                first = key_place(other.node, ("metadata", "name"))
                detail = f"{name!r} is also defined at {first}; names are unique in a project."
                found.append(error("ES135", "Duplicate name", detail, source=where))
            else:
                specs[name] = LoadedSpec(checked.value, merged, path)
        if self._whole:
            found += check_matches(overlays, frozenset(used), [name_of(node) for node, _ in self._documents])
        found += _check_renames(specs)
        return Checked(tuple(specs[n] for n in sorted(specs)), Diagnostics(tuple(dict.fromkeys(self._found + found))))

    def _validate(self, node: Node, project: Project, *, base: bool) -> Checked[EdgeModel]:
        if base and id(node) in self._validated:
            return self._validated[id(node)]
        checked = validate(EdgeModel, node, "EdgeModel")
        if checked.value is not None:
            rules = check_spec(checked.value, node, project)
            checked = Checked(checked.value, checked.diagnostics + Diagnostics(tuple(rules)))
        if base:
            self._validated[id(node)] = checked
        return checked


def load_specs(
    sources: Sequence[Source], project: Project, overlays: Sequence[Overlay] = ()
) -> Checked[tuple[LoadedSpec, ...]]:
    """Every EdgeModel of the files, sorted by name."""
    return SpecFiles(sources).load(project, overlays)


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


def expect_kind(node: Node, wanted: str, found: list[Diagnostic]) -> bool:
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
