"""Plans of several environments at once: files are read once, accounts are asked side by side.

Threads rather than processes: what takes time of its own is waiting for accounts, the specs that no overlay changes are
shared, and so is the one pace of a token (bench/fleet.py measures both).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgespec import operations
from edgespec.diagnostics import EdgespecError, RefusedError
from edgespec.operations import Planned
from edgespec.plan.model import Request
from edgespec.providers.cloudflare.account import Paces
from edgespec.records import replace
from edgespec.selection import selected
from edgespec.session import Session, open_session
from edgespec.target import Say
from edgespec.threads import spread
from edgespec.workspace import reader_of

PARALLEL: Final = 8
"""Environments planned at once."""


@dataclass(frozen=True, slots=True)
class EnvironmentPlan:
    """What an apply would do in one environment, or why that cannot be said. Just one of the two is there."""

    environment: str
    planned: Planned | None = None
    failure: EdgespecError | None = None

    @property
    def refusal(self) -> EdgespecError | None:
        """Why it may not be carried out."""
        return self.planned.refusal if self.planned is not None else self.failure

    def exit_code(self, *, detailed: bool) -> int:
        if (refusal := self.refusal) is not None:
            return 4 if isinstance(refusal, RefusedError) else 1
        return 2 if detailed and self.planned is not None and not self.planned.plan.is_empty else 0


@dataclass(frozen=True, slots=True)
class Plans:
    """In the order in which the environments were named."""

    project: str
    plans: tuple[EnvironmentPlan, ...]

    def exit_code(self, *, detailed: bool) -> int:
        """The worst of all: an error, a refusal, changes, nothing."""
        return min((p.exit_code(detailed=detailed) for p in self.plans), key=_WORST.index, default=0)


_WORST: Final = (1, 4, 2, 0)


def plan_all(
    root: Path,
    named: Sequence[str],
    environ: Mapping[str, str],
    say: Say,
    *,
    request: Request | None = None,
    selector: str | None = None,
    parallel: int = PARALLEL,
) -> Plans:
    """A plan of each named environment, or of all; what keeps one from being planned leaves the others alone. Raises
    only where edgespec.yaml itself cannot be read. The plans' connections are closed."""
    reader, paces = reader_of(root), Paces()
    request = request or Request()

    def opened(environment: str) -> Session | EdgespecError:
        def tell(message: str) -> None:
            say(f"{environment}: {message}")

        try:
            session = open_session(root, environment, environ, tell, reader=reader)
        except EdgespecError as e:
            return e
        return replace(session, paces=paces)

    def planned(environment: str, session: Session | EdgespecError) -> EnvironmentPlan:
        if isinstance(session, EdgespecError):
            return EnvironmentPlan(environment, failure=session)
        try:
            wanted = selected(session.workspace, request, selector)
            with contextlib.closing(operations.plan(session, request=wanted)) as made:
                return EnvironmentPlan(environment, made)
        except EdgespecError as e:
            return EnvironmentPlan(environment, failure=e)

    project = reader.project(environ)
    environments = tuple(dict.fromkeys(named)) or tuple(project.environments)
    sessions = {name: opened(name) for name in environments}
    at_once = max(1, min(parallel, len(environments)))
    plans = _side_by_side(lambda name: planned(name, sessions[name]), environments, at_once)
    return Plans(project.name, tuple(plans))


def _side_by_side(
    plan: Callable[[str], EnvironmentPlan], environments: Sequence[str], parallel: int
) -> list[EnvironmentPlan]:
    pool = ThreadPoolExecutor(parallel, thread_name_prefix="plan")
    try:
        return list(spread(pool, plan, environments))
    finally:  # ctrl-C waits for no answer from the other side
        pool.shutdown(wait=False, cancel_futures=True)
