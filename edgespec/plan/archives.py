"""Which artifacts stay in a bucket after they served. Found in state alone: what was kept before, and what is served
where something else shall be. It changes only when the artifact does, so that the plan after an apply is empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from edgespec.address import Address
from edgespec.records import replace
from edgespec.resources import archive, deployment, model, weights, worker
from edgespec.resources.base import DesiredResource, DesiredState, Ref, Verdict
from edgespec.state.model import Key, ResourceRecord, State, Status


def with_archives(desired: DesiredState, state: State, keep: int) -> DesiredState:
    """`desired` with an archive beside all weights that have something to keep, at most `keep` artifacts each; a
    deployment needs those of its model, so that they are written before anything old goes. `state` is refreshed."""
    found: list[DesiredResource] = []
    past = _Past(state)
    for resource in desired.resources.values():
        if keep and resource.type is weights.TYPE:
            found += _archive(resource, desired, past, keep)
    if not found:
        return desired
    needed: dict[str, frozenset[Address]] = {}
    for made in found:
        name = made.address.spec
        needed[name] = needed.get(name, frozenset()) | {made.address}
    resources = {**desired.resources, **{r.address: r for r in found}}
    for name, addresses in needed.items():
        at = Address(deployment.TYPE.name, name)
        if (live := resources.get(at)) is not None:
            resources[at] = replace(live, depends_on=live.depends_on | addresses)
    return DesiredState(dict(sorted(resources.items())))


def _archive(resource: DesiredResource, desired: DesiredState, past: _Past, keep: int) -> Iterator[DesiredResource]:
    bucket: Ref = resource.inputs["bucket"]
    holder = desired.resources[bucket.address].inputs
    place = (holder["name"], holder["jurisdiction"])
    wanted = past.artifact(desired.resources[Address(model.TYPE.name, resource.address.spec)])
    prior = past.kept(archive.address(resource.address), place)
    # What comes back keeps its place: where it is known only after the build, the list must be the same.
    artifacts = list(prior)
    served = dict(prior)
    for record in past.leaving(resource.address, wanted, place):
        artifact = str(record.inputs["artifact"])
        artifacts = [artifact, *(a for a in artifacts if a != artifact)]
        served.setdefault(artifact, past.content(record))
    if artifacts := artifacts[:keep]:
        yield archive.desired(resource, bucket.address, artifacts, served)


class _Past(Struct):
    """What state tells of what served."""

    state: State
    _deposed: dict[Address, list[Key]] | None = None

    def artifact(self, resource: DesiredResource) -> str | None:
        """What a model will be; None where only a build can tell."""
        if "artifact" in resource.outputs:
            return str(resource.outputs["artifact"])
        record = self.state.get(resource.address)
        if record is None or record.status is not Status.READY:
            return None
        same = resource.type.diff(record.inputs, dict(resource.inputs)).verdict is Verdict.SAME
        return str(record.outputs["artifact"]) if same else None

    def kept(self, address: Address, place: tuple[Any, Any]) -> Mapping[str, Mapping[str, Any]]:
        """What an archive has, newest first."""
        record = self.state.get(address)
        if record is None or _place(record) != place:
            return {}
        artifacts: Any = record.inputs["artifacts"]
        served: Any = record.inputs["served"]
        return {a: served[a] for a in artifacts}

    def leaving(self, address: Address, wanted: str | None, place: tuple[Any, Any]) -> Iterator[ResourceRecord]:
        """The weights that served here and that nothing will serve, oldest first. What was uploaded and never passed
        its gate is none of them, nor is what is not whole."""
        deposed = [self.state.records[k] for k in self.deposed(address)]
        current = self.state.get(address)
        if current is not None and not self._served(current, deposed):
            current = None
        for record in (*deposed, *([current] if current is not None else [])):
            if record.inputs["artifact"] != wanted and record.status is Status.READY and _place(record) == place:
                yield record

    def deposed(self, address: Address) -> Sequence[Key]:
        """What replacements pushed aside, oldest first."""
        if self._deposed is None:
            self._deposed = {}
            for key in sorted((k for k in self.state.records if k.deposed), key=lambda k: (len(k.deposed), k)):
                self._deposed.setdefault(key.address, []).append(key)
        return self._deposed.get(address, [])

    def _served(self, current: ResourceRecord, deposed: Sequence[ResourceRecord]) -> bool:
        """As long as the older weights are there, traffic may not have come to the newer ones."""
        live, version = self._live(current)
        if live is None or live.status is Status.CREATING:
            return self._elsewhere(current)
        if current.address not in live.depends_on:  # a shard that was filled, and waits for the traffic
            return False
        newest = version is not None and live.inputs.get("version") == version.outputs.get("version_id")
        return newest or all(d.inputs["artifact"] == current.inputs["artifact"] for d in deposed)

    def _elsewhere(self, current: ResourceRecord) -> bool:
        """Whether a Worker of an older name serves it."""
        return any(
            key.address.type == worker.TYPE.name and record.inputs.get("artifact") == current.inputs["artifact"]
            for key, record in self.state.records.items()
            if key.address.name != current.address.spec and not key.deposed
        ) and any(k.address.type == deployment.TYPE.name for k in self.state.records)

    def _live(self, record: ResourceRecord) -> tuple[ResourceRecord | None, ResourceRecord | None]:
        name = record.address.spec
        return self.state.get(Address(deployment.TYPE.name, name)), self.state.get(Address(worker.TYPE.name, name))

    def content(self, record: ResourceRecord) -> Mapping[str, Any]:
        """What is remembered of weights: their blobs, and of those that serve now what their gate measured."""
        found: dict[str, Any] = {"blobs": record.inputs["blobs"]}
        live, version = self._live(record)
        if live is None or version is None or live.inputs.get("version") != version.outputs.get("version_id"):
            return found
        if version.inputs.get("artifact") == record.inputs["artifact"]:
            said = {"metrics": live.outputs.get("metrics"), "teacher": live.outputs.get("teacher")}
            found |= {k: v for k, v in said.items() if v} | {"version": live.inputs["version"]}
        return found


def _place(record: ResourceRecord) -> tuple[Any, Any]:
    """A bucket's name and jurisdiction, in the one spelling that specs have."""
    return record.inputs["bucket"], str(record.inputs.get("jurisdiction") or "default").lower()
