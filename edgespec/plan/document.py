"""The plan as a published document: the source of schemas/plan.schema.json."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from edgespec.plan.judged import CostsDocument, PolicyDocument

Digest = Field(pattern=r"^[0-9a-f]{64}$")


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)


class FieldDocument(Strict):
    """One leaf that differs. `source` is the other resource's output that gives it."""

    path: str
    before: Any
    after: Any
    known_after: Literal["build", "apply"] | None
    replaces: bool
    why: str
    """Why it cannot be changed in place; empty where it can."""
    avoid: str
    """What to do instead of a replacement."""
    source: str


class WorkDocument(Strict):
    """At most this much; null where it is known only after a build."""

    upload_bytes: int | None
    r2_writes: int | None
    r2_deletes: int
    kv_writes: int | None
    kv_deletes: int
    stages: list[str]


class ContentsDocument(Strict):
    objects: int
    bytes: int | None
    foreign: int


class ChangeDocument(Strict):
    address: str
    type: str
    name: str
    deposed: str
    action: Literal["create", "adopt", "update", "replace", "delete", "move"]
    reason: Literal[
        "new", "changed", "renamed", "cannot-update", "not-in-spec", "drifted", "missing-remotely", "interrupted",
        "deposed", "exists-unmanaged", "destroy",
    ]  # fmt: skip
    moved_from: str | None
    owners: list[str]
    protected: bool
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    """With null for what is known only after the apply."""
    fields: list[FieldDocument]
    work: WorkDocument
    contents: ContentsDocument | None
    """What a bucket or namespace that goes holds."""


class DriftDocument(Strict):
    address: str
    deposed: str
    kind: Literal["changed", "gone"]
    fields: list[FieldDocument]


class WaitDocument(Strict):
    step: str
    why: str


class StepDocument(Strict):
    step: str
    waits_for: list[WaitDocument]
    """Without those that these wait for themselves."""


class StateReference(Strict):
    lineage: str
    serial: int


class RequestDocument(Strict):
    names: list[str]
    destroy: bool
    targets: list[str]
    excludes: list[str]
    refresh_only: bool
    allow_destroy: bool


class ArtifactReference(Strict):
    key: str | None
    """Of the build; null while an input is not on this machine."""
    artifact: str | None
    """Null until it is built."""


class MeasuredDocument(Strict):
    engine: str
    texts: str
    measured_at: str
    memory: int
    cpu_p50_ms: float
    cpu_p99_ms: float


class FitDocument(Strict):
    """What is known of one model's needs against its limits and its budget."""

    name: str
    labels: dict[str, str]
    script: int
    script_budget: int | None
    memory_budget: int | None
    cpu_limit_ms: int
    cpu_p50_budget_ms: float | None
    cpu_p99_budget_ms: float | None
    measured: MeasuredDocument | None


class PlanDocument(Strict):
    """What one apply would do. `digest` covers all the rest."""

    format: Literal["edgespec.plan/v2"]
    project: str
    environment: str
    request: RequestDocument
    spec_digest: str = Digest
    state: StateReference
    live: dict[str, str]
    """A digest of each record as it was found live, and of each object that state does not know."""
    artifacts: dict[str, ArtifactReference]
    summary: dict[str, int]
    work: WorkDocument
    changes: list[ChangeDocument]
    drift: list[DriftDocument]
    protections: dict[str, bool]
    """What `prevent_destroy` comes to protect (true), and from what it is lifted."""
    withheld: list[str]
    steps: list[StepDocument]
    fits: list[FitDocument]
    costs: CostsDocument
    policies: list[PolicyDocument]
    unreleased: list[str] = Field(default_factory=list)
    """Specs that the environment does not deploy, since nothing of them was promoted to it yet."""
    digest: str = Digest


class DriftReport(Strict):
    """What `edgespec drift --json` prints."""

    format: Literal["edgespec.drift/v1"]
    project: str
    environment: str
    state: StateReference
    drift: list[DriftDocument]
