"""`graph`, wired: the resources that the specs ask for and the stages of a build, as drawings. Nobody is asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edgespec import assets
from edgespec.build import sources
from edgespec.build.stages.stage import Step
from edgespec.build.steps import files_named, models_named, steps_of
from edgespec.facts import facts_of
from edgespec.records import replace
from edgespec.render.graph import Drawing, Shape, Vertex
from edgespec.resources.base import DesiredResource
from edgespec.resources.compile import compile_specs
from edgespec.session import Session
from edgespec.spec.models import EdgeModel

_SHAPES: Final[dict[str, Shape]] = {
    "model": "round",
    "r2_bucket": "store",
    "kv_namespace": "store",
    "weights": "file",
    "kv_pins": "file",
}
_SHARED: Final = "shared"


def resources(session: Session, names: tuple[str, ...] = ()) -> Drawing:
    """What the environment's specs ask for, or the named ones, and what needs what; shared things beside."""
    workspace = session.workspace
    workspace.check_names(names)
    specs = [s for s in _deployed(session) if not names or s.name in names]
    facts, _ = facts_of(replace(session, remote=None), None, specs)
    bundle = assets.bundles().facts
    desired = compile_specs(workspace.project.name, workspace.environment, specs, facts, bundle).resources
    vertices = [_resource(r) for r in desired.values()]
    edges = [(str(need), str(r.address)) for r in desired.values() for need in r.needs if need in desired]
    return Drawing(f"{workspace.project.name} in {workspace.environment}", tuple(vertices), tuple(edges))


def _deployed(session: Session) -> list[EdgeModel]:
    """Where artifacts come by promotion, what nobody promoted is not deployed."""
    workspace = session.workspace
    promoted = workspace.target.promote_from is not None
    return [s for s in workspace.specs if not promoted or s.name in workspace.pins]


def _resource(found: DesiredResource) -> Vertex:
    group = _SHARED if found.type.shared else found.owners[0]
    kind, _, name = str(found.address).partition("/")
    return Vertex(str(found.address), (kind, name), group, _SHAPES.get(found.type.name, "box"))


def pipeline(session: Session, name: str) -> Drawing:
    """The stages of a spec's build, what each reads, and which are in a cache (faint)."""
    session.workspace.check_names((name,))
    spec = session.specs[name]
    root, cache = session.workspace.root, session.cache
    facts, _ = facts_of(replace(session, remote=None), None, [spec])
    build = facts[name].build
    engine = build.inputs["engine"]
    chosen = engine if isinstance(engine, str) else spec.worker.engine
    steps = steps_of(
        spec, chosen, lambda n: cache.data_file(root, n.value), lambda n: sources.find(n.value, root, cache)
    )
    cached = {s.name for s in build.stages if s.cached}
    vertices = [Vertex(s.name, _lines(s, s.name in cached), faint=s.name in cached) for s in steps]
    vertices.append(Vertex(spec.model.source, (spec.model.source,), shape="file"))
    edges = [(parent, s.name) for s in steps for parent in s.parents if any(p.name == parent for p in steps)]
    edges.append((spec.model.source, "fetch"))
    for read, step in _read(spec, steps):
        vertices.append(Vertex(read, (read,), shape="file"))
        edges.append((read, step))
    return Drawing(f"The build of {name}", tuple({v.key: v for v in vertices}.values()), tuple(edges))


def _lines(step: Step, cached: bool) -> tuple[str, ...]:
    return (step.name, "in the cache") if cached else (step.name,)


def _read(spec: EdgeModel, steps: tuple[Step, ...]) -> Iterator[tuple[str, str]]:
    """A file or a model that the spec names, and the stage that reads it."""
    for named in (*files_named(spec), *models_named(spec)):
        for step in steps:
            if step.where and named.where[: len(step.where)] == step.where:
                yield named.value, step.name
