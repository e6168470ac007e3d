"""Artifacts that served before: nothing is uploaded for them, and what is kept no longer is deleted as weights are."""

from __future__ import annotations

from typing import Any

from edgespec.address import Address
from edgespec.providers.base import Observed, Progress
from edgespec.providers.cloudflare.account import api_errors
from edgespec.providers.cloudflare.weights import WeightsProvider
from edgespec.state.model import ResourceRecord
from edgespec.values import Inputs, Outputs


class ArchiveProvider(WeightsProvider):
    def read(self, record: ResourceRecord) -> Observed | None:
        """What is still whole. An artifact that lost a blob cannot be brought back from here: it is let go, with what
        is left of it."""
        with api_errors(record.address, "Listing the bucket"):
            there = self._objects(record.inputs)
        return kept(record.inputs, there)

    def create(self, address: Address, inputs: Inputs, progress: Progress, nonce: str = "") -> Outputs:
        return {}

    def update(self, record: ResourceRecord, inputs: Inputs, progress: Progress) -> Outputs:
        return {}


def kept(inputs: Inputs, there: dict[str, int]) -> Observed | None:
    """An archive as a bucket has it, by SHA-256 and bytes of each of its objects; None when nothing of it is there.
    What is not whole is `lost`: what was beside it, its provenance, goes with the rest of its blobs."""
    artifacts: Any = inputs["artifacts"]
    served: Any = inputs["served"]
    blobs: Any = inputs["blobs"]
    present = [b for b in blobs if b["sha256"] in there]
    if not present:
        return None
    whole = [a for a in artifacts if all(there.get(b["sha256"]) == b["size"] for b in served[a]["blobs"])]
    found: dict[str, Any] = {"artifacts": whole, "served": {a: served[a] for a in whole}, "blobs": present}
    already: Any = inputs.get("lost") or []
    lost = [*already, *(a for a in artifacts if a not in whole)]
    return Observed({**inputs, **found, **({"lost": lost} if lost else {})}, {})
