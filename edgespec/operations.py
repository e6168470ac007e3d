"""What the commands do, as functions: validate, plan and apply wire the pure packages to the edges and return values.

Printing, asking and exit codes are the command line's; an embedding program calls these.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from edgespec import assets
from edgespec.address import Address
from edgespec.apply import PARALLELISM
from edgespec.apply.refresh import refresh
from edgespec.diagnostics import Diagnostic, Diagnostics, EdgespecError, RefusedError, error
from edgespec.facts import facts_of
from edgespec.plan.archives import with_archives
from edgespec.plan.budget import Fit
from edgespec.plan.model import Action, Contents, Plan, Request
from edgespec.plan.moves import renamed
from edgespec.plan.planner import make_plan
from edgespec.plan.safety import check_safe, warnings_of
from edgespec.plan.settle import settled
from edgespec.providers.base import Provider
from edgespec.providers.cloudflare.account import Account
from edgespec.providers.cloudflare.contents import TYPES as HOLDERS
from edgespec.providers.cloudflare.contents import contents
from edgespec.providers.cloudflare.live import Live
from edgespec.providers.cloudflare.workers_list import known_deployments
from edgespec.records import replace
from edgespec.releases import Artifacts
from edgespec.resources import model
from edgespec.resources.compile import compile_specs
from edgespec.review import Review, review
from edgespec.selection import narrowed
from edgespec.session import Session, connect, held_store, open_session, stored
from edgespec.spec.models import EdgeModel, Project
from edgespec.spec.releases import path_of
from edgespec.spec.validate import place
from edgespec.state.model import Key, State
from edgespec.wiring import provenance_of, providers_of
from edgespec.workspace import Workspace, default_environment, reader_of

if TYPE_CHECKING:
    from edgespec.plan.events import ApplyResult, OnEvent


class Planned(Struct, frozen=True):
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
        from edgespec.plan import file as plan_file

        workspace = self.session.workspace
        return plan_file.to_document(
            replace(self.plan, spec_digest=workspace.spec_digest),
            project=workspace.project.name,
            environment=workspace.environment,
            fits=self.review.fits,
            costs=self.review.costs,
            verdicts=self.review.verdicts,
        )

    def close(self) -> None:
        """Close the connections that were opened to make the plan."""
        self.account.close()


def validate(
    root: Path, environment: str | None, environ: Mapping[str, str], *, selector: str | None = None
) -> tuple[Session, Diagnostics]:
    """Read and check everything that can be checked offline: documents, limits, data files, model folders. Without an
    environment, the specs as each environment with overlays has them. With a selector, the files of those specs alone:
    the documents are checked as a whole."""
    reader = reader_of(root)
    session: Session | None = None
    found: list[Diagnostic] = []
    checked: dict[str, list[EdgeModel]] = {}
    for name in [environment] if environment is not None else _different(reader.project(environ)):
        try:
            view = open_session(root, name, environ, lambda _: None, any_environment=environment is None, reader=reader)
            view = replace(view, remote=None)
            found += view.workspace.warnings
            found += _untrustworthy(view)
            picked = frozenset(narrowed(view.workspace, (), selector))
            mine = [s for s in view.workspace.specs if not picked or s.name in picked]
            fresh = [s for s in mine if s not in checked.setdefault(s.name, [])]
            for spec in fresh:
                checked[spec.name].append(spec)
            found += facts_of(view, None, fresh)[1]
            session = session or view
        except EdgespecError as e:
            found += e.diagnostics
    merged = Diagnostics(tuple(dict.fromkeys(found)))
    if session is None or merged.has_errors:
        raise EdgespecError(merged)
    return session, merged


def _untrustworthy(session: Session) -> Diagnostics:
    """Trusted keys that are none."""
    if not session.workspace.project.provenance.keys:
        return Diagnostics()
    from edgespec.statements import Statements

    return Statements(session).key_problems


def _check_keys(session: Session) -> None:
    """Raise for keys of provenance that are set and cannot be used, before anything is built for them."""
    if (problems := _untrustworthy(session)).has_errors:
        raise EdgespecError(problems)
    if session.environ.get("EDGESPEC_SIGNING_KEY"):  # else nothing of cryptography is imported
        from edgespec.signing import signer_of

        signer_of(session.environ)


def _different(project: Project) -> list[str]:
    """The default environment, and those in which specs may say something else."""
    default = default_environment(project)
    return [default, *(name for name, e in project.environments.items() if e.overrides and name != default)]


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
    request = _request(saved) or request or Request(names, destroy)
    if not request.destroy:
        _check_keys(session)
    state, known = stored(session)
    workspace.check_names(request.names, also=known)
    _check_released(workspace, request, known)
    if saved is not None:
        from edgespec.plan import file as plan_file

        plan_file.check_base(
            saved,
            project=workspace.project.name,
            environment=workspace.environment,
            spec_digest=workspace.spec_digest,
            state=state,
        )
    specs = _wanted(workspace, request)
    moved = renamed(state, workspace.specs, request).unwrap()
    artifacts = Artifacts(session, moved.state)
    facts, warnings = facts_of(session, moved.state, specs, artifacts)
    bundles = assets.bundles()
    chosen = [] if request.destroy else [s for s in specs if not request.names or s.name in request.names]
    desired = compile_specs(workspace.project.name, workspace.environment, specs, facts, bundles.facts)
    with contextlib.ExitStack() as on_failure:
        account = connect(session)
        on_failure.callback(account.close)
        live = Live(account, known_deployments(moved.state))
        providers = providers_of(session, account, live, bundles, artifacts)
        refreshed = refresh(moved.state, desired, providers)
        desired = with_archives(desired, refreshed.state, workspace.target.keep)
        made = make_plan(
            desired,
            moved.state,
            refreshed,
            spec_digest="",  # `Planned.document` has it
            request=request,
            moved=moved.moves,
        ).unwrap()
        builds = {Address(model.TYPE.name, name): f.build for name, f in facts.items()}
        unreleased = () if request.destroy else workspace.unreleased
        made = replace(made, builds=builds, contents=_contents(made, account), unreleased=unreleased)
        on_failure.pop_all()
    provenance = provenance_of(session, account, refreshed.state, facts, artifacts)
    judged = review(workspace, made, chosen, facts, bundles.facts, provenance)
    found = workspace.warnings + warnings + judged.warnings + warnings_of(made)
    protected = workspace.environment if workspace.target.protect else None
    refused = Diagnostics(check_safe(made, protected_environment=protected))
    return Planned(session, made, providers, account, live, state, found, judged, refused)


def _wanted(workspace: Workspace, request: Request) -> list[EdgeModel]:
    """The specs whose resources shall exist."""
    if request.refresh_only or (request.destroy and not request.names and not request.targets):
        return []
    left = {*workspace.unreleased, *(request.names if request.destroy else ())}
    return [s for s in workspace.specs if s.name not in left]


def _check_released(workspace: Workspace, request: Request, known: frozenset[str]) -> None:
    """Raise where something is deployed that was never promoted: leaving it out would remove it."""
    gone = [n for n in workspace.unreleased if n in known and (not request.names or n in request.names)]
    if not gone or request.destroy or request.refresh_only:
        return
    source, into = workspace.target.promote_from, workspace.environment
    detail = (
        f"{', '.join(gone)}: deployed in {into}, which deploys only what was promoted, and not in "
        f"{path_of(into)}. Promote it (`edgespec promote {gone[0]} --from {source} --to {into}`), or remove it from "
        f"there (`edgespec destroy {gone[0]} --env {into}`)."
    )
    where = place(workspace.project_node, ("environments", into, "promote_from"))
    raise EdgespecError(error("ES707", "Deployed without a release", detail, source=where))


def _contents(made: Plan, account: Account) -> dict[Key, Contents]:
    """What goes with every bucket and namespace that the plan removes."""
    return {
        c.key: contents(account, made.refreshed.records[c.key])
        for c in made.changes
        if c.action in (Action.DELETE, Action.REPLACE) and c.address.type in HOLDERS
    }


class Applied(Struct, frozen=True):
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
    from edgespec.apply.applier import apply as run_steps
    from edgespec.apply.interrupt import stoppable

    request = _request(saved) or request or Request(names, destroy, allow_destroy=allow_destroy)

    def waiting(who: str) -> None:
        session.say(f"waiting for {who}: cache gc")

    with (
        held_store(session, "destroy" if request.destroy else "apply") as store,
        session.cache.in_use(waiting),
        contextlib.closing(plan(session, request=request, saved=saved)) as planned,
    ):
        if saved is not None:
            from edgespec.plan import file as plan_file

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
        base = replace(planned.plan.refreshed, lineage=lineage, account=session.workspace.account)
        with stoppable(session.say) as stop:
            planned.account.stop_with(stop)
            result = run_steps(
                replace(planned.plan, refreshed=base),
                replace(planned.stored, lineage=lineage, account=base.account),
                planned.providers,
                store,
                on_event,
                parallelism=parallelism,
                stop=stop,
            )
    return Applied(planned, result)


def _request(saved: Mapping[str, Any] | None) -> Request | None:
    """What a saved plan was asked for."""
    if not saved:
        return None
    from edgespec.plan import file as plan_file

    return plan_file.request_of(saved)


def _check_adoptions(made: Plan, *, adopt: bool) -> None:
    found = [str(c.address) for c in made.changes if c.action is Action.ADOPT]
    if found and not adopt:
        detail = (
            f"{', '.join(found)}: objects of these names exist, and this state does not know them. If they are yours, "
            "take them over with `edgespec apply --adopt`; otherwise rename the project or remove them."
        )
        raise EdgespecError(error("ES204", "Objects exist already", detail))
