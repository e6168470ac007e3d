"""Events of an apply as JSON, one object a line: the contract is schemas/event.schema.json.

`plan` comes first, then `started`, `progress` and `finished` of each step as they happen, several steps mixed, and
`summary` last, whatever happens in between short of a kill.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel

from edgespec.diagnostics import Diagnostics
from edgespec.plan.events import ApplyResult, Event, Outcome, StepProgress, StepStarted
from edgespec.plan.model import StepId
from edgespec.render.diagnostics import to_json as diagnostics_to_json
from edgespec.secret import scrub

FORMAT: Final = "edgespec.event/v1"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)


class _Line(_Strict):
    format: Literal["edgespec.event/v1"]
    seconds: float = Field(ge=0)
    """Since the command began."""


class DiagnosticDocument(_Strict):
    severity: Literal["error", "warning"]
    code: str
    summary: str
    detail: str
    address: str | None
    path: str | None
    line: int | None
    column: int | None


class PlanLine(_Line):
    """What is about to be carried out. An empty plan has no steps."""

    event: Literal["plan"]
    digest: str = Field(pattern=r"^[0-9a-f]{64}$")
    summary: dict[str, int]
    steps: int


class StartedLine(_Line):
    event: Literal["started"]
    step: str
    action: Literal["create", "adopt", "update", "delete"]
    address: str


class ProgressLine(_Line):
    event: Literal["progress"]
    step: str
    action: Literal["create", "adopt", "update", "delete"]
    address: str
    message: str
    fraction: float | None = Field(ge=0, le=1)
    """How much is done, where that is known."""


class FinishedLine(_Line):
    event: Literal["finished"]
    step: str
    action: Literal["create", "adopt", "update", "delete"]
    address: str
    outcome: Literal["done", "unchanged", "failed", "skipped", "left"]
    """`skipped`: something that it needs failed; `left`: the run was told to stop."""
    metrics: dict[str, float]
    """What a deployment's quality gate measured."""
    diagnostics: list[DiagnosticDocument]


class SummaryLine(_Line):
    """How it ended. `refused` and `failed` say so in the exit code too."""

    event: Literal["summary"]
    outcome: Literal["done", "nothing to do", "not approved", "failed", "stopped", "refused"]
    plan: str | None
    """The plan's digest; null where it came to none."""
    summary: dict[str, int]
    steps: dict[str, str]
    urls: dict[str, str]
    diagnostics: list[DiagnosticDocument]


class EventDocument(RootModel[Any]):
    """One line of `apply --json` and `destroy --json`."""

    root: Annotated[PlanLine | StartedLine | ProgressLine | FinishedLine | SummaryLine, Field(discriminator="event")]


def plan_line(document: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """`document` is the plan's."""
    rest = {"digest": document["digest"], "summary": document["summary"], "steps": len(document["steps"])}
    return _line("plan", seconds, **rest)


def event_line(event: Event, seconds: float) -> dict[str, Any]:
    if isinstance(event, StepStarted):
        return _line("started", seconds, **_step(event.step))
    if isinstance(event, StepProgress):
        fraction = None if event.fraction is None else min(1.0, max(0.0, event.fraction))
        return _line("progress", seconds, **_step(event.step), message=scrub(event.message), fraction=fraction)
    metrics: Any = (event.outputs or {}).get("metrics")
    return _line(
        "finished",
        seconds,
        **_step(event.step),
        outcome=event.outcome.value,
        metrics=dict(sorted(metrics.items())) if metrics and event.outcome is Outcome.DONE else {},
        diagnostics=diagnostics_to_json(event.diagnostics),
    )


def summary_line(
    document: Mapping[str, Any] | None, result: ApplyResult | None, outcome: str, found: Diagnostics, seconds: float
) -> dict[str, Any]:
    """`result` is None where nothing was carried out."""
    return _line(
        "summary",
        seconds,
        outcome=outcome,
        plan=document["digest"] if document is not None else None,
        summary=document["summary"] if document is not None else {},
        steps={} if result is None else {str(s): o.value for s, o in result.outcomes.items()},
        urls={} if result is None else urls_of(result),
        diagnostics=diagnostics_to_json(found),
    )


def urls_of(result: ApplyResult) -> dict[str, str]:
    """Where each deployed model answers."""
    return {
        k.address.name: str(r.outputs["url"])
        for k, r in sorted(result.state.records.items())
        if k.address.type == "deployment" and not k.deposed and "url" in r.outputs
    }


def _step(step: StepId) -> dict[str, Any]:
    return {"step": str(step), "action": step.kind.value, "address": str(step.key)}


def _line(event: str, seconds: float, **rest: Any) -> dict[str, Any]:
    return {"format": FORMAT, "event": event, "seconds": round(seconds, 3), **rest}
