"""An R2 bucket that holds artifacts of one placement: a location hint, a jurisdiction or neither."""

from __future__ import annotations

from edgespec.address import Address
from edgespec.resources.base import DesiredResource, Fixed, ReplaceOrder, ResourceType
from edgespec.resources.canonical import JURISDICTION, LOWER
from edgespec.spec.models import Shard
from edgespec.values import Inputs, Outputs


def _known(inputs: Inputs) -> Outputs:
    return {"name": inputs["name"], "jurisdiction": inputs["jurisdiction"]}


TYPE = ResourceType(
    "r2_bucket",
    replace_on={
        "name": Fixed("a bucket cannot be renamed", "keep the project's, the environment's and the shard's names"),
        "jurisdiction": Fixed(
            "a jurisdiction is fixed when a bucket is created",
            "add a shard with the other jurisdiction, apply, and remove the old shard afterwards",
        ),
    },
    # A location hint is best effort and honoured only when a name is first used: what the server says of it is
    # never a reason to replace a bucket (cloudflare/terraform-provider-cloudflare#6458, #3311).
    create_only=frozenset({"location"}),
    replace_order=ReplaceOrder.CREATE_FIRST,
    stable_outputs=frozenset({"name", "jurisdiction"}),
    known_outputs=_known,
    shape={"jurisdiction": JURISDICTION, "location": LOWER},
    shared=True,
)


def name(project: str, environment: str, shard: Shard) -> str:
    """One bucket a placement, shared by every model of the environment: equal chunks are stored once."""
    return f"{project}-{environment}-{shard.placement}"


def address(project: str, environment: str, shard: Shard) -> Address:
    return Address(TYPE.name, name(project, environment, shard))


def desired(
    project: str, environment: str, shard: Shard, owners: tuple[str, ...], *, protected: bool = False
) -> DesiredResource:
    inputs = {
        "name": name(project, environment, shard),
        "location": shard.location,
        "jurisdiction": shard.jurisdiction or "default",
    }
    return DesiredResource(address(project, environment, shard), TYPE, inputs, owners, protected=protected)
