"""A project on disk: find it, read every file of it, report every error at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from edgespec.diagnostics import Checked, Diagnostic, Diagnostics, EdgespecError, error
from edgespec.files import DiskFiles, Files
from edgespec.records import replace
from edgespec.spec.document import Node, Source
from edgespec.spec.load import LoadedProject, SpecFiles, load_project
from edgespec.spec.models import CloudflareTarget, EdgeModel, Environment, LocalState, Project
from edgespec.spec.overlays import overlays_of
from edgespec.spec.releases import LoadedReleases, Release, check_names, load_releases, path_of
from edgespec.spec.validate import place, suggest
from edgespec.values import digest

PROJECT_FILE: Final = "edgespec.yaml"
STATE_DIR: Final = ".edgespec"
DEFAULT: Final = "local"
"""The environment that is meant when none is named."""
LOCAL_ACCOUNT: Final = "local"


class Workspace(Struct, frozen=True):
    """A valid project and the environment in use. `nodes` and `project_node` tell where everything was written."""

    root: Path
    project: Project
    environment: str
    specs: tuple[EdgeModel, ...]
    nodes: Mapping[str, Node]
    project_node: Node
    warnings: Diagnostics
    releases: LoadedReleases | None = None
    """`releases/ENVIRONMENT.yaml`; None where there is none."""

    @property
    def pins(self) -> Mapping[str, Release]:
        """By spec, the release that is deployed as it is: of those no pipeline is asked."""
        if self.releases is None:
            return {}
        pins = self.releases.releases.pins(promoted=self.target.promote_from is not None)
        return {s.name: pins[s.name] for s in self.specs if s.name in pins}

    @property
    def unreleased(self) -> tuple[str, ...]:
        """The specs that this environment does not deploy, since nothing of them was promoted to it yet."""
        pins = self.pins
        return tuple(s.name for s in self.specs if s.name not in pins) if self.target.promote_from is not None else ()

    @property
    def target(self) -> Environment:
        return self.project.environments[self.environment]

    @property
    def account(self) -> str:
        """The id of the account that the environment deploys to; `local` for the embedded edge."""
        target = self.target.target
        return target.account if isinstance(target, CloudflareTarget) else LOCAL_ACCOUNT

    @property
    def state_path(self) -> Path:
        """The state's file where it is kept on this machine, which it is when nothing is said."""
        state = self.target.state
        path = state.path if isinstance(state, LocalState) else None
        return self.root / (path or f"{STATE_DIR}/state/{self.environment}.json")

    @property
    def spec_digest(self) -> str:
        """Over all that the specs, with this environment's overlays, and the target say."""
        specs = [s.model_dump(mode="json") for s in self.specs]
        target = self.target.model_dump(mode="json", exclude={"overrides"})
        pins = {name: r.model_dump(mode="json", by_alias=True) for name, r in self.pins.items()}
        return digest([self.project.name, self.environment, target, specs, *([pins] if pins else [])])

    def check_names(self, names: tuple[str, ...], also: frozenset[str] = frozenset()) -> None:
        """Raise when a name is neither a spec nor in `also` (specs that only state knows)."""
        known = {s.name for s in self.specs} | also
        unknown = [n for n in names if n not in known]
        if unknown:
            listed = ", ".join(sorted(known)) or "none"
            detail = f"{', '.join(unknown)}: no spec has this name. There are: {listed}.{suggest(unknown[0], known)}"
            raise EdgespecError(error("ES139", "Unknown name", detail))


def find_root(start: Path) -> Path:
    """The nearest folder at or above `start` that holds edgespec.yaml."""
    for folder in (start, *start.parents):
        if (folder / PROJECT_FILE).is_file():
            return folder
    detail = f"{start} and the folders above it have no {PROJECT_FILE}. Go into a project or name one with -C."
    raise EdgespecError(error("ES138", "No project here", detail))


def load_workspace(
    root: Path,
    environment: str | None,
    environ: Mapping[str, str],
    *,
    any_environment: bool = False,
    files: Files | None = None,
) -> Workspace:
    """The project at `root`; raises with every error in every file. Variables of other environments may be unset, and
    with `any_environment` (what asks no account) those of this one too. Documents are read from `files`, where given,
    and from `root` else; what they name (data, models) is always below `root`."""
    return reader_of(root, files).workspace(environment, environ, any_environment=any_environment)


def reader_of(root: Path, files: Files | None = None) -> Reader:
    """`files` where the project's documents are not those below `root`."""
    return Reader(root, DiskFiles(root) if files is None else files)


def default_environment(project: Project) -> str:
    """The one that is meant where none is named and none is asked."""
    return DEFAULT if DEFAULT in project.environments else next(iter(project.environments))


class Reader:
    """A project whose files are read once, for any number of its environments. Not for several threads."""

    def __init__(self, root: Path, files: Files) -> None:
        self._root = root
        self._files = files
        self._source: Source | None = None
        self._specs: dict[tuple[str, ...], tuple[SpecFiles, list[Diagnostic]]] = {}

    def project(self, environ: Mapping[str, str]) -> Project:
        """Whatever variables are set; raises when it cannot be read."""
        return self._project(environ, None).project

    def workspace(
        self, environment: str | None, environ: Mapping[str, str], *, any_environment: bool = False
    ) -> Workspace:
        """As `load_workspace`."""
        wanted = environment or DEFAULT
        loaded = self._project(environ, None if any_environment else wanted)
        project, node = loaded.project, loaded.node
        if any_environment and environment is None:
            wanted = default_environment(project)
        files, found = self._spec_files(project, node)
        specs = files.load(project, overlays_of(node, wanted))
        names = None if specs.value is None else [s.spec.name for s in specs.value]
        releases = self._releases(wanted, project, names, everywhere=any_environment)
        diagnostics = loaded.diagnostics + found + specs.diagnostics + releases.diagnostics
        if specs.value is None or diagnostics.has_errors:
            raise EdgespecError(diagnostics)
        return Workspace(
            self._root,
            project,
            wanted,
            tuple(s.spec for s in specs.value),
            {s.spec.name: s.node for s in specs.value},
            node,
            diagnostics,
            (releases.value or {}).get(wanted),
        )

    def _releases(
        self, environment: str, project: Project, names: list[str] | None, *, everywhere: bool
    ) -> Checked[dict[str, LoadedReleases]]:
        """By environment; with `everywhere` every file is read, so that its errors are told. `names` are the specs',
        None where they cannot be read."""
        found: dict[str, LoadedReleases] = {}
        diagnostics: list[Diagnostic] = []
        for path in self._files.glob(path_of("*") if everywhere else path_of(environment)):
            source = _read(self._files, path)
            diagnostics += source.diagnostics
            name = path.rpartition("/")[2].removesuffix(".yaml")
            loaded = load_releases(source.value, name) if source.value is not None else Checked[LoadedReleases](None)
            diagnostics += loaded.diagnostics
            if loaded.value is not None:
                found[name] = loaded.value
                diagnostics += check_names(loaded.value, names, project.environments)
        return Checked(found, Diagnostics(tuple(diagnostics)))

    def _project(self, environ: Mapping[str, str], selected: str | None) -> LoadedProject:
        """Parsed anew each time: variables are replaced in its nodes."""
        if self._source is None:
            source = _read(self._files, PROJECT_FILE)
            if source.value is None:
                raise EdgespecError(source.diagnostics)
            self._source = source.value
        loaded = load_project(self._source, environ, selected)
        if loaded.value is None:
            raise EdgespecError(loaded.diagnostics)
        return replace(loaded.value, diagnostics=loaded.diagnostics)

    def _spec_files(self, project: Project, node: Node) -> tuple[SpecFiles, list[Diagnostic]]:
        if project.specs not in self._specs:
            sources, found = _spec_sources(self._files, project, node)
            self._specs[project.specs] = SpecFiles(sources), found
        return self._specs[project.specs]


def _spec_sources(files: Files, project: Project, node: Node) -> tuple[list[Source], list[Diagnostic]]:
    found: list[Diagnostic] = []
    sources: list[Source] = []
    seen: set[str] = set()
    for i, pattern in enumerate(project.specs):
        names = files.glob(pattern)
        if not names:
            where = place(node, ("specs", i))
            detail = f"`{pattern}` matches no file below the folder of {PROJECT_FILE}."
            found.append(error("ES160", "No spec files", detail, source=where))
        for name in names:
            if name not in seen:  # patterns may overlap
                seen.add(name)
                read = _read(files, name)
                found += read.diagnostics
                sources += [read.value] if read.value is not None else []
    return sources, found


def _read(files: Files, shown: str) -> Checked[Source]:
    try:
        raw = files.read(shown)
    except OSError as e:
        return Checked(None, Diagnostics.of(error("ES161", "File cannot be read", f"{shown}: {e.strerror or e}.")))
    try:
        return Checked(Source(shown, raw.decode("utf-8-sig")))
    except UnicodeDecodeError as e:
        line = e.object.count(b"\n", 0, e.start)
        before = e.object[e.object.rfind(b"\n", 0, e.start) + 1 : e.start]
        where = Source(shown, e.object.decode("utf-8", "replace")).range(line, len(before.decode("utf-8")))
        detail = f"Byte 0x{e.object[e.start]:02x} is not UTF-8. Save the file as UTF-8."
        return Checked(None, Diagnostics.of(error("ES162", "Not UTF-8", detail, source=where)))
