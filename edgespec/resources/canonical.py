"""One form for every spelling of the same inputs, so that a difference is one that somebody can see live.

A `Rule` says of one value what its spellings mean: a set in any order, a size as text, a code in either case, a list of
named things for a map. What is empty is absent, and what is absent is its default. Rules are applied to both sides of a
comparison and to nothing else: providers get inputs as they were resolved. (Second plans that are not empty:
cloudflare/terraform-provider-cloudflare#5522, #6458, #3311, argo-cd#15898, #7846, #21135, workers-sdk#12135, #13780.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from msgspec import Struct, field

from edgespec.spec.units import parse_duration, parse_size
from edgespec.values import Inputs, Value, canonical_json, is_known

Normal: TypeAlias = Callable[[Value], Value]


def _same(value: Value) -> Value:
    return value


class Rule(Struct, frozen=True):
    """`fields` of a map by name, `each` value of a map or list, then `normal` of the whole."""

    fields: Mapping[str, Rule] = field(default_factory=dict)
    each: Rule | None = None
    normal: Normal = _same
    default: Value = None
    """What an absent value means."""


Shape: TypeAlias = Mapping[str, Rule]


def canonical(inputs: Inputs, shape: Shape) -> dict[str, Value]:
    """`inputs` with every value in its one form; what is not known yet stays so."""
    found = {name: _value(value, shape.get(name, PLAIN)) for name, value in inputs.items()}
    return _filled(found, shape)


def _filled(found: dict[str, Value], shape: Shape) -> dict[str, Value]:
    kept = {name: value for name, value in found.items() if not _empty(value)}
    return kept | {n: r.default for n, r in shape.items() if n not in kept and r.default is not None}


def _value(value: Value, rule: Rule) -> Value:
    if isinstance(value, Mapping):
        inner = {k: _value(v, rule.fields.get(k, rule.each or PLAIN)) for k, v in value.items()}
        return rule.normal(_filled(inner, rule.fields))
    if isinstance(value, (list, tuple)):
        return rule.normal([_value(v, rule.each or PLAIN) for v in value])
    return rule.normal(value)


def _empty(value: Value) -> bool:
    return value is None or value == [] or value == {}


# --- what a spelling means -------------------------------------------------------------------------------------------


def _set(value: Value) -> Value:
    if not isinstance(value, list) or not is_known(value):
        return value
    return [v for _, v in sorted({canonical_json(v): v for v in value}.items())]


def _lower(value: Value) -> Value:
    return value.lower() if isinstance(value, str) else value


def _upper(value: Value) -> Value:
    return value.upper() if isinstance(value, str) else value


def _size(value: Value) -> Value:
    try:
        return parse_size(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _duration(value: Value) -> Value:
    try:
        return parse_duration(value) if isinstance(value, str) else value
    except ValueError:
        return value


def by_name(value: Value) -> Value:
    """A list of `{name: ..., ...}` as a map of the rest by name; anything else as it is."""
    if not isinstance(value, list) or not all(isinstance(v, Mapping) and isinstance(v.get("name"), str) for v in value):
        return value
    return {str(v["name"]): {k: w for k, w in v.items() if k != "name"} for v in value if isinstance(v, Mapping)}


PLAIN: Final = Rule()
SET: Final = Rule(normal=_set)
CODES: Final = Rule(each=Rule(normal=_upper), normal=_set)
"""A set of country or continent codes."""
LOWER: Final = Rule(normal=_lower)
SIZE: Final = Rule(normal=_size)
DURATION: Final = Rule(normal=_duration)
JURISDICTION: Final = Rule(normal=_lower, default="default")
