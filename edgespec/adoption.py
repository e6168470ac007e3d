"""Existing objects into state, with consent: what a spec names, and what an account holds that no spec names yet."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from edgespec import graph, operations
from edgespec.address import Address
from edgespec.diagnostics import EdgespecError, error
from edgespec.operations import Planned
from edgespec.plan.imports import Discovered, Import
from edgespec.providers.base import Observed
from edgespec.providers.cloudflare.discover import discover
from edgespec.providers.cloudflare.live import Live
from edgespec.records import replace
from edgespec.resources import deployment, model
from edgespec.resources.base import DesiredResource, Ref, references
from edgespec.resources.reconstruct import UNKNOWN_SOURCE
from edgespec.session import Session, connect, held_store
from edgespec.spec.validate import suggest
from edgespec.state.model import ResourceRecord, State, Status
from edgespec.values import UNKNOWN, Inputs, Outputs, Value, is_known

FOLDER: Final = "specs/imported"
_HEAD: Final = """\
# Written by `edgespec import --all` from what is deployed. {missing}
# Then name this file in `specs` of edgespec.yaml and run `edgespec import --all` again to adopt what it describes.
"""
_NO_SOURCE: Final = f"""Two things are in no deployed object here:
# model.source (`{UNKNOWN_SOURCE}`) with its pipeline, since the artifact has no provenance statement, and quality
# gates. Fill them in."""
_SOURCE: Final = """`model` and `quantization` are what the
# artifact's provenance statement says that it was built from: see that the files are here, and that `edgespec build`
# gives the artifact that is deployed. Quality gates and budgets are in no deployed object: fill them in."""


@dataclass(frozen=True, slots=True)
class Imports:
    found: tuple[Import, ...]
    missing: tuple[Address, ...]
    """What specs name, and neither state nor the account has."""
    state: State


Approve = Callable[[Sequence[Import]], bool]


def import_addresses(session: Session, addresses: Iterable[Address], approve: Approve) -> tuple[Import, ...]:
    """Take the named objects into state; raises for one that no spec names, that state has, or that does not exist."""
    wanted = tuple(addresses)

    def only(planned: Planned) -> Imports:
        desired, state = planned.plan.desired.resources, planned.plan.refreshed
        for address in wanted:
            if address not in desired:
                known = sorted(str(a) for a in desired)
                detail = f"No spec asks for {address}.{suggest(str(address), known)} Write its spec first."
                raise EdgespecError(error("ES228", "Nothing to import", detail))
            if state.get(address) is not None:
                detail = f"{address} is in state already: `edgespec state show {address}`."
                raise EdgespecError(error("ES228", "Nothing to import", detail))
        imports = observe(planned, frozenset(wanted))
        if imports.missing:
            detail = f"{', '.join(str(a) for a in imports.missing)}: {_absent(planned, imports.missing[0])}"
            raise EdgespecError(error("ES228", "Nothing to import", detail))
        return imports

    return _take(session, only, approve)


def _absent(planned: Planned, address: Address) -> str:
    if address.type == model.TYPE.name:
        return f"it was not built on this machine. Run `edgespec build {address.name}` first."
    unknown = [f"{r.address}.{r.output}" for r in _references(planned.plan.desired.resources[address])]
    hint = f" What it is made of must be known: {', '.join(unknown)}. Import or build that first." if unknown else ""
    return f"no such object is live.{hint}"


def _references(resource: DesiredResource) -> list[Ref]:
    return sorted(references(resource.inputs), key=str)


def import_described(session: Session, approve: Approve) -> tuple[Import, ...]:
    """Take every object that exists, that specs name, and that state does not have."""
    return _take(session, lambda planned: observe(planned, frozenset(planned.plan.desired.resources)), approve)


def _take(session: Session, find: Callable[[Planned], Imports], approve: Approve) -> tuple[Import, ...]:
    with (
        held_store(session, "import") as store,
        contextlib.closing(operations.plan(session)) as planned,
    ):
        imports = find(planned)
        if not imports.found or not approve(imports.found):
            return ()
        lineage = planned.stored.lineage or str(uuid.uuid4())
        store.save(replace(imports.state, lineage=lineage, account=session.workspace.account))
        return imports.found


@dataclass(slots=True)
class _Known:
    """Outputs as state has them, or as they will be."""

    planned: Planned
    state: State
    outputs: dict[Address, Outputs] = field(default_factory=dict)

    def resolve(self, ref: Ref) -> Value:
        record = self.state.get(ref.address)
        if record is not None and ref.output in record.outputs:
            return record.outputs[ref.output]
        return self.outputs.get(ref.address, {}).get(ref.output, UNKNOWN)


def observe(planned: Planned, wanted: frozenset[Address]) -> Imports:
    """What of `wanted` is live and not in state, each with what it needs before it."""
    desired = planned.plan.desired.resources
    known = _Known(planned, planned.plan.refreshed)
    found: list[Import] = []
    missing: list[Address] = []
    for address in graph.order({a: r.needs for a, r in desired.items()}).value or ():
        resource = desired[address]
        inputs = resource.resolve(known.resolve)
        known.outputs[address] = {**resource.type.known_outputs(inputs), **resource.outputs}
        if address not in wanted or known.state.get(address) is not None:
            continue
        record = _record(planned, resource, inputs)
        if record is None:
            missing.append(address)
            continue
        known.state = known.state.put(record)
        found.append(Import(record, resource.type.diff(record.inputs, inputs).fields))
    return Imports(tuple(found), tuple(missing), known.state)


def _record(planned: Planned, resource: DesiredResource, inputs: Inputs) -> ResourceRecord | None:
    address = resource.address
    if address.type == model.TYPE.name and "artifact" not in resource.outputs:
        return None  # nothing is live of a model; this machine must have built it
    whole = ResourceRecord(
        address, inputs, resource.outputs, resource.needs, resource.owners, protected=resource.protected
    )
    observed = _observe(planned, whole)
    if observed is None:
        return None
    outputs = dict(observed.outputs)
    if address.type == deployment.TYPE.name:
        outputs |= {"url": planned.account.worker_url(str(inputs["script"])), "metrics": {}}
    status = Status.READY if observed.complete else Status.UPDATING
    return replace(whole, inputs=observed.inputs, outputs=outputs, status=status)


def _observe(planned: Planned, record: ResourceRecord) -> Observed | None:
    """By everything that the spec says where that is known: so a version of a Worker is found by its content. Else by
    its natural key."""
    provider = planned.providers[record.address.type]
    read = provider.read(record) if is_known(dict(record.inputs)) else None
    if read is not None and read.complete:
        return read
    known = {k: v for k, v in record.inputs.items() if is_known(v)}
    return provider.find(record.address, known) or read


# --- what no spec names yet ------------------------------------------------------------------------------------------


def discover_all(session: Session) -> Discovered:
    """List what the account holds under the project's names, and write a spec for each Worker that has none."""
    workspace = session.workspace
    with contextlib.closing(connect(session)) as account:
        live = Live(account)
        found = discover(account, live, workspace.project.name, workspace.environment)
    state = session.store.load()
    in_state = frozenset(k.address for k in state.records) if state else frozenset()
    written: list[str] = []
    kept: list[str] = []
    for deployed in found:
        if deployed.spec is None or deployed.spec["metadata"]["name"] in session.specs:
            continue
        path = f"{FOLDER}/{deployed.spec['metadata']['name']}.yaml"
        (written if _write_new(workspace.root / path, deployed.spec) else kept).append(path)
    return Discovered(found, in_state, tuple(written), tuple(kept))


def _write_new(path: Path, document: Mapping[str, Any]) -> bool:
    """False, and nothing is written, when the file is there."""
    missing = _NO_SOURCE if document["model"]["source"] == UNKNOWN_SOURCE else _SOURCE
    text = _HEAD.format(missing=missing) + yaml.safe_dump(
        dict(document), sort_keys=False, allow_unicode=True, width=110
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    except OSError as e:
        raise EdgespecError(error("ES229", "The spec cannot be written", f"{path}: {e.strerror}.")) from e
    return True
