"""Deploy variants to a temporary edge by the planner and the applier that deploy everything else (edge)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from edgespec import assets
from edgespec.address import Address
from edgespec.apply.applier import apply
from edgespec.apply.refresh import refresh
from edgespec.benchmark.variants import Variant
from edgespec.diagnostics import EdgespecError
from edgespec.local_edge.edge import Endpoint
from edgespec.plan.planner import make_plan
from edgespec.providers.base import Provider
from edgespec.providers.cloudflare.account import Account, Endpoints
from edgespec.providers.cloudflare.live import Live
from edgespec.records import replace
from edgespec.resources import deployment, worker
from edgespec.resources.compile import compile_specs
from edgespec.resources.facts import BuildFacts, SpecFacts
from edgespec.spec.models import EdgeModel
from edgespec.state.journal import Mutation
from edgespec.state.model import State

PROJECT: Final = "bench"
ENVIRONMENT: Final = "local"

MakeProviders = Callable[[Sequence[EdgeModel], Account, Live, assets.Bundles], Mapping[str, Provider]]


@dataclass(frozen=True, slots=True)
class Deployed:
    version: str
    """What the inspector calls the Worker."""
    path: str
    """Of its address, from and to a slash: the port changes with every start of the edge."""


class _Memory:
    """Where a state goes that nobody needs later."""

    _serial = 0

    def save(self, state: State) -> State:
        self._serial = state.serial + 1
        return replace(state, serial=self._serial)

    def record(self, *changes: Mutation) -> int:
        self._serial += 1
        return self._serial


def deploy(
    variants: Sequence[Variant],
    endpoint: Endpoint,
    *,
    facts: Callable[[EdgeModel], BuildFacts],
    providers: MakeProviders,
) -> dict[str, Deployed]:
    """Every variant, by its engine. Raises with every diagnostic when a step fails."""
    specs = [v.spec for v in variants]
    bundles = assets.bundles()
    known = {s.name: SpecFacts(facts(s)) for s in specs}
    desired = compile_specs(PROJECT, ENVIRONMENT, specs, known, bundles.facts)
    where = Endpoints(endpoint.account_id, endpoint.api_base_url, endpoint.api_token, endpoint.s3_base_url)
    state = State("", PROJECT, ENVIRONMENT)
    with contextlib.closing(Account(where)) as account:
        made = providers(specs, account, Live(account), bundles)
        plan = make_plan(desired, state, refresh(state, desired, made), spec_digest="").unwrap()
        result = apply(plan, state, made, _Memory(), lambda _: None)
    if result.diagnostics.has_errors:
        raise EdgespecError(result.diagnostics)
    return {s.name: _deployed(result.state, s.name, endpoint) for s in specs}


def _deployed(state: State, name: str, endpoint: Endpoint) -> Deployed:
    version = state.get(Address(worker.TYPE.name, name))
    live = state.get(Address(deployment.TYPE.name, name))
    if version is None or live is None:
        raise TypeError(f"{name} was deployed without a record")
    path = str(live.outputs["url"]).removeprefix(endpoint.base_url)
    return Deployed(str(version.outputs["version_id"]), path)
