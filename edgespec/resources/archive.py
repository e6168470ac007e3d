"""The artifacts that a shard's bucket served before: their blobs stay, so that a rollback uploads nothing and needs no
machine that could build them.

Nothing is made: the blobs are there, and a record that names them keeps the delete of weights from taking them. Another
list is another record, written before the old one goes; with the old one go the blobs that nothing names any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgespec.address import Address
from edgespec.resources.base import DesiredResource, Fixed, Ref, ReplaceOrder, ResourceType
from edgespec.resources.canonical import JURISDICTION, SET

_LIST = Fixed(
    "the list of what is kept is written anew before the old one goes, and with it what is kept no longer",
    "keep the artifact and the environment's `keep`",
)
TYPE = ResourceType(
    "archive",
    replace_on={
        "artifacts": _LIST,
        "served": _LIST,
        "lost": _LIST,
        "blobs": _LIST,
        "bucket": Fixed("objects do not move between buckets", "keep the shard's location or jurisdiction"),
        "jurisdiction": Fixed("objects do not move between jurisdictions", "keep the shard's jurisdiction"),
    },
    replace_order=ReplaceOrder.CREATE_FIRST,
    opaque=frozenset({"served", "blobs"}),
    shape={"blobs": SET, "jurisdiction": JURISDICTION},
    content=True,
    guarded=False,
    spare=True,
)


def address(weights: Address) -> Address:
    """Of the archive beside a shard's weights."""
    return Address(TYPE.name, weights.name)


def desired(
    weights: DesiredResource, bucket: Address, artifacts: Sequence[str], served: Mapping[str, Mapping[str, Any]]
) -> DesiredResource:
    """`served` has for each of the artifacts, newest first, its `blobs` and what is known of its time: `metrics`,
    `teacher`, the `version` that served it."""
    blobs = {b["sha256"]: b for a in artifacts for b in served[a]["blobs"]}
    inputs = {
        "artifacts": list(artifacts),
        "served": {a: dict(served[a]) for a in artifacts},
        "blobs": [blobs[sha] for sha in sorted(blobs)],
        "bucket": Ref(bucket, "name"),
        "jurisdiction": Ref(bucket, "jurisdiction"),
    }
    return DesiredResource(
        address(weights.address),
        TYPE,
        inputs,
        weights.owners,
        depends_on=frozenset({weights.address}),
        protected=weights.protected,
    )
