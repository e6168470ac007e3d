"""What `promote --json` and `history --json` print: the sources of schemas/promotion.schema.json and
history.schema.json."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from edgespec.spec.releases import Release


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class PromotedDocument(_Strict):
    name: str
    before: Release | None
    """What the environment deploys until the file is applied."""
    after: Release


class PromotionDocument(_Strict):
    format: Literal["edgespec.promotion/v1"] = "edgespec.promotion/v1"
    source: str = Field(alias="from")
    target: str = Field(alias="to")
    path: str
    """The file that was written, relative to edgespec.yaml."""
    promoted: tuple[PromotedDocument, ...]
    unchanged: tuple[str, ...]
    """What the environment deploys already."""


class PastDocument(_Strict):
    artifact: str
    size: int
    """Bytes."""
    metrics: dict[str, float]
    current: bool
    """What the environment is to deploy."""
    live: bool
    """What answers, by state."""
    kept: bool
    """Its objects are in the environment's buckets."""
    release: Release | None
    """None where only state knows it."""


class HistoryDocument(_Strict):
    format: Literal["edgespec.history/v1"] = "edgespec.history/v1"
    name: str
    environment: str
    pinned: str | None
    """Why it was rolled back."""
    history: tuple[PastDocument, ...]
    """Newest first."""
