"""Which providers carry out a session's plans, and who measures its models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from edgespec import assets
from edgespec.build.cache import default_cache_dir
from edgespec.build.pipeline import Pipeline
from edgespec.providers.base import Provider
from edgespec.providers.build.model import ModelProvider
from edgespec.providers.cloudflare.account import Account
from edgespec.providers.cloudflare.deployment import DeploymentProvider
from edgespec.providers.cloudflare.kv_namespace import KvNamespaceProvider
from edgespec.providers.cloudflare.kv_pins import KvPinsProvider
from edgespec.providers.cloudflare.live import Live
from edgespec.providers.cloudflare.quality import quality_measure
from edgespec.providers.cloudflare.r2_bucket import R2BucketProvider
from edgespec.providers.cloudflare.weights import WeightsProvider
from edgespec.providers.cloudflare.worker import WorkerProvider
from edgespec.session import Session
from edgespec.spec.models import EdgeModel

if TYPE_CHECKING:
    from edgespec.benchmark.deploy import MakeProviders
    from edgespec.build.evaluation.compare import Evaluator


def providers_of(session: Session, account: Account, live: Live, bundles: assets.Bundles) -> dict[str, Provider]:
    workspace = session.workspace
    models = ModelProvider(workspace.root, session.cache, session.specs, session.remote)
    owner = f"edgespec:{workspace.project.name}/{workspace.environment}"

    def teacher(spec: EdgeModel) -> Mapping[str, float]:
        path = spec.quality.data if spec.quality is not None else ""
        with models.building:
            return evaluator_of(session, spec, edge=False).teacher(spec, path)

    measure = quality_measure(workspace.root, session.specs, teacher)
    return {
        "model": models,
        "r2_bucket": R2BucketProvider(account, live),
        "weights": WeightsProvider(account, live, models.blobs),
        "kv_namespace": KvNamespaceProvider(account, live),
        "kv_pins": KvPinsProvider(account, live, models.blobs),
        "worker": WorkerProvider(account, live, bundles, owner),
        "deployment": DeploymentProvider(account, live, measure),
    }


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
