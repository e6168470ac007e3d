"""Chunks written to Workers KV at apply, without expiry, before the Worker goes live. KV caches negative look-ups
too, so a key must be written before anything reads it."""

from __future__ import annotations

from edgespec.address import Address
from edgespec.resources.base import DesiredResource, Fixed, Ref, ReplaceOrder, ResourceType
from edgespec.resources.canonical import SET
from edgespec.spec.models import EdgeModel

TYPE = ResourceType(
    "kv_pins",
    replace_on={
        "artifact": Fixed(
            "another artifact has other keys; those that both have stay, the new ones are written first",
            "keep the model, its pipeline and the versions of the tools",
        ),
        "files": Fixed("other files have other keys; the new ones are written first", "keep `pin` as it is"),
        "namespace_id": Fixed("keys do not move between namespaces", "keep the environment's namespace"),
    },
    replace_order=ReplaceOrder.CREATE_FIRST,
    opaque=frozenset({"manifest"}),
    shape={"files": SET},
    content=True,
    guarded=False,
)

FILES = {
    "tokenizer": ("tokenizer.bin", "tokenizer.json", "tokenizer_config.json"),
    "model": ("model.edge", "model.onnx"),
}
"""What a pin names; an artifact has those of its engine."""


def address(spec: EdgeModel) -> Address:
    return Address(TYPE.name, spec.name)


def desired(spec: EdgeModel, *, model: Address, namespace: Address) -> DesiredResource:
    inputs = {
        "artifact": Ref(model, "artifact"),
        "files": sorted(f for pin in spec.cache.weights.kv.pin for f in FILES[pin]),
        "manifest": Ref(model, "manifest"),
        "namespace_id": Ref(namespace, "id"),
    }
    return DesiredResource(address(spec), TYPE, inputs, (spec.name,), protected=spec.lifecycle.prevent_destroy)
