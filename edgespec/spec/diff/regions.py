"""Who is served from where, before and after. A country decides before its continent, and the default is the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from edgespec.spec.diff.leaves import short
from edgespec.spec.diff.model import Note, Risk
from edgespec.spec.models import Regions, Shard

REST: Final = "everyone else"
BY_CONTINENT: Final = "by continent"
"""Of a country that only the other side names: which continent it is in, Cloudflare says and not the spec."""
_CONTINENTS: Final = {
    "AF": "Africa", "AN": "Antarctica", "AS": "Asia", "EU": "Europe", "NA": "North America", "OC": "Oceania",
    "SA": "South America",
}  # fmt: skip


def place_of(shard: Shard) -> str:
    """`jurisdiction eu`, `near wnam`, or where R2 likes."""
    if shard.jurisdiction is not None:
        return f"jurisdiction {shard.jurisdiction}"
    return f"near {shard.location}" if shard.location is not None else "wherever R2 puts it"


def region_notes(before: Regions, after: Regions) -> Iterator[Note]:
    if before == after:
        return
    yield from _moved(before, after)
    for name in sorted({*before.shards, *after.shards}):
        old, new = before.shards.get(name), after.shards.get(name)
        if old is None and new is not None:
            yield Note(
                "regions",
                f"regions.shards.{name}",
                f"shard {name} is new{_for(new)}: {place_of(new)}",
                after=_plain(new),
            )
        elif new is None and old is not None:
            yield _removed(name, old, after)
        elif old is not None and new is not None and old.placement != new.placement:
            yield _relocated(name, old, new)
    if before.default_shard != after.default_shard:
        said = f"default: {before.default_shard} -> {after.default_shard}"
        yield Note("regions", "regions.default", said, before=before.default_shard, after=after.default_shard)


def _for(shard: Shard) -> str:
    """` (Europe, NO)`, or nothing for the default."""
    if shard.match is None:
        return ""
    continents = [_CONTINENTS[c] for c in sorted(shard.match.continents)]
    return f" ({short([*continents, *sorted(shard.match.countries)])})"


def _plain(shard: Shard) -> Any:
    return shard.model_dump(mode="json", exclude_none=True)


def _removed(name: str, old: Shard, after: Regions) -> Note:
    kept = any(s.placement == old.placement for s in after.shards.values())
    why = "" if kept else "the weights of this place go once nobody is served from them"
    said = f"shard {name} is removed{_for(old)}: {place_of(old)}"
    return Note("regions", f"regions.shards.{name}", said, Risk.LOW if kept else Risk.MEDIUM, why, before=_plain(old))


def _relocated(name: str, old: Shard, new: Shard) -> Note:
    said = f"shard {name} moves{_for(new)}: {place_of(old)} -> {place_of(new)}"
    why = "the weights are uploaded anew, and the first requests load them from another place"
    if old.jurisdiction is not None and new.jurisdiction != old.jurisdiction:
        return Note("regions", f"regions.shards.{name}", said, Risk.HIGH, _dropped(old), _plain(old), _plain(new))
    return Note("regions", f"regions.shards.{name}", said, Risk.MEDIUM, why, _plain(old), _plain(new))


def _dropped(old: Shard) -> str:
    return f"the jurisdiction {old.jurisdiction} is no longer guaranteed"


@dataclass(frozen=True, slots=True, order=True)
class _Territory:
    """Kinds are apart: NA is North America and Namibia."""

    kind: str
    """continents, countries, or the rest."""
    code: str = ""

    def __str__(self) -> str:
        return _CONTINENTS[self.code] if self.kind == "continents" else self.code or REST


def _moved(before: Regions, after: Regions) -> Iterator[Note]:
    """Territories that another shard serves now, those that move alike together."""
    territories = [*sorted(_named(before) | _named(after)), _Territory("rest")]
    moves: dict[tuple[str, str], list[_Territory]] = {}
    for territory in territories:
        move = (_serves(before, territory), _serves(after, territory))
        if move[0] != move[1]:
            moves.setdefault(move, []).append(territory)
    for (old, new), moved in moves.items():
        who = [str(t) for t in moved]
        said = f"{short(who, 12)}: {_label(before, old)} -> {_label(after, new)}"
        left, came = before.shards.get(old), after.shards.get(new)
        if left is not None and left.jurisdiction and (came is None or came.jurisdiction != left.jurisdiction):
            risk, why = Risk.HIGH, _dropped(left)
        else:
            risk, why = Risk.MEDIUM, "they are served from another shard"
        data = {"who": who}
        yield Note("regions", "regions.shards", said, risk, why, {**data, "shard": old}, {**data, "shard": new})


def _named(regions: Regions) -> set[_Territory]:
    found = set()
    for shard in regions.shards.values():
        if shard.match is not None:
            found |= {_Territory("continents", c) for c in shard.match.continents}
            found |= {_Territory("countries", c) for c in shard.match.countries}
    return found


def _serves(regions: Regions, territory: _Territory) -> str:
    """The shard's name, or BY_CONTINENT for a country that only the other side names."""
    matches = {name: shard.match for name, shard in regions.shards.items() if shard.match is not None}
    for name, match in matches.items():
        if territory.code and territory.code in getattr(match, territory.kind):
            return name
    if territory.kind == "countries" and any(m.continents for m in matches.values()):
        return BY_CONTINENT
    return regions.default_shard


def _label(regions: Regions, name: str) -> str:
    shard = regions.shards.get(name)
    return name if shard is None else f"{name} ({place_of(shard)})"
