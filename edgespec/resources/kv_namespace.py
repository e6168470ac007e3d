"""The Workers KV namespace that caches chunks for every model of one environment."""

from __future__ import annotations

from edgespec.address import Address
from edgespec.resources.base import DesiredResource, ReplaceOrder, ResourceType

TYPE = ResourceType(
    "kv_namespace", replace_order=ReplaceOrder.CREATE_FIRST, stable_outputs=frozenset({"id"}), shared=True
)


def title(project: str, environment: str) -> str:
    return f"{project}-{environment}-weights"


def address(project: str, environment: str) -> Address:
    return Address(TYPE.name, title(project, environment))


def desired(project: str, environment: str, owners: tuple[str, ...], *, protected: bool = False) -> DesiredResource:
    inputs = {"title": title(project, environment)}
    return DesiredResource(address(project, environment), TYPE, inputs, owners, protected=protected)
