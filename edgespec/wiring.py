"""Which providers carry out a session's plans, and who measures its models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from edgespec import assets
from edgespec.build.cache import default_cache_dir
from edgespec.build.pipeline import Pipeline
from edgespec.diagnostics import EdgespecError, error
from edgespec.plan.policy import Provenance, ProvenanceOf
from edgespec.providers.base import Provider
from edgespec.providers.build.model import Artifacts, ModelProvider
from edgespec.providers.cloudflare.account import Account, api_errors
from edgespec.providers.cloudflare.archive import ArchiveProvider
from edgespec.providers.cloudflare.blobs import StatementOf
from edgespec.providers.cloudflare.deployment import DeploymentProvider
from edgespec.providers.cloudflare.kv_namespace import KvNamespaceProvider
from edgespec.providers.cloudflare.kv_pins import KvPinsProvider
from edgespec.providers.cloudflare.live import Live
from edgespec.providers.cloudflare.provenance import fetched
from edgespec.providers.cloudflare.quality import quality_measure
from edgespec.providers.cloudflare.r2_bucket import R2BucketProvider
from edgespec.providers.cloudflare.weights import WeightsProvider
from edgespec.providers.cloudflare.worker import WorkerProvider, owner_tag
from edgespec.records import replace
from edgespec.resources import weights
from edgespec.resources.facts import SpecFacts
from edgespec.session import Session
from edgespec.spec.models import EdgeModel
from edgespec.spec.releases import Release
from edgespec.state.model import ResourceRecord, State

if TYPE_CHECKING:
    from edgespec.benchmark.deploy import MakeProviders
    from edgespec.build.evaluation.compare import Evaluator
    from edgespec.statements import Statements


def providers_of(
    session: Session,
    account: Account,
    live: Live,
    bundles: assets.Bundles,
    artifacts: Artifacts | None = None,
) -> dict[str, Provider]:
    """`artifacts` has those that are not built here; without it all are."""
    workspace = session.workspace
    pins = workspace.pins if artifacts is not None else {}
    statement = statements_of(session, artifacts)
    models = ModelProvider(
        workspace.root,
        session.cache,
        session.specs,
        session.remote,
        artifacts=artifacts,
        pinned=frozenset(pins),
        attested=statement,
    )
    owner = owner_tag(workspace.project.name, workspace.environment)

    def teacher(spec: EdgeModel) -> Mapping[str, float]:
        if (release := pins.get(spec.name)) is not None:
            return _recorded(spec, release)
        path = spec.quality.data if spec.quality is not None else ""
        with models.building:
            return evaluator_of(session, spec, edge=False).teacher(spec, path)

    measure = quality_measure(workspace.root, session.specs, teacher)
    return {
        "model": models,
        "r2_bucket": R2BucketProvider(account, live),
        "weights": WeightsProvider(account, live, models.blobs, statement),
        "archive": ArchiveProvider(account, live, models.blobs),
        "kv_namespace": KvNamespaceProvider(account, live),
        "kv_pins": KvPinsProvider(account, live, models.blobs),
        "worker": WorkerProvider(account, live, bundles, owner),
        "deployment": DeploymentProvider(account, live, measure),
    }


def _recorded(spec: EdgeModel, release: Release) -> Mapping[str, float]:
    """What the teacher reached where the release was measured: here it cannot be built."""
    gates = spec.quality.metrics if spec.quality is not None else {}
    missing = [n for n, t in gates.items() if t.max_drop is not None and n not in release.teacher]
    if missing:
        detail = (
            f"Release {release.number} of {spec.name} says nothing of the teacher's {', '.join(missing)}, so that a "
            "drop cannot be measured. Apply the environment that it is promoted from with this gate, and promote again."
        )
        raise EdgespecError(error("ES706", "No teacher to compare with", detail))
    return dict(release.teacher)


def statements_of(session: Session, artifacts: Artifacts | None) -> StatementOf:
    """Provenance, which most plans do not touch: what it takes is imported when it is asked for."""

    @cache
    def statements() -> Statements:
        from edgespec.statements import Statements

        return Statements(session, artifacts.statement if artifacts is not None else lambda _: None)

    return lambda name, artifact: statements().of(name, artifact)


def provenance_of(
    session: Session, account: Account, state: State, facts: Mapping[str, SpecFacts], artifacts: Artifacts
) -> ProvenanceOf:
    """What is said of the artifact that a spec is to be served with: in its bucket, where it is there already, else
    what would be put there. `state` is as it was found live."""

    @cache
    def statements() -> Statements:
        from edgespec.statements import Statements

        return Statements(session, artifacts.statement)

    def standing(name: str) -> Provenance | None:
        found = facts.get(name)
        if found is None:
            return None
        if (manifest := found.build.manifest) is None:
            return statements().to_come()
        place = stored_weights(state, name, manifest.digest)
        if place is None:
            return statements().standing(manifest.digest, statements().of(name, manifest.digest, store=False))
        with api_errors(place.address, "Reading provenance"):
            raw = fetched(account, str(place.inputs["bucket"]), str(place.inputs["jurisdiction"]), manifest.digest)
        return statements().standing(manifest.digest, raw)

    return standing


def stored_weights(state: State, name: str, artifact: str) -> ResourceRecord | None:
    """A shard's weights that are this artifact."""
    for key, record in sorted(state.records.items()):
        mine = key.address.type == weights.TYPE.name and key.address.spec == name
        if mine and not key.deposed and record.inputs.get("artifact") == artifact:
            return record
    return None


def maker_of(session: Session) -> MakeProviders:
    """The session's providers for other specs than its own, on an edge that lives for one measurement."""

    def providers(
        specs: Sequence[EdgeModel], account: Account, live: Live, bundles: assets.Bundles
    ) -> dict[str, Provider]:
        alone = replace(session, workspace=replace(session.workspace, specs=tuple(specs)))
        return providers_of(alone, account, live, bundles)

    return providers


def evaluator_of(session: Session, spec: EdgeModel, *, edge: bool) -> Evaluator:
    """Keywords are found by the Worker's own code, so workerd answers for them whatever was asked."""
    from edgespec.benchmark.answers import WorkerdAnswering, local_answering
    from edgespec.build.evaluation.compare import Evaluator

    in_workerd = edge or spec.task.type == "keyword-extraction"
    cache_dir = default_cache_dir(session.environ)
    answering = WorkerdAnswering(maker_of(session), cache_dir, session.say) if in_workerd else local_answering()
    root, cache = session.workspace.root, session.cache
    return Evaluator(
        root, cache, lambda progress: Pipeline(root, cache, progress, session.remote), answering, session.say
    )
