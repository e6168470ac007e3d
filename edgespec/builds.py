"""`edgespec build`, wired: many models, one after the other or over an executor, and the bucket that they share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from edgespec.artifact import Manifest
from edgespec.build.events import BuildEvent
from edgespec.build.executor import Executor, build_all
from edgespec.build.pipeline import Pipeline
from edgespec.diagnostics import EdgespecError
from edgespec.providers.cloudflare.remote_cache import RemoteOpener, make_bucket
from edgespec.session import Session
from edgespec.spec.models import EdgeModel
from edgespec.statements import Statements
from edgespec.target import shared_bucket

EXECUTORS: Final = ("local", "ray")


def build(
    session: Session,
    names: tuple[str, ...],
    on_event: Callable[[str, BuildEvent], None],
    *,
    executor: str = "local",
    parallel: int = 1,
    fresh: bool = False,
) -> dict[str, Manifest]:
    """The artifacts of the named specs, or of all. `local` with one at a time runs in this process; `fresh` runs every
    stage again."""
    session.workspace.check_names(names)
    specs = [s for s in session.workspace.specs if not names or s.name in names]

    def pipeline_of(spec: EdgeModel) -> Pipeline:
        def tell(event: BuildEvent) -> None:
            on_event(spec.name, event)

        return Pipeline(session.workspace.root, session.cache, tell, session.remote, fresh=fresh)

    statements = Statements(session)
    if executor == "local" and parallel == 1:
        built = {}
        for spec in specs:
            built[spec.name] = pipeline_of(spec).build(spec)
            statements.of(spec.name, built[spec.name].digest)
        return built
    runner = _executor(session, executor, parallel)
    built = build_all(specs, pipeline_of, runner, session.cache, on_event, fresh=fresh)
    for name, manifest in built.items():
        statements.of(name, manifest.digest)
    return built


def _executor(session: Session, name: str, parallel: int) -> Executor:
    if name == "local":
        from edgespec.build.local_executor import LocalExecutor

        return LocalExecutor(parallel)
    from edgespec.build.ray_executor import RayExecutor

    opener = _opener(session)
    return RayExecutor(session.environ.get("RAY_ADDRESS") or None, session.cache, opener)


def _opener(session: Session) -> RemoteOpener | None:
    """How workers open the shared cache; None where there is none, or where it cannot be had from here either."""
    if session.workspace.project.build.cache is None:
        return None
    bucket, connect = shared_bucket(session.workspace, session.environ, session.say)
    try:
        with contextlib.closing(connect()) as account:
            return RemoteOpener(account.endpoints, bucket)
    except EdgespecError as e:
        session.say(f"workers go without the bucket {bucket}: {'; '.join(d.detail for d in e.diagnostics)}")
        return None


def make_build_cache(session: Session) -> tuple[str, bool]:
    """Makes the bucket of the shared build cache: its name, and whether it was missing."""
    bucket, connect = shared_bucket(session.workspace, session.environ, session.say)
    with contextlib.closing(connect()) as account:
        return bucket, make_bucket(account, bucket)
