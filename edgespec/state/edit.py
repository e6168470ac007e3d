"""Edits of a state by hand or by `renamed_from`: nothing live is touched."""

from __future__ import annotations

from collections.abc import Mapping

from edgespec.address import Address
from edgespec.diagnostics import Checked, Diagnostic, Diagnostics, error
from edgespec.records import replace
from edgespec.state.model import Key, ResourceRecord, State


def move(state: State, moves: Mapping[Address, Address], owners: Mapping[str, str] | None = None) -> Checked[State]:
    """`state` with its records, deposed ones too, under other addresses; what depends on them follows. `owners` are
    specs' new names. All moves happen at once: two addresses can be exchanged. The serial stays.

    An error: a source that is not there, a target of another type or that is taken."""
    found = _faults(state, moves)
    if found:
        return Checked(None, Diagnostics(tuple(found)))
    names = owners or {}
    records: dict[Key, ResourceRecord] = {}
    for key, record in state.records.items():
        address = moves.get(key.address, key.address)
        records[Key(address, key.deposed)] = replace(
            record,
            address=address,
            depends_on=frozenset(moves.get(a, a) for a in record.depends_on),
            owners=tuple(names.get(o, o) for o in record.owners),
        )
    return Checked(replace(state, records=records))


def _faults(state: State, moves: Mapping[Address, Address]) -> list[Diagnostic]:
    there = {k.address for k in state.records}
    targets: set[Address] = set()
    found = []
    for source, target in moves.items():
        if source not in there:
            found.append(unknown(source))
        elif source.type != target.type:
            detail = f"{source} is of another type than {target}: a record moves only within its type."
            found.append(error("ES312", "The record cannot be moved", detail))
        elif target in targets or (target in there and target not in moves):
            detail = f"{target} is taken. Move or remove that one first: `edgespec state rm {target}`."
            found.append(error("ES312", "The record cannot be moved", detail))
        targets.add(target)
    return found


def unknown(address: Address) -> Diagnostic:
    detail = f"{address} is not in state. `edgespec state list` shows what is."
    return error("ES307", "Unknown address", detail)


def remove(state: State, address: Address) -> Checked[State]:
    """`state` without the address's records, deposed ones too; the objects are forgotten, not deleted."""
    if not any(k.address == address for k in state.records):
        return Checked(None, Diagnostics.of(unknown(address)))
    return Checked(replace(state, records={k: r for k, r in state.records.items() if k.address != address}))


def replacement(current: State | None, given: State, *, force: bool) -> Checked[State]:
    """What to write in place of `current` when somebody pushes `given`: it gets the next serial when it is written.

    An error: another project's or environment's state; without `force`, another history or an older version."""
    if current is None:
        return Checked(given)
    if (current.project, current.environment) != (given.project, given.environment):
        detail = (
            f"It belongs to {given.project} in {given.environment}, not to {current.project} in "
            f"{current.environment}. A state is never given to another environment."
        )
        return Checked(None, Diagnostics.of(error("ES305", "The state is another's", detail)))
    if not force and current.lineage != given.lineage:
        detail = (
            f"It is of another history (lineage {given.lineage}; the one in use has {current.lineage}): what was "
            "deployed since would be forgotten. `--force` replaces it all the same."
        )
        return Checked(None, Diagnostics.of(error("ES313", "The state is not replaced", detail)))
    if not force and given.serial < current.serial:
        detail = (
            f"It is older: serial {given.serial}; the one in use is at {current.serial}, and what was deployed since "
            "would be forgotten. `--force` replaces it all the same."
        )
        return Checked(None, Diagnostics.of(error("ES313", "The state is not replaced", detail)))
    return Checked(replace(given, serial=max(current.serial, given.serial)))
