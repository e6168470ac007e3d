"""An artifact's blobs in one shard's bucket. A new artifact is a new set of blobs: the old ones go once nothing
serves them any more, except those that another resource still names."""

from __future__ import annotations

from edgespec.address import Address
from edgespec.resources.base import DesiredResource, Fixed, Ref, ReplaceOrder, ResourceType
from edgespec.resources.canonical import JURISDICTION, SET
from edgespec.spec.models import EdgeModel
from edgespec.values import Inputs, Outputs


def _known(inputs: Inputs) -> Outputs:
    return {"artifact": inputs["artifact"]}


TYPE = ResourceType(
    "weights",
    replace_on={
        "artifact": Fixed(
            "another artifact is another set of objects; those that both have stay, the others go after the traffic",
            "keep the model, its pipeline and the versions of the tools",
        ),
        "bucket": Fixed("objects do not move between buckets", "keep the shard's location or jurisdiction"),
        "jurisdiction": Fixed("objects do not move between jurisdictions", "keep the shard's jurisdiction"),
    },
    replace_order=ReplaceOrder.CREATE_FIRST,
    known_outputs=_known,
    opaque=frozenset({"blobs"}),
    shape={"blobs": SET, "jurisdiction": JURISDICTION},
    content=True,
)


def address(spec: EdgeModel, shard: str) -> Address:
    return Address(TYPE.name, f"{spec.name}/{shard}")


def desired(spec: EdgeModel, shard: str, *, model: Address, bucket: Address) -> DesiredResource:
    inputs = {
        "artifact": Ref(model, "artifact"),
        "blobs": Ref(model, "blobs"),
        "bucket": Ref(bucket, "name"),
        "jurisdiction": Ref(bucket, "jurisdiction"),
    }
    return DesiredResource(address(spec, shard), TYPE, inputs, (spec.name,), protected=spec.lifecycle.prevent_destroy)
