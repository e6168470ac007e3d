"""Which resources two versions of the specs ask for differently, as `compile_specs` has them. Knows nothing of what is
deployed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from edgespec.address import Address
from edgespec.resources.base import DesiredResource, DesiredState, Verdict
from edgespec.values import Inputs

_SHARED: Final = frozenset({"r2_bucket", "kv_namespace"})
"""Types whose names are no spec's; the records of all others follow a spec to its new name (docs/lifecycle.md)."""


def touched_by(before: DesiredState, after: DesiredState, moved: Mapping[str, str]) -> dict[Address, str]:
    """Address -> what happens to it. What lives on something that changes, changes with it. `moved` is from old names
    to new ones."""
    old = {_now(a, moved): _Named(r, moved) for a, r in before.resources.items()}
    found: dict[Address, str] = {}
    for address in _ordered(after.resources):
        resource, prior = after.resources[address], old.get(address)
        if prior is None:
            found[address] = "create"
        elif (verdict := _verdict(prior.inputs, resource, found)) is not Verdict.SAME:
            found[address] = verdict.value
        elif address.type not in _SHARED and address.spec in moved.values():
            found[address] = "move"
    found |= {a: "delete" for a in old if a not in after.resources}
    return dict(sorted(found.items()))


def _now(address: Address, moved: Mapping[str, str]) -> Address:
    name, slash, rest = address.name.partition("/")
    if address.type in _SHARED or name not in moved:
        return address
    return Address(address.type, f"{moved[name]}{slash}{rest}")


@dataclass(frozen=True, slots=True)
class _Named:
    """A resource whose references are texts, by today's names."""

    resource: DesiredResource
    moved: Mapping[str, str] = field(default_factory=dict)

    @property
    def inputs(self) -> Inputs:
        return self.resource.resolve(lambda ref: f"{_now(ref.address, self.moved)}.{ref.output}")


def _verdict(prior: Inputs, resource: DesiredResource, found: Mapping[Address, str]) -> Verdict:
    """By its inputs, and by what gives them: an artifact that changes is another set of objects."""
    if (verdict := resource.type.diff(prior, _Named(resource).inputs).verdict) is not Verdict.SAME:
        return verdict
    changed = {a.type for a in resource.needs if found.get(a) not in (None, "move")}
    if "model" in changed:
        return Verdict.REPLACE if resource.type.content else Verdict.UPDATE
    if "worker" in changed and resource.type.name == "deployment":
        renamed = any(found.get(a) == Verdict.REPLACE.value for a in resource.needs if a.type == "worker")
        return Verdict.REPLACE if renamed else Verdict.UPDATE
    return Verdict.SAME


def _ordered(resources: Mapping[Address, DesiredResource]) -> Iterable[Address]:
    """Models before what holds them, deployments after the versions that they deploy: what changes with another
    resource."""
    return sorted(resources, key=lambda a: (a.type != "model", a.type == "deployment", a))


def is_shared(address: Address, *sides: DesiredState) -> bool:
    return any(s.resources[address].type.shared for s in sides if address in s.resources)


def listed(touched: Mapping[Address, str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for address, what in touched.items():
        found.setdefault(what, []).append(str(address))
    return {what: tuple(found[what]) for what in sorted(found)}
