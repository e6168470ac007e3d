"""What is judged of a plan beside its changes: whether each model fits, what it costs, what the policies say.

Reads measurements from the project's folder; asks nobody else. What refuses a plan is gathered, so that the plan is
shown with all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

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
from edgespec.state.model import ResourceRecord
from edgespec.values import Inputs
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
    state = plan.refreshed
    holdings = _holdings((k.address, r.inputs) for k, r in state.records.items() if not k.deposed)
    desired = _holdings((r.address, r.inputs) for r in plan.desired.resources.values())
    specs = {s.name: s for s in workspace.specs}
    built = {f.build.manifest.digest: f.build.manifest for f in facts.values() if f.build.manifest is not None}
    wanted = {s.name for s in chosen}
    live = {k.address.name for k in state.records if k.address.type == "worker" and not k.deposed}
    gone = {c.address.name for c in plan.changes if c.action is Action.DELETE and c.address.type == "worker"}
    for name in sorted(live | wanted):
        spec = specs.get(name)
        before: Estimate | None = None
        if name in live:
            before = _before(spec, state.get(Address("worker", name)), holdings.get(name, _Holding()), book, built)
        after: Estimate | None = None if name in gone else before
        if spec is not None and name in wanted:
            after = _after(spec, facts[name], desired.get(name, _Holding()), book)
        budget = spec.budget if spec is not None else Budget()
        yield ModelCost(name, before, after, budget.monthly_cost, budget.requests)


def _after(spec: EdgeModel, facts: SpecFacts, holding: _Holding, book: _Measurements) -> Estimate:
    manifest, weights = facts.build.manifest, spec.cache.weights
    measured = book.of(manifest.digest if manifest else None)
    stored = None
    if manifest is not None:
        stored = _stored(manifest, holding, weights.kv.ttl if "kv" in weights.tiers else None)
    return cost.estimate(_traffic(spec.budget, measured, paid=spec.worker.plan == "paid"), stored)


class _Holding(Struct):
    """What buckets have of a spec. A bucket is its name, or the reference to what will have one."""

    buckets: set[Any] = field(default_factory=set)
    """Those with its weights."""
    archived: dict[tuple[Any, str], int] = field(default_factory=dict)
    """Bytes of what is kept of older artifacts, by bucket and digest."""


def _holdings(resources: Iterable[tuple[Address, Inputs]]) -> dict[str, _Holding]:
    """By spec; one walk, however many there are."""
    found: dict[str, _Holding] = {}
    for address, inputs in resources:
        if address.type == "weights":
            found.setdefault(address.spec, _Holding()).buckets.add(inputs.get("bucket"))
        elif address.type == "archive":
            blobs: Any = inputs["blobs"]
            kept = {(inputs.get("bucket"), blob["sha256"]): blob["size"] for blob in blobs}
            found.setdefault(address.spec, _Holding()).archived.update(kept)
    return found


def _before(
    spec: EdgeModel | None,
    worker: ResourceRecord | None,
    holding: _Holding,
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
        stored = _stored(manifest, holding, int(kv["ttl"]) if kv else None)
    paid = spec is None or spec.worker.plan == "paid"
    return cost.estimate(_traffic(spec.budget if spec else Budget(), measured, paid=paid), stored)


def _stored(manifest: Manifest, holding: _Holding, kv_ttl: int | None) -> Stored:
    chunks = {c.sha256: c.size for c in manifest.chunks}
    archived = sum(
        size for (bucket, sha), size in holding.archived.items() if sha not in chunks or bucket not in holding.buckets
    )
    return Stored(len(chunks), sum(chunks.values()), len(holding.buckets), kv_ttl, archived)


def _traffic(budget: Budget, measured: Measured | None, *, paid: bool) -> Traffic:
    return Traffic(budget.requests, budget.cold_loads, measured.cpu_p50_ms if measured else None, paid)
