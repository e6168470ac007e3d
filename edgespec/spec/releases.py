"""`releases/<environment>.yaml`: which artifact of each model an environment deploys, and which ones it did before.

`edgespec promote` and `rollback` write it, people review it, and `edit_releases` changes no more of its text than has
to change. Pure: texts in, texts out.
"""

# Annotations are not postponed here: pydantic would evaluate each of them from its text at every start.

import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from msgspec import Struct
from pydantic import ConfigDict, Field, StringConstraints

from edgespec.diagnostics import Checked, Diagnostic, Diagnostics, EdgespecError, error, warning
from edgespec.spec.blocks import Blocks
from edgespec.spec.document import Node, Source, parse
from edgespec.spec.load import expect_kind
from edgespec.spec.models import API_VERSION
from edgespec.spec.types import SHA256, EnvironmentName, Name, Strict
from edgespec.spec.validate import key_place, place, suggest, validate

FOLDER: Final = "releases"
KIND: Final = "Releases"
KEEP: Final = 10
"""Releases of a model that the file keeps where it does not say."""
_HEAD: Final = """\
# Written by `edgespec promote` and `edgespec rollback`; reviewed like any other file. Comments stay.
apiVersion: edgespec/v1
kind: Releases
environment: {environment}
models: {{}}
"""

Digest = Annotated[str, StringConstraints(pattern=SHA256)]


class Origin(Strict):
    """Who served the artifact when it was promoted."""

    environment: EnvironmentName
    worker: Annotated[str, StringConstraints(min_length=1)]
    version: Annotated[str, StringConstraints(min_length=1)]


class Release(Strict):
    """One artifact that was promoted to the environment, or that served there."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), defer_build=True)
    number: Annotated[int, Field(ge=1)]
    artifact: Digest
    """The manifest's SHA-256."""
    size: Annotated[int, Field(ge=1)]
    """Bytes of the artifact's files."""
    engine: Literal["edge", "onnxruntime"]
    metrics: dict[str, float] = Field(default_factory=dict)
    """What its gate measured through the Worker."""
    teacher: dict[str, float] = Field(default_factory=dict)
    """What the model before compression reached on the same data, where a gate asks how much was lost."""
    revision: Annotated[str, StringConstraints(min_length=4, max_length=64)] | None = None
    """The commit of the project that was promoted."""
    dirty: bool = False
    """Whether the work tree had changes that are in no commit."""
    origin: Annotated[Origin | None, Field(alias="from")] = None
    provenance: Digest | None = None
    """SHA-256 of the artifact's provenance statement."""


class ModelReleases(Strict):
    current: Annotated[int, Field(ge=1)]
    """The number of the release that is deployed."""
    pinned: Annotated[str, StringConstraints(min_length=1, max_length=1000)] | None = None
    """Why it was rolled back: nothing else is promoted until it is unpinned."""
    releases: Annotated[tuple[Release, ...], Field(min_length=1)]
    """Newest first."""

    @property
    def deployed(self) -> Release:
        """`check` has made sure that it is there."""
        return next(r for r in self.releases if r.number == self.current)

    def find(self, which: str) -> tuple[Release, ...]:
        """Those of this number, or whose artifact's digest begins so."""
        numbered = tuple(r for r in self.releases if str(r.number) == which)
        return numbered or tuple(r for r in self.releases if len(which) >= 4 and r.artifact.startswith(which))


class Releases(Strict):
    """What one environment deploys."""

    apiVersion: Literal["edgespec/v1"]
    kind: Literal["Releases"]
    environment: EnvironmentName
    keep: Annotated[int, Field(ge=1, le=1000)] = KEEP
    """Releases of each model that stay in this file."""
    models: dict[Name, ModelReleases] = Field(default_factory=dict)

    def pins(self, *, promoted: bool) -> dict[str, Release]:
        """What is deployed as it is, whatever a build would give: everything where only promoted artifacts are, else
        what was rolled back."""
        return {n: m.deployed for n, m in self.models.items() if promoted or m.pinned is not None}


class LoadedReleases(Struct, frozen=True):
    releases: Releases
    node: Node
    source: Source


def path_of(environment: str) -> str:
    """Relative to edgespec.yaml."""
    return f"{FOLDER}/{environment}.yaml"


def empty(environment: str) -> Source:
    """A file with no model in it."""
    return Source(path_of(environment), _HEAD.format(environment=environment))


def load_releases(source: Source, environment: str) -> Checked[LoadedReleases]:
    """The one Releases document of a file, or every error in it."""
    parsed = parse(source)
    found: list[Diagnostic] = list(parsed.diagnostics)
    nodes = [n for n in parsed.value or () if expect_kind(n, KIND, found)]
    if not nodes:
        if not found:
            detail = f"{source.path} must hold one document with `apiVersion: {API_VERSION}` and `kind: {KIND}`."
            found.append(error("ES700", "No releases", detail, source=source.range(0, 0)))
        return Checked(None, Diagnostics(tuple(found)))
    if len(nodes) > 1:
        detail = "A file holds the releases of one environment."
        found.append(error("ES700", "More than one document", detail, source=nodes[1].where))
    checked = validate(Releases, nodes[0], KIND)
    found += checked.diagnostics
    if checked.value is None:
        return Checked(None, Diagnostics(tuple(found)))
    found += _check(checked.value, nodes[0], environment)
    value = None if Diagnostics(tuple(found)).has_errors else LoadedReleases(checked.value, nodes[0], source)
    return Checked(value, Diagnostics(tuple(found)))


def _check(releases: Releases, node: Node, environment: str) -> Iterator[Diagnostic]:
    if releases.environment != environment:
        detail = f"This file is read for {environment} and says {releases.environment}: one of them is wrong."
        yield error("ES700", "Releases of another environment", detail, source=place(node, ("environment",)))
    for name, model in releases.models.items():
        numbers = [r.number for r in model.releases]
        for i, (newer, older) in enumerate(itertools.pairwise(numbers)):
            if newer <= older:
                detail = f"Release {older} of {name} stands below {newer}: the newest comes first, each number once."
                where = place(node, ("models", name, "releases", i + 1, "number"))
                yield error("ES700", "Releases out of order", detail, source=where)
        if model.current not in numbers:
            known = ", ".join(str(n) for n in numbers)
            detail = f"{name} has no release {model.current}; there are {known}."
            yield error("ES700", "No such release", detail, source=place(node, ("models", name, "current")))


def check_names(
    loaded: LoadedReleases, names: Collection[str] | None, environments: Collection[str]
) -> Iterator[Diagnostic]:
    """A file of no environment, or a model that no spec describes any more: nothing of it is deployed. `names` are the
    specs', None where they cannot be read."""
    environment = loaded.releases.environment
    if environment not in environments:
        detail = f"No environment is named {environment}: the file does nothing.{suggest(environment, environments)}"
        yield warning("ES701", "Releases of no environment", detail, source=place(loaded.node, ("environment",)))
    for name in loaded.releases.models if names is not None else ():
        if names is not None and name not in names:
            detail = f"No spec is named {name}: its releases do nothing.{suggest(name, names)} Remove them, or rename."
            yield warning("ES701", "Releases of no spec", detail, source=key_place(loaded.node, ("models", name)))


# --- editing ---------------------------------------------------------------------------------------------------------


def document_of(model: ModelReleases) -> dict[str, Any]:
    """As it is written: what says nothing is left out."""
    found: dict[str, Any] = {"current": model.current}
    if model.pinned is not None:
        found["pinned"] = model.pinned
    return {**found, "releases": [release_document(r) for r in model.releases]}


def release_document(release: Release) -> dict[str, Any]:
    said = release.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {k: v for k, v in said.items() if v not in ({}, False)}


def edit_releases(loaded: LoadedReleases, models: Mapping[str, ModelReleases | None]) -> str:
    """The file's text with these models as given (None: without it); everything else stays as it is written. Raises
    EdgespecError where the file's form does not allow it."""
    text, line = loaded.source.text, loaded.node.where.line
    wanted = {n: document_of(m) for n, m in loaded.releases.models.items()}
    for name, model in sorted(models.items()):
        before = loaded.releases.models.get(name)
        text = _edited(Blocks(text, line), name, before, model)
        wanted.pop(name, None)
        if model is not None:
            wanted[name] = document_of(model)
    again = load_releases(Source(loaded.source.path, text), loaded.releases.environment)
    if again.value is None or {n: document_of(m) for n, m in again.value.releases.models.items()} != wanted:
        detail = f"{loaded.source.path}: its form does not let its values be changed in place. Write them yourself."
        raise EdgespecError(error("ES702", "The releases cannot be edited", detail))
    return text


def _edited(blocks: Blocks, name: str, before: ModelReleases | None, after: ModelReleases | None) -> str:
    if after is None:
        blocks.remove(("models", name))
    elif before is None:
        blocks.put_key(("models",), name, document_of(after))
    else:
        _update(blocks, name, before, after)
    return blocks.text


def _update(blocks: Blocks, name: str, before: ModelReleases, after: ModelReleases) -> None:
    old = {r.number: r for r in before.releases}
    kept = {r.number for r in after.releases if old.get(r.number) == r}
    for i in reversed(range(len(before.releases))):
        if before.releases[i].number not in kept:
            blocks.remove(("models", name, "releases", i))
    there = [r.number for r in before.releases if r.number in kept]
    for release in reversed(after.releases):
        if release.number not in kept:
            at = next((i for i, n in enumerate(there) if n < release.number), len(there))
            blocks.put_item(("models", name, "releases"), at, release_document(release))
            there.insert(at, release.number)
    if before.current != after.current:
        blocks.set(("models", name, "current"), after.current)
    if before.pinned != after.pinned:
        blocks.remove(("models", name, "pinned")) if before.pinned is not None else None
        if after.pinned is not None:
            blocks.put_key(("models", name), "pinned", after.pinned, after="current")
