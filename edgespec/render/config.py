"""A spec as an environment has it: lines with their origins, and the published document."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from edgespec.render.text import Line, Span, line
from edgespec.spec.effective import Effective

FORMAT: Final = "edgespec.config/v1"
_WIDEST: Final = 60


class ConfigDocument(BaseModel):
    """What `edgespec config show --json` prints."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    format: Literal["edgespec.config/v1"]
    project: str
    environment: str
    name: str
    spec: dict[str, Any]
    """With the environment's overlays and all defaults; sizes are bytes, durations seconds."""
    origins: dict[str, str]
    """Field -> `file:line`, `default`, or `default, by file:line` where an overlay brings the default back."""


def document(found: Effective, *, project: str, environment: str, name: str) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "project": project,
        "environment": environment,
        "name": name,
        "spec": found.data,
        "origins": found.origins,
    }


def render(found: Effective, *, origins: bool) -> list[Line]:
    """The YAML document; with `origins`, each line says where it was written."""
    if not origins:
        return [line(row.text) for row in found.rows]
    width = min(_WIDEST, max(len(row.text) for row in found.rows))
    return [line(f"{row.text:<{width}}  ", Span(f"# {row.place}", "dim")) for row in found.rows]
