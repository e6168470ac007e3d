"""What the build adapter knows of a model before anything is built. Plain values: the planner never touches a file."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from edgespec.artifact import Manifest
from edgespec.values import Value


class StageFacts(Struct, frozen=True):
    name: str
    """fetch, the stages of the pipeline, export, compile or quantize, pack."""
    key: str | None
    """Cache key, SHA-256 in hex; None when an input is not on this machine yet."""
    cached: bool
    remote: bool = False
    """In the cache that machines share, and not on this one."""
    why: str = ""
    """What of its inputs differs from the deployed artifact's: `epochs changed`."""


class BuildFacts(Struct, frozen=True):
    """`inputs` are what the artifact depends on, named as a person reads them in a plan.

    A value is UNKNOWN when it cannot be told without fetching (a package that is not installed yet).
    """

    inputs: Mapping[str, Value]
    key: str | None
    """Fingerprint of the whole pipeline: equal keys give the same artifact."""
    stages: tuple[StageFacts, ...]
    manifest: Manifest | None
    """The artifact, when every stage is in the cache."""
    engine_reason: str = ""
    """Why the engine among `inputs` was chosen, as a sentence's end."""


class SpecFacts(Struct, frozen=True):
    """All that the disk says of one spec."""

    build: BuildFacts
    quality_digest: str | None = None
    """SHA-256 of the quality data's text; None without a gate."""
    gated: bool = True
    """False where the spec's gate says nothing of the artifact: it was rolled back to one of another task."""


class BundleFacts(Struct, frozen=True):
    """The Worker's code that this edgespec carries."""

    digest: str
    """Over the modules of every engine."""
    sizes: Mapping[str, int]
    """Engine -> bytes of all its modules."""
    compatibility_date: str
    compatibility_flags: tuple[str, ...] = ()

    def size(self, engine: Value) -> int:
        """Bytes of an engine's modules; of the largest where the engine is not known yet."""
        return self.sizes.get(str(engine), max(self.sizes.values()))
