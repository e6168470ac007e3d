"""An R2 bucket that holds artifacts of one placement: a location hint, a jurisdiction or neither."""

from __future__ import annotations

from edgespec.address import Address
from edgespec.resources.base import DesiredResource, ReplaceOrder, ResourceType
from edgespec.spec.models import Shard
from edgespec.values import Inputs, Outputs


def _known(inputs: Inputs) -> Outputs:
    return {"name": inputs["name"], "jurisdiction": inputs["jurisdiction"]}


TYPE = ResourceType(
    "r2_bucket",
    replace_on=frozenset({"name", "jurisdiction"}),
    # A location hint is best effort and honoured only when a name is first used: what the server says of it is
    # never a reason to replace a bucket (cloudflare/terraform-provider-cloudflare#6458, #3311).
    create_only=frozenset({"location"}),
    replace_order=ReplaceOrder.CREATE_FIRST,
    stable_outputs=frozenset({"name", "jurisdiction"}),
    known_outputs=_known,
)


def name(project: str, environment: str, shard: Shard) -> str:
    """One bucket a placement, shared by every model of the environment: equal chunks are stored once."""
    return f"{project}-{environment}-{shard.placement}"


def address(project: str, environment: str, shard: Shard) -> Address:
    return Address(TYPE.name, name(project, environment, shard))


def desired(project: str, environment: str, shard: Shard, owners: tuple[str, ...]) -> DesiredResource:
    inputs = {
        "name": name(project, environment, shard),
        "location": shard.location,
        "jurisdiction": shard.jurisdiction or "default",
    }
    return DesiredResource(address(project, environment, shard), TYPE, inputs, owners)
