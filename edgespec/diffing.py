"""`edgespec diff`, wired: two versions of a project out of git, or one and the work tree, compared."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from edgespec.artifact import Manifest
from edgespec.build.cache import Cache, default_cache_dir
from edgespec.build.compared import BuildView, Ids, compare, local_path, view
from edgespec.build.pipeline import Pipeline
from edgespec.build.steps import files_named, models_named
from edgespec.diagnostics import Diagnostics, EdgespecError, error
from edgespec.files import DiskFiles, Files
from edgespec.plan.compare import compare_environments, pairs
from edgespec.plan.comparison import BuildDiff, EnvironmentDiff, Point, ProjectDiff, Side
from edgespec.plan.cost import Estimate, Stored, Traffic, estimate
from edgespec.records import replace
from edgespec.resources.compile import compile_specs
from edgespec.resources.facts import BuildFacts, BundleFacts, SpecFacts
from edgespec.revisions import GitFiles, Repository, Revision
from edgespec.selection import names_of
from edgespec.spec.diff.project import project_notes
from edgespec.spec.models import EdgeModel, Project
from edgespec.spec.variables import STAND_IN
from edgespec.values import digest
from edgespec.workspace import PROJECT_FILE, Reader, Workspace, reader_of

WORK_TREE: Final = "the work tree"
_BUNDLE: Final = BundleFacts("", {"edge": 0}, "")
"""The Worker's code is edgespec's and not the project's: the same on both sides."""
_MODEL_FILES: Final = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "modules.json",
    "1_Pooling/config.json",
)


def diff(
    root: Path,
    asked: str | None,
    environments: Sequence[str],
    environ: Mapping[str, str],
    *,
    selector: str | None = None,
) -> ProjectDiff:
    """`asked` is `A..B`, `A...B` (since the two parted), `A` (against the work tree) or None (HEAD against it).

    Of the named environments, or of every one that either side has; with `selector` of the specs with these labels, on
    either side. Raises with what is wrong in a version's specs,
    named by its revision."""
    with contextlib.closing(Repository(root)) as repository:
        before, after = _points(repository, asked)
        old = _Version.at(root, repository, before, environ)
        new = _Version.at(root, repository, after, environ)
        return _Comparison(root, repository, old, new, environ).made(environments, selector)


def _points(repository: Repository, asked: str | None) -> tuple[Revision, Revision | None]:
    for dots in ("...", ".."):
        if asked is not None and dots in asked:
            one, _, other = asked.partition(dots)
            before, after = repository.resolve(one or "HEAD"), repository.resolve(other or "HEAD")
            return (repository.merge_base(before, after) if dots == "..." else before), after
    if repository.bare:
        detail = "This repository has no work tree to compare with: name two revisions, A..B."
        raise EdgespecError(error("ES723", "No work tree", detail))
    return repository.resolve(asked or "HEAD"), None


class _AnyVariable(dict[str, str]):
    """Variables as they are set; what is not set is the same on both sides."""

    def get(self, key: str, default: object = None) -> str:
        return super().get(key) or STAND_IN


@dataclass(frozen=True, slots=True)
class _Version:
    """A project at one point; `project` is None where there is none."""

    name: str
    revision: Revision | None
    files: Files
    reader: Reader
    project: Project | None
    environ: Mapping[str, str]

    @classmethod
    def at(cls, root: Path, repository: Repository, revision: Revision | None, environ: Mapping[str, str]) -> _Version:
        files: Files = DiskFiles(root) if revision is None else repository.files(revision)
        name = WORK_TREE if revision is None else revision.name
        made = cls(name, revision, files, reader_of(root, files), None, _AnyVariable(environ))
        if not files.glob(PROJECT_FILE):
            return made
        with made.named():
            return replace(made, project=made.reader.project(made.environ))

    def workspace(self, environment: str) -> Workspace | None:
        """None where the environment is not there."""
        if self.project is None or environment not in self.project.environments:
            return None
        with self.named():
            return self.reader.workspace(environment, self.environ, any_environment=True)

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """What is wrong in a revision's files is told with the revision, as git writes it: `main:specs/a.yaml`."""
        try:
            yield
        except EdgespecError as e:
            if self.revision is None:
                raise
            found = [
                replace(d, source=replace(d.source, path=f"{self.name}:{d.source.path}")) if d.source else d
                for d in e.diagnostics
            ]
            raise EdgespecError(Diagnostics(tuple(found))) from None

    def id(self, path: str) -> str | None:
        if isinstance(self.files, GitFiles):
            return self.files.id(path)
        return None

    def parts(self, path: str) -> list[str]:
        """The files that make up what a spec names at `path`: the file, or those of a model that a build reads."""
        if path.endswith(".onnx"):
            folder = path.rpartition("/")[0]
            return [path, *(f"{folder}/{n}" if folder else n for n in _MODEL_FILES if n != "modules.json")]
        found = self.files.glob(f"{path}/*.safetensors")
        return [path, *(f"{path}/{n}" for n in _MODEL_FILES), *found]


class _Comparison:
    def __init__(
        self, root: Path, repository: Repository, before: _Version, after: _Version, environ: Mapping[str, str]
    ) -> None:
        self._root = root
        self._repository = repository
        self._before = before
        self._after = after
        self._tree = replace(after, name=WORK_TREE, revision=None, files=DiskFiles(root))
        self._environ = environ
        self._digests: dict[str, str | None] = {}
        """Of files of the work tree."""

    def made(self, wanted: Sequence[str], selector: str | None) -> ProjectDiff:
        old, new = self._before.project, self._after.project
        if old is None and new is None:
            detail = f"Neither {self._before.name} nor {self._after.name} has {PROJECT_FILE} in this folder."
            raise EdgespecError(error("ES138", "No project here", detail))
        known = sorted({*(old.environments if old else ()), *(new.environments if new else ())})
        for name in wanted:
            if name not in known:
                detail = f"{name!r} is on neither side. There are: {', '.join(known)}."
                raise EdgespecError(error("ES133", "Unknown environment", detail))
        notes = tuple(project_notes(old, new)) if old and new else ()
        chosen = [n for n in known if not wanted or n in wanted]
        return ProjectDiff(
            (new or old).name if (new or old) else "",  # type: ignore[union-attr]
            _point(self._before),
            _point(self._after),
            notes,
            tuple(self._environment(name, selector) for name in chosen),
        )

    def _environment(self, name: str, selector: str | None) -> EnvironmentDiff:
        old, new = self._before.workspace(name), self._after.workspace(name)
        specs = _by_name(old), _by_name(new)
        paired = pairs(*specs)
        if not self._repository.bare:
            self._hash([s for side in specs for s in side.values()])
        views: tuple[dict[str, BuildView], dict[str, BuildView]] = ({}, {})
        builds: dict[str, BuildDiff] = {}
        for now, spec in specs[1].items():
            was = paired.get(now)
            unknown = self._unknown(specs[0][was], spec) if was is not None else frozenset()
            views[1][now] = view(spec, self._ids(self._after, unknown))
            if was is not None:
                views[0][was] = view(specs[0][was], self._ids(self._before, unknown))
                builds[now] = self._counted(compare(views[0][was], views[1][now]))
        for was, spec in specs[0].items():
            if was not in views[0]:
                views[0][was] = view(spec, self._ids(self._before, frozenset()))
        before = _side(old, views[0], partial(self._cost, self._before, old))
        after = _side(new, views[1], partial(self._cost, self._after, new))
        found = compare_environments(name, before, after, builds)
        if selector is None:
            return found
        names = {n for workspace in (old, new) if workspace is not None for n in names_of(workspace, selector)}
        models = tuple(m for m in found.models if m.name in names or m.previous in names)
        return replace(found, models=models, resources={})

    # --- costs

    def _cost(self, version: _Version, workspace: Workspace | None, name: str) -> Estimate:
        """For the traffic that the spec states, without CPU, which is measured of what is deployed."""
        if workspace is None:
            raise TypeError("nothing costs anything where there is no project")
        spec = next(s for s in workspace.specs if s.name == name)
        weights, budget, release = spec.cache.weights, spec.budget, workspace.pins.get(name)
        stored = None
        if name in workspace.unreleased:
            pass
        elif release is not None:
            stored = (-(-release.size // weights.kv.chunk), release.size)
        elif (manifest := self._manifest(version, spec)) is not None:
            stored = (len(manifest.chunks), sum(c.size for c in manifest.chunks))
        traffic = Traffic(budget.requests, budget.cold_loads, None, spec.worker.plan == "paid")
        if stored is None:
            return estimate(traffic, None)
        buckets = len({shard.placement for shard in spec.regions.shards.values()})
        return estimate(traffic, Stored(*stored, buckets, weights.kv.ttl if "kv" in weights.tiers else None))

    def _manifest(self, version: _Version, spec: EdgeModel) -> Manifest | None:
        """The artifact, where this machine has built it and the work tree's files are this version's."""
        paths = _named(spec)
        if self._repository.bare or any(self._digest(version, p) != self._digest(self._tree, p) for p in paths):
            return None
        cache = Cache(default_cache_dir(self._environ))
        with contextlib.suppress(EdgespecError):
            return Pipeline(self._root, cache, lambda _: None).facts(spec).manifest
        return None

    # --- digests of what specs name

    def _hash(self, specs: Sequence[EdgeModel]) -> None:
        """Of the work tree's files, all with one question."""
        parts = {p for spec in specs for path in _named(spec) for p in self._tree.parts(path)}
        missing = sorted(parts - self._digests.keys())
        found = self._repository.ids_of(missing)
        self._digests |= {p: found.get(p) for p in missing}

    def _file(self, version: _Version, path: str) -> str | None:
        return self._digests.get(path) if version.revision is None else version.id(path)

    def _digest(self, version: _Version, path: str) -> str | None:
        """git's own digest of a file; of a model one over those of its files."""
        whole = self._file(version, path)
        if whole is not None and not path.endswith(".onnx"):
            return whole
        parts = {p: found for p in version.parts(path) if (found := self._file(version, p)) is not None}
        weights = any(p.endswith((".safetensors", ".onnx")) for p in parts)
        return digest(parts) if weights else None

    def _unknown(self, before: EdgeModel, after: EdgeModel) -> frozenset[str]:
        """What git has on one side at most, under the same name: whether it changed cannot be told."""
        both = {*_named(before)} & {*_named(after)}
        return frozenset(p for p in both if None in (self._digest(self._before, p), self._digest(self._after, p)))

    def _ids(self, version: _Version, unknown: frozenset[str]) -> Ids:
        return lambda path: None if path in unknown else self._digest(version, path)

    def _counted(self, build: BuildDiff) -> BuildDiff:
        before = self._before.revision
        known = [f.path for f in build.files if f.known]
        if before is None or not known:
            return build
        lines = self._repository.lines(before, self._after.revision, known)
        return replace(build, files=tuple(replace(f, lines=lines.get(f.path)) for f in build.files))


def _point(version: _Version) -> Point:
    return Point(version.name, version.revision.commit if version.revision else None)


def _by_name(workspace: Workspace | None) -> dict[str, EdgeModel]:
    return {} if workspace is None else {s.name: s for s in workspace.specs}


def _named(spec: EdgeModel) -> list[str]:
    """Every path of the project's folder that a build or a gate of the spec reads."""
    found = [n.value for n in files_named(spec)]
    sources = [spec.model.source, *(n.value for n in models_named(spec))]
    found += [path for s in sources if (path := local_path(s)) is not None]
    return [*found, *([spec.quality.data] if spec.quality is not None else [])]


def _side(workspace: Workspace | None, views: Mapping[str, BuildView], cost: Callable[[str], Estimate]) -> Side | None:
    if workspace is None:
        return None
    facts = {}
    for name, seen in views.items():
        gate, release = seen.files.get("quality.data"), workspace.pins.get(name)
        inputs = seen.inputs
        if release is not None:  # nothing is built: what the artifact depends on is the release
            inputs = {"artifact": release.artifact, "engine": release.engine}
        facts[name] = SpecFacts(BuildFacts(inputs, None, (), None), (gate[1] or "") if gate else None)
    deployed = [s for s in workspace.specs if s.name not in workspace.unreleased]
    desired = compile_specs(workspace.project.name, workspace.environment, deployed, facts, _BUNDLE)
    releases = workspace.releases.releases.models if workspace.releases is not None else {}
    return Side(workspace.target, _by_name(workspace), desired, cost, releases)
