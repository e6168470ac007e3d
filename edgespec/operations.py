"""What the commands do, as functions: each wires the pure packages to the edges and returns values.

Printing, asking and exit codes are the command line's; an embedding program calls these.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgespec import assets
from edgespec.address import Address
from edgespec.apply.applier import apply as run_steps
from edgespec.apply.interrupt import stoppable
from edgespec.apply.refresh import refresh
from edgespec.apply.schedule import PARALLELISM
from edgespec.benchmark import records
from edgespec.build.cache import Cache, default_cache_dir
from edgespec.build.data import read_examples
from edgespec.build.datafiles import leakage
from edgespec.build.pipeline import Pipeline
from edgespec.build.remote import RemoteCache
from edgespec.diagnostics import Diagnostic, Diagnostics, EdgespecError, RefusedError, error
from edgespec.evaluation import EvaluationDocument
from edgespec.measurement import BenchDocument
from edgespec.plan import file as plan_file
from edgespec.plan.budget import Fit
from edgespec.plan.events import ApplyResult, OnEvent
from edgespec.plan.model import Action, Contents, Plan, Request
from edgespec.plan.moves import renamed
from edgespec.plan.planner import make_plan
from edgespec.plan.safety import check_safe, warnings_of
from edgespec.plan.settle import settled
from edgespec.providers.base import Provider
from edgespec.providers.build.model import ModelProvider
from edgespec.providers.cloudflare.account import Account
from edgespec.providers.cloudflare.contents import TYPES as HOLDERS
from edgespec.providers.cloudflare.contents import contents
from edgespec.providers.cloudflare.deployment import DeploymentProvider
from edgespec.providers.cloudflare.kv_namespace import KvNamespaceProvider
from edgespec.providers.cloudflare.kv_pins import KvPinsProvider
from edgespec.providers.cloudflare.live import Live
from edgespec.providers.cloudflare.quality import quality_measure
from edgespec.providers.cloudflare.r2_bucket import R2BucketProvider
from edgespec.providers.cloudflare.weights import WeightsProvider
from edgespec.providers.cloudflare.worker import WorkerProvider
from edgespec.resources import deployment, model, worker
from edgespec.resources.compile import compile_specs
from edgespec.resources.facts import BuildFacts, SpecFacts
from edgespec.review import Review, review
from edgespec.spec.document import Node
from edgespec.spec.models import EdgeModel
from edgespec.spec.validate import place
from edgespec.state.model import Key, ResourceRecord, State
from edgespec.stores.base import StateStore
from edgespec.target import Say, account_of, local_edge_of, shared_cache_of, state_store_of
from edgespec.values import UNKNOWN, Value, is_known
from edgespec.workspace import Workspace, load_workspace

if TYPE_CHECKING:
    from edgespec.benchmark.deploy import MakeProviders
    from edgespec.build.evaluation.compare import Evaluator
    from edgespec.local_edge.edge import LocalEdge


@dataclass(frozen=True, slots=True)
class Session:
    """One command's view: a valid project, the machine's cache and environment variables, where to say progress."""

    workspace: Workspace
    cache: Cache
    environ: Mapping[str, str]
    say: Say
    store: StateStore
    """Of the environment in use; connects when it is asked for something."""
    remote: RemoteCache | None = None
    """The build cache that the project's machines share; connects when it is asked for something."""

    @property
    def specs(self) -> dict[str, EdgeModel]:
        return {s.name: s for s in self.workspace.specs}


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan with what it takes to carry it out."""

    session: Session
    plan: Plan
    providers: Mapping[str, Provider]
    account: Account
    live: Live
    stored: State
    warnings: Diagnostics
    review: Review = Review()
    """Whether the models fit, what they cost, what the policies say."""
    refused: Diagnostics = Diagnostics()
    """The guard rails that it runs into: it is shown, and not carried out."""

    @property
    def fits(self) -> tuple[Fit, ...]:
        return self.review.fits

    @property
    def refusal(self) -> EdgespecError | None:
        """Why it may be shown and not carried out, guard rails and all."""
        if len(self.review.refused):
            return RefusedError(self.refused, self.review.refused)
        return EdgespecError(self.refused) if len(self.refused) else None

    @property
    def document(self) -> dict[str, Any]:
        """The plan as `--json` prints it and a plan file keeps it; made when asked for: most plans are only shown."""
        workspace = self.session.workspace
        return plan_file.to_document(
            self.plan,
            project=workspace.project.name,
            environment=workspace.environment,
            fits=self.review.fits,
            costs=self.review.costs,
            verdicts=self.review.verdicts,
        )

    def close(self) -> None:
        """Close the connections that were opened to make the plan."""
        self.account.close()


def open_session(
    root: Path, environment: str | None, environ: Mapping[str, str], say: Say, *, any_environment: bool = False
) -> Session:
    workspace = load_workspace(root, environment, environ, any_environment=any_environment)
    remote = shared_cache_of(workspace, environ, say)
    store = state_store_of(workspace, environ, say)
    return Session(workspace, Cache(default_cache_dir(environ)), environ, say, store, remote)


def validate(root: Path, environment: str | None, environ: Mapping[str, str]) -> tuple[Session, Diagnostics]:
    """Read and check everything that can be checked offline: documents, limits, data files, model folders."""
    session = open_session(root, environment, environ, lambda _: None, any_environment=environment is None)
    session = replace(session, remote=None)
    _, found = _facts(session, None)
    return session, session.workspace.warnings + found


# --- plan ------------------------------------------------------------------------------------------------------------


def plan(
    session: Session,
    names: tuple[str, ...] = (),
    *,
    destroy: bool = False,
    request: Request | None = None,
    saved: Mapping[str, Any] | None = None,
) -> Planned:
    """What an apply would do. Builds, uploads and changes nothing; starts the local edge when the target is local.

    `request` says more than `names` and `destroy` do. With `saved`, that plan made anew: raises when it is stale,
    without asking anybody where that can be told from here."""
    workspace = session.workspace
    request = plan_file.request_of(saved) if saved else request or Request(names, destroy)
    state, known = _stored(session)
    workspace.check_names(request.names, also=known)
    if saved is not None:
        plan_file.check_base(
            saved,
            project=workspace.project.name,
            environment=workspace.environment,
            spec_digest=workspace.spec_digest,
            state=state,
        )
    specs = _wanted(workspace, request)
    moved = renamed(state, workspace.specs, request).unwrap()
    facts, warnings = _facts(session, moved.state, specs)
    bundles = assets.bundles()
    chosen = [] if request.destroy else [s for s in specs if not request.names or s.name in request.names]
    desired = compile_specs(workspace.project.name, workspace.environment, specs, facts, bundles.facts)
    with contextlib.ExitStack() as on_failure:
        account = connect(session)
        on_failure.callback(account.close)
        live = Live(account)
        providers = _providers(session, account, live, bundles)
        refreshed = refresh(moved.state, desired, providers)
        made = make_plan(
            desired,
            moved.state,
            refreshed,
            spec_digest=workspace.spec_digest,
            request=request,
            moved=moved.moves,
        ).unwrap()
        builds = {Address(model.TYPE.name, name): f.build for name, f in facts.items()}
        made = replace(made, builds=builds, contents=_contents(made, account))
        on_failure.pop_all()
    judged = review(workspace, made, chosen, facts, bundles.facts)
    found = workspace.warnings + warnings + judged.warnings + warnings_of(made)
    protected = workspace.environment if workspace.target.protect else None
    refused = Diagnostics(check_safe(made, protected_environment=protected))
    return Planned(session, made, providers, account, live, state, found, judged, refused)


def _stored(session: Session) -> tuple[State, frozenset[str]]:
    """State, an empty one before the first apply, and the specs that own what is in it."""
    workspace = session.workspace
    state = session.store.load() or State("", workspace.project.name, workspace.environment)
    check_owner(state, session)
    return state, frozenset(o for r in state.records.values() for o in r.owners)


@contextlib.contextmanager
def held_store(session: Session, operation: str) -> Iterator[StateStore]:
    """The state, which nobody else writes meanwhile."""
    with session.store.lock(operation) as lease:
        if lease.robbed is not None:
            session.say(f"took over the lock of {lease.robbed}")
        yield session.store


def _wanted(workspace: Workspace, request: Request) -> list[EdgeModel]:
    """The specs whose resources shall exist."""
    if request.refresh_only or (request.destroy and not request.names and not request.targets):
        return []
    return [s for s in workspace.specs if not (request.destroy and s.name in request.names)]


def _contents(made: Plan, account: Account) -> dict[Key, Contents]:
    """What goes with every bucket and namespace that the plan removes."""
    return {
        c.key: contents(account, made.refreshed.records[c.key])
        for c in made.changes
        if c.action in (Action.DELETE, Action.REPLACE) and c.address.type in HOLDERS
    }


def check_owner(state: State, session: Session) -> None:
    """Raise unless `state` is this project's and environment's."""
    workspace = session.workspace
    if (state.project, state.environment) != (workspace.project.name, workspace.environment):
        detail = (
            f"{session.store.where} belongs to {state.project} in {state.environment}, not to "
            f"{workspace.project.name} in {workspace.environment}. Give each environment its own `state`; "
            "a project keeps its name."
        )
        raise EdgespecError(error("ES305", "The state is another's", detail))


def _facts(
    session: Session, state: State | None, specs: list[EdgeModel] | None = None
) -> tuple[dict[str, SpecFacts], list[Diagnostic]]:
    """What the disk says of each spec. Every spec's errors are gathered before any is raised."""
    pipeline = Pipeline(session.workspace.root, session.cache, lambda _: None, session.remote)
    facts: dict[str, SpecFacts] = {}
    found: list[Diagnostic] = []
    for spec in session.workspace.specs if specs is None else specs:
        try:
            quality = _quality_digest(session, spec, state, found)
            record = state.get(model.address(spec)) if state else None
            found_facts = pipeline.facts(spec, record.inputs if record else None)
            facts[spec.name] = SpecFacts(_remembered(found_facts, spec, record), quality)
        except EdgespecError as e:
            found += (_placed(d, session.workspace.nodes[spec.name]) for d in e.diagnostics)
    if Diagnostics(tuple(found)).has_errors:
        raise EdgespecError(*found)
    return facts, found


def _placed(found: Diagnostic, node: Node) -> Diagnostic:
    """A build's diagnostic at the field that it is about: the build knows the spec's values, not where they stand."""
    if found.source is not None:
        return found
    return replace(found, source=place(node, found.at or ("model", "source")))


def _quality_digest(session: Session, spec: EdgeModel, state: State | None, found: list[Diagnostic]) -> str | None:
    """The digest of the quality data, which is read and checked unless it was deployed with just this content."""
    if spec.quality is None:
        return None
    path = session.workspace.root / spec.quality.data
    try:
        file = session.cache.data_file(session.workspace.root, spec.quality.data)
    except OSError as e:
        where = place(session.workspace.nodes[spec.name], ("quality", "data"))
        detail = f"{spec.quality.data}: {e.strerror}. Paths are relative to edgespec.yaml."
        raise EdgespecError(error("ES161", "File cannot be read", detail, source=where)) from e
    record = state.get(deployment.address(spec)) if state else None
    gate: Any = record.inputs.get("quality") if record else None
    if gate is None or gate["data_digest"] != file.sha256:
        checked = read_examples(path.read_bytes(), spec.quality.data, spec.task)
        found += checked.diagnostics
        found += leakage(spec, session.workspace.root, checked.value or (), spec.quality.data)
    return file.sha256


def _remembered(facts: BuildFacts, spec: EdgeModel, record: ResourceRecord | None) -> BuildFacts:
    """What this machine cannot know is taken to be what state knows, when the source has the same name: a plan on a
    machine that builds nothing must not call a model changed only because it cannot look."""
    if record is None or is_known(dict(facts.inputs)) or record.inputs["source"] != spec.model.source:
        return facts
    inputs: dict[str, Value] = {**facts.inputs}
    for name in ("source_digest", "engine", "tools"):
        if not is_known(inputs[name]):
            inputs[name] = record.inputs.get(name, UNKNOWN)
    return replace(facts, inputs=inputs)


# --- the target ------------------------------------------------------------------------------------------------------


def local_edge(session: Session) -> LocalEdge:
    """The project's local edge, running or not; raises when the environment's target is another."""
    return local_edge_of(session.workspace, session.workspace.environment, session.environ, session.say)


def connect(session: Session) -> Account:
    """The account that the environment deploys to; starts the local edge when it is not running."""
    return account_of(session.workspace, session.workspace.environment, session.environ, session.say)


def _providers(session: Session, account: Account, live: Live, bundles: assets.Bundles) -> dict[str, Provider]:
    workspace = session.workspace
    models = ModelProvider(workspace.root, session.cache, session.specs, session.remote)
    owner = f"edgespec:{workspace.project.name}/{workspace.environment}"

    def teacher(spec: EdgeModel) -> Mapping[str, float]:
        path = spec.quality.data if spec.quality is not None else ""
        with models.building:
            return _evaluator(session, spec, edge=False).teacher(spec, path)

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


# --- apply -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Applied:
    planned: Planned
    result: ApplyResult | None
    """None when there was nothing to do or the person said no."""


def apply(
    session: Session,
    names: tuple[str, ...] = (),
    *,
    saved: dict[str, Any] | None = None,
    destroy: bool = False,
    adopt: bool = False,
    allow_destroy: bool = False,
    request: Request | None = None,
    approve: Callable[[Planned], bool],
    on_event: OnEvent,
    parallelism: int = PARALLELISM,
) -> Applied:
    """Plan, ask, carry out; the lock is held from before the plan to the end. With `saved`, only just that plan."""
    request = plan_file.request_of(saved) if saved else request or Request(names, destroy, allow_destroy=allow_destroy)

    def waiting(who: str) -> None:
        session.say(f"waiting for {who}: cache gc")

    with (
        held_store(session, "destroy" if request.destroy else "apply") as store,
        session.cache.in_use(waiting),
        contextlib.closing(plan(session, request=request, saved=saved)) as planned,
    ):
        if saved is not None:
            plan_file.check_same(saved, planned.document)
        if (refusal := planned.refusal) is not None:
            raise type(refusal)(planned.warnings, refusal.diagnostics)
        _check_adoptions(planned.plan, adopt=adopt)
        if not planned.plan.is_empty and not approve(planned):
            return Applied(planned, None)
        if planned.plan.is_empty and planned.stored.same_records(settled(planned.plan)):
            return Applied(planned, None)
        planned.live.forget()
        lineage = planned.stored.lineage or str(uuid.uuid4())
        base = replace(planned.plan.refreshed, lineage=lineage)
        with stoppable(session.say) as stop:
            planned.account.stop_with(stop)
            result = run_steps(
                replace(planned.plan, refreshed=base),
                replace(planned.stored, lineage=lineage),
                planned.providers,
                store,
                on_event,
                parallelism=parallelism,
                stop=stop,
            )
    return Applied(planned, result)


def _check_adoptions(made: Plan, *, adopt: bool) -> None:
    found = [str(c.address) for c in made.changes if c.action is Action.ADOPT]
    if found and not adopt:
        detail = (
            f"{', '.join(found)}: objects of these names exist, and this state does not know them. If they are yours, "
            "take them over with `edgespec apply --adopt`; otherwise rename the project or remove them."
        )
        raise EdgespecError(error("ES204", "Objects exist already", detail))


# --- measure, state, infer --------------------------------------------------------------------------------------------


def _providers_of(session: Session) -> MakeProviders:
    """The session's providers for other specs than its own, on an edge that lives for one measurement."""

    def providers(
        specs: Sequence[EdgeModel], account: Account, live: Live, bundles: assets.Bundles
    ) -> dict[str, Provider]:
        alone = replace(session, workspace=replace(session.workspace, specs=tuple(specs)))
        return _providers(alone, account, live, bundles)

    return providers


@dataclass(frozen=True, slots=True)
class Benched:
    document: BenchDocument
    kept: Path | None
    """Where `plan` finds it; None when the engine that the spec deploys was not measured."""


def bench(session: Session, name: str, *, engines: tuple[str, ...], rounds: int) -> Benched:
    """Measure one spec's model on this machine, in a local edge that lives as long as this call. Builds what is not
    in the cache; the environment's target is not asked."""
    from edgespec.benchmark.prepare import prepare
    from edgespec.benchmark.run import measure

    session.workspace.check_names((name,))

    document = measure(
        prepare(
            session.specs[name],
            session.workspace.root,
            session.cache,
            session.remote,
            engines=engines,
            rounds=rounds,
            providers=_providers_of(session),
            cache_dir=default_cache_dir(session.environ),
            say=session.say,
        )
    )
    kept = records.keep(session.workspace.root, document) if document.own is not None else None
    return Benched(document, kept)


@dataclass(frozen=True, slots=True)
class Evaluated:
    document: EvaluationDocument
    warnings: Diagnostics


def evaluate(
    session: Session, name: str, *, data: str | None = None, edge: bool = False, compare: bool = True
) -> Evaluated:
    """Measure one spec's model on its quality data or another file of the project, beside what it was compressed
    from. Builds what is not in the cache; with `edge` real workerd answers, in a local edge of its own."""
    session.workspace.check_names((name,))
    spec = session.specs[name]
    path = data or (spec.quality.data if spec.quality is not None else None)
    if path is None:
        detail = f"{name} names no quality data. Give it `quality: {{data: ...}}`, or say `--data FILE`."
        raise EdgespecError(error("ES580", "the quality data cannot be measured", detail))
    document = _evaluator(session, spec, edge=edge).evaluate(spec, path, compare=compare)
    examples = read_examples((session.workspace.root / path).read_bytes(), path, spec.task)
    leaks = leakage(spec, session.workspace.root, examples.value or (), path)
    return Evaluated(document, examples.diagnostics + leaks)


def _evaluator(session: Session, spec: EdgeModel, *, edge: bool) -> Evaluator:
    """Keywords are found by the Worker's own code, so workerd answers for them whatever was asked."""
    from edgespec.benchmark.answers import WorkerdAnswering, local_answering
    from edgespec.build.evaluation.compare import Evaluator

    in_workerd = edge or spec.task.type == "keyword-extraction"
    cache_dir = default_cache_dir(session.environ)
    answering = WorkerdAnswering(_providers_of(session), cache_dir, session.say) if in_workerd else local_answering()
    root, cache = session.workspace.root, session.cache
    return Evaluator(
        root, cache, lambda progress: Pipeline(root, cache, progress, session.remote), answering, session.say
    )


def current_state(session: Session) -> State | None:
    return session.store.load()


def infer(session: Session, name: str, body: dict[str, Any]) -> dict[str, Any]:
    """Ask the deployed model at its public address; `body` is `/infer`'s (docs/worker-runtime.md)."""
    import httpx

    state = session.store.load()
    known = frozenset(o for r in (state.records.values() if state else ()) for o in r.owners)
    session.workspace.check_names((name,), also=known)
    record = state.get(Address(worker.TYPE.name, name)) if state else None
    if state is None or record is None or state.get(Address(deployment.TYPE.name, name)) is None:
        detail = f"{name} is not deployed in {session.workspace.environment}. Run `edgespec apply` first."
        raise EdgespecError(error("ES405", "Not deployed", detail))
    with contextlib.closing(connect(session)) as account:
        url = account.worker_url(str(record.inputs["script"])) + "infer"
    try:
        answer = httpx.post(url, json=body, timeout=60, trust_env=not account.endpoints.is_loopback)
    except httpx.TransportError as e:
        detail = f"{url}: {type(e).__name__}. Run `edgespec plan` to see whether it is still deployed."
        raise EdgespecError(error("ES406", "No answer", detail)) from e
    if answer.status_code != httpx.codes.OK:
        raise EdgespecError(error("ES407", "The Worker refused", f"HTTP {answer.status_code}: {_message(answer)}"))
    found: dict[str, Any] = answer.json()
    return found


def _message(answer: Any) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return str(answer.text[:300])
