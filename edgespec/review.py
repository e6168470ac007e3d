"""What is judged of a plan beside its changes: whether each model fits, what it costs, what the policies say.

Reads measurements from the project's folder; asks nobody else. What refuses a plan is gathered, so that the plan is
shown with all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from edgespec.address import Address
from edgespec.artifact import Manifest
from edgespec.benchmark import records
from edgespec.diagnostics import Diagnostic, Diagnostics, Severity
from edgespec.plan import cost, policy
from edgespec.plan.budget import Fit
from edgespec.plan.budget import check as check_budget
from edgespec.plan.cost import NOTHING, Costs, Estimate, ModelCost, Stored, Traffic
from edgespec.plan.model import Action, Plan
from edgespec.plan.policy import ProvenanceOf, Verdict
from edgespec.resources.facts import BundleFacts, SpecFacts
from edgespec.spec.models import Budget, EdgeModel
from edgespec.state.model import ResourceRecord, State
from edgespec.workspace import Workspace

if TYPE_CHECKING:
    from edgespec.measurement import BenchDocument, Measured


class Review(Struct, frozen=True):
    fits: tuple[Fit, ...] = ()
    costs: Costs = NOTHING
    verdicts: tuple[Verdict, ...] = ()
    warnings: Diagnostics = Diagnostics()
    refused: Diagnostics = Diagnostics()
    """By limits, budgets and policies."""


def review(
    workspace: Workspace,
    plan: Plan,
    chosen: Sequence[EdgeModel],
    facts: Mapping[str, SpecFacts],
    bundle: BundleFacts,
    provenance: ProvenanceOf = lambda _: None,
) -> Review:
    """`chosen` are the specs that the plan is about, `facts` those of every spec whose resources shall exist.
    `provenance` is asked where a policy asks for it."""
    book = _Measurements(workspace, bundle)
    fits = tuple(_fit(spec, facts[spec.name], bundle, book) for spec in chosen)
    models = tuple(_model_costs(workspace, plan, chosen, facts, book))
    found = [d for fit in fits for d in check_budget(fit, workspace.nodes[fit.spec.name])]
    specs = {s.name: s for s in workspace.specs}
    names = {s.name for s in chosen}
    for model in models:
        if model.name in names:
            found += cost.check(specs[model.name], model, workspace.nodes[model.name])
    costs = cost.costs(models)
    asked = any("provenance" in p.when for p in workspace.project.policies)
    told: ProvenanceOf = cache(provenance) if asked else lambda _: None
    said = policy.Facts(workspace.project.name, workspace.environment, plan, specs, fits, costs, told)
    verdicts = policy.evaluate(workspace.project.policies, said, workspace.project_node)
    found += policy.diagnostics(verdicts)
    errors = tuple(d for d in found if d.severity is Severity.ERROR)
    return Review(
        fits,
        costs,
        verdicts,
        Diagnostics((*book.warnings, *(d for d in found if d.severity is not Severity.ERROR))),
        Diagnostics(errors),
    )


class _Measurements:
    """What `edgespec bench` has kept. A measurement of another version of the Worker's code says nothing of this."""

    def __init__(self, workspace: Workspace, bundle: BundleFacts) -> None:
        self._root, self._bundle = workspace.root, bundle
        self._known: dict[str, Measured | None] = {}
        self.warnings: list[Diagnostic] = []

    def of(self, artifact: str | None, *, any_bundle: bool = False) -> Measured | None:
        if artifact is None:
            return None
        if artifact not in self._known:
            document, found = records.load(self._root, artifact)
            self.warnings += found
            valid = document is not None and (any_bundle or document.bundle == self._bundle.digest)
            self._known[artifact] = _summary(document) if document is not None and valid else None
        return self._known[artifact]


def _summary(document: BenchDocument) -> Measured | None:
    from edgespec.measurement import summarise

    return summarise(document)


def _fit(spec: EdgeModel, facts: SpecFacts, bundle: BundleFacts, book: _Measurements) -> Fit:
    manifest = facts.build.manifest
    measured = book.of(manifest.digest if manifest else None)
    return Fit(spec, bundle.size(facts.build.inputs["engine"]), measured)


def _model_costs(
    workspace: Workspace,
    plan: Plan,
    chosen: Sequence[EdgeModel],
    facts: Mapping[str, SpecFacts],
    book: _Measurements,
) -> Iterator[ModelCost]:
    """Of every model that is there or will be. A part of a plan leaves the others as they are."""
    state, buckets = plan.refreshed, _buckets(plan.refreshed)
    specs = {s.name: s for s in workspace.specs}
    built = {f.build.manifest.digest: f.build.manifest for f in facts.values() if f.build.manifest is not None}
    wanted = {s.name for s in chosen}
    live = {k.address.name for k in state.records if k.address.type == "worker" and not k.deposed}
    gone = {c.address.name for c in plan.changes if c.action is Action.DELETE and c.address.type == "worker"}
    for name in sorted(live | wanted):
        spec = specs.get(name)
        before: Estimate | None = None
        if name in live:
            before = _before(spec, state.get(Address("worker", name)), len(buckets.get(name, ())), book, built)
        after: Estimate | None = None if name in gone else before
        if spec is not None and name in wanted:
            after = _after(spec, facts[name], book)
        budget = spec.budget if spec is not None else Budget()
        yield ModelCost(name, before, after, budget.monthly_cost, budget.requests)


def _after(spec: EdgeModel, facts: SpecFacts, book: _Measurements) -> Estimate:
    manifest, weights = facts.build.manifest, spec.cache.weights
    measured = book.of(manifest.digest if manifest else None)
    stored = None
    if manifest is not None:
        buckets = len({shard.placement for shard in spec.regions.shards.values()})
        stored = _stored(manifest, buckets, weights.kv.ttl if "kv" in weights.tiers else None)
    return cost.estimate(_traffic(spec.budget, measured, paid=spec.worker.plan == "paid"), stored)


def _buckets(state: State) -> dict[str, set[str]]:
    """For each spec, the buckets that hold its weights; one walk over state, however many specs there are."""
    found: dict[str, set[str]] = {}
    for key, record in state.records.items():
        if key.address.type == "weights" and not key.deposed:
            found.setdefault(key.address.spec, set()).add(str(record.inputs.get("bucket")))
    return found


def _before(
    spec: EdgeModel | None,
    worker: ResourceRecord | None,
    buckets: int,
    book: _Measurements,
    built: Mapping[str, Manifest],
) -> Estimate:
    """By what is deployed, for the traffic that the spec states now: what changes is then the deployment's doing.
    `built` are manifests by digest that need not be read again."""
    raw: Any = worker.inputs.get("manifest") if worker else None
    config: Any = worker.inputs.get("config", {}) if worker else {}
    stored, measured = None, None
    if raw is not None:
        manifest = built.get(str(worker.inputs.get("artifact")) if worker else "") or Manifest.from_json(raw)
        measured = book.of(manifest.digest)
        kv = config.get("cache", {}).get("weights", {}).get("kv")
        stored = _stored(manifest, buckets, int(kv["ttl"]) if kv else None)
    paid = spec is None or spec.worker.plan == "paid"
    return cost.estimate(_traffic(spec.budget if spec else Budget(), measured, paid=paid), stored)


def _stored(manifest: Manifest, buckets: int, kv_ttl: int | None) -> Stored:
    chunks = manifest.chunks
    return Stored(len(chunks), sum(c.size for c in chunks), buckets, kv_ttl)


def _traffic(budget: Budget, measured: Measured | None, *, paid: bool) -> Traffic:
    return Traffic(budget.requests, budget.cold_loads, measured.cpu_p50_ms if measured else None, paid)
