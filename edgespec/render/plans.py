"""Plans of several environments: a table of all, then each as it is shown alone; and the published document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from edgespec.diagnostics import Diagnostics
from edgespec.plan.cost import NOTHING, Costs
from edgespec.plan.document import PlanDocument
from edgespec.plan.model import Plan
from edgespec.plan.policy import Verdict
from edgespec.render import diagnostics as render_diagnostics
from edgespec.render import plan as render_plan
from edgespec.render.events import DiagnosticDocument
from edgespec.render.text import Line, Span, line

FORMAT: Final = "edgespec.plans/v1"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)


class EnvironmentDocument(_Strict):
    """One environment's plan. `refused` has a plan that may not be carried out, `failed` none."""

    environment: str
    outcome: Literal["no changes", "changes", "refused", "failed"]
    plan: PlanDocument | None
    warnings: list[DiagnosticDocument]
    errors: list[DiagnosticDocument]
    """Why it was refused, or failed."""


class PlansDocument(_Strict):
    """What `edgespec plan --json` prints for several environments, in the order in which they were asked for."""

    format: Literal["edgespec.plans/v1"]
    selector: str | None
    exit_code: int = Field(ge=0, le=4)
    """Of `plan --detailed-exitcode`."""
    environments: list[EnvironmentDocument]


@dataclass(frozen=True, slots=True)
class Shown:
    """What is told of one environment. Without a plan, `refused` says why there is none."""

    project: str
    environment: str
    plan: Plan | None = None
    digest: str = ""
    costs: Costs = NOTHING
    verdicts: tuple[Verdict, ...] = ()
    warnings: Diagnostics = Diagnostics()
    refused: Diagnostics = Diagnostics()

    @property
    def outcome(self) -> str:
        if self.plan is None:
            return "failed"
        if len(self.refused):
            return "refused"
        return "no changes" if self.plan.is_empty else "changes"

    @property
    def summary(self) -> str:
        """In a few words."""
        if self.plan is None:
            first = next(iter(self.refused), None)
            return f"no plan: {first.summary} [{first.code}]" if first is not None else "no plan"
        refused = ", refused" if len(self.refused) else ""
        return f"{render_plan.summary(self.plan)}{refused}"


def document(
    shown: Sequence[Shown], plans: Sequence[dict[str, Any] | None], *, selector: str | None, exit_code: int
) -> dict[str, Any]:
    """`plans` are the documents of the plans, in the order of `shown`."""
    return {
        "format": FORMAT,
        "selector": selector,
        "exit_code": exit_code,
        "environments": [
            {
                "environment": s.environment,
                "outcome": s.outcome,
                "plan": plan,
                "warnings": render_diagnostics.to_json(s.warnings),
                "errors": render_diagnostics.to_json(s.refused),
            }
            for s, plan in zip(shown, plans, strict=True)
        ],
    }


_STYLES: Final = {"failed": "red", "refused": "red", "changes": "yellow", "no changes": "green"}


def overview(shown: Sequence[Shown]) -> list[Line]:
    """One line an environment."""
    project = next((s.project for s in shown if s.project), "")
    width = max((len(s.environment) for s in shown), default=0)
    title = f"Plans for {project} in {len(shown)} environments" if project else f"Plans for {len(shown)} environments"
    lines = [line(Span(title, "bold"))]
    for s in shown:
        lines.append(line("  ", f"{s.environment:<{width}}  ", Span(s.summary, _STYLES[s.outcome])))
    return [*lines, ()]


def render(shown: Shown) -> list[Line]:
    """One environment's plan; where there is none, that: why is told on the other stream."""
    if shown.plan is None:
        return [line(Span(f"{shown.project} in {shown.environment}: {shown.summary}", "red")), ()]
    lines = render_plan.render(shown.plan, shown.project, shown.environment, costs=shown.costs, verdicts=shown.verdicts)
    return [*lines, *([()] if shown.plan.is_empty else [])]
