"""What `edgespec verify` found, as values and as a published document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

FORMAT: Final = "edgespec.verification/v1"


@dataclass(frozen=True, slots=True)
class Check:
    """`ok` is None where nothing could be checked for want of something to check by."""

    name: str
    ok: bool | None
    said: str
    bucket: str = ""


@dataclass(frozen=True, slots=True)
class Verification:
    project: str
    environment: str
    model: str
    artifact: str
    checks: tuple[Check, ...]
    builder: str = ""
    revision: str = ""
    signed_by: str = ""
    """The trusted key's id; empty where there is none."""

    @property
    def passed(self) -> bool:
        return all(c.ok is not False for c in self.checks)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)


class CheckDocument(_Strict):
    name: Literal["worker", "manifest", "chunks", "statement", "signature", "release"]
    bucket: str
    """Empty where it is about none."""
    result: Literal["ok", "failed", "not checked"]
    text: str


class VerificationDocument(_Strict):
    """What `edgespec verify --json` prints. `passed` where nothing failed."""

    format: Literal["edgespec.verification/v1"]
    project: str
    environment: str
    model: str
    artifact: str = Field(pattern=r"^[0-9a-f]{64}$")
    passed: bool
    builder: str
    revision: str
    """The commit that it was built from; empty where that is not said, or had changes on top."""
    signed_by: str
    """The id of the trusted key; empty where none has signed."""
    checks: list[CheckDocument]


def to_document(found: Verification) -> dict[str, Any]:
    words = {True: "ok", False: "failed", None: "not checked"}
    return {
        "format": FORMAT,
        "project": found.project,
        "environment": found.environment,
        "model": found.model,
        "artifact": found.artifact,
        "passed": found.passed,
        "builder": found.builder,
        "revision": found.revision,
        "signed_by": found.signed_by,
        "checks": [{"name": c.name, "bucket": c.bucket, "result": words[c.ok], "text": c.said} for c in found.checks],
    }
