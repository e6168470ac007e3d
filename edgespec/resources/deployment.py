"""Which version of a Worker answers. A version gets traffic only after it was healthy and passed its quality gate at
its preview address, so that a bad build never reaches a user."""

from __future__ import annotations

from edgespec.address import Address
from edgespec.resources.base import DesiredResource, Fixed, Ref, ReplaceOrder, ResourceType
from edgespec.resources.canonical import Rule
from edgespec.spec.models import EdgeModel

TYPE = ResourceType(
    "deployment",
    replace_on={"script": Fixed("a deployment belongs to its Worker", "keep the Worker's name")},
    replace_order=ReplaceOrder.CREATE_FIRST,  # the old address answers until the new one does
    stable_outputs=frozenset({"url"}),
    shape={"workers_dev": Rule(default=True)},
)


def address(spec: EdgeModel) -> Address:
    return Address(TYPE.name, spec.name)


def desired(
    spec: EdgeModel, *, worker: Address, runs_on: frozenset[Address], quality_digest: str | None
) -> DesiredResource:
    """`runs_on` is all that the version needs. The deployment's record keeps it until the traffic has moved: the
    Worker's own record tells of its newest version, which may not be the one that answers."""
    gate = None
    if spec.quality is not None:
        gate = {
            "data": spec.quality.data,
            "data_digest": quality_digest,
            "metrics": {name: t.model_dump(exclude_none=True) for name, t in sorted(spec.quality.metrics.items())},
        }
    inputs = {
        "script": Ref(worker, "script"),
        "version": Ref(worker, "version_id"),
        "workers_dev": True,
        "quality": gate,
    }
    return DesiredResource(
        address(spec), TYPE, inputs, (spec.name,), depends_on=runs_on, protected=spec.lifecycle.prevent_destroy
    )
