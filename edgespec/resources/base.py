"""The words of the resource graph: types, references, desired resources, differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, TypeAlias

from msgspec import Struct, field
from msgspec.structs import force_setattr

from edgespec.address import Address
from edgespec.resources.canonical import Shape, canonical
from edgespec.values import Inputs, Outputs, Value

Resolve: TypeAlias = Callable[["Ref"], Value]
FAMILIES: Final[Mapping[str, str]] = {"archive": "weights"}
"""Types whose records may name the same objects as those of another: what deletes one of either kind looks at both."""


def family(type_: str) -> str:
    return FAMILIES.get(type_, type_)


class Ref(Struct, frozen=True):
    """Another resource's output, used as an input: it makes the edge of the graph."""

    address: Address
    output: str


class ReplaceOrder(StrEnum):
    DELETE_FIRST = "delete_first"
    CREATE_FIRST = "create_first"


class Verdict(StrEnum):
    SAME = "same"
    UPDATE = "update"
    REPLACE = "replace"


class FieldChange(Struct, frozen=True):
    """One leaf that differs; `path` is dotted. A side is None where the field is absent."""

    path: str
    before: Value
    after: Value
    replaces: bool = False
    source: str = ""
    """The other resource's output that gives it: `worker/alpha.version_id`."""


class Diff(Struct, frozen=True):
    verdict: Verdict
    fields: tuple[FieldChange, ...] = ()


class Fixed(Struct, frozen=True):
    """Why a field cannot be changed in place, and what a person can do instead of a replacement."""

    why: str
    avoid: str


def _no_outputs(inputs: Inputs) -> Outputs:
    return {}


class ResourceType(Struct, frozen=True):
    """Everything about a type that needs no I/O."""

    name: str
    replace_on: Mapping[str, Fixed] = field(default_factory=dict)
    """Top-level inputs that the API cannot change in place."""
    create_only: frozenset[str] = frozenset()
    """Inputs that count only when the object is created, and never make a difference afterwards."""
    replace_order: ReplaceOrder = ReplaceOrder.DELETE_FIRST
    stable_outputs: frozenset[str] = frozenset()
    """Outputs that an update leaves as they are."""
    known_outputs: Callable[[Inputs], Outputs] = field(default=_no_outputs)
    """Outputs that follow from the inputs, before any call."""
    opaque: frozenset[str] = frozenset()
    """Top-level inputs compared whole and shown by digest."""
    shape: Shape = field(default_factory=dict)
    """What the spellings of its inputs mean."""
    shared: bool = False
    """One for many specs, under a name that is none of theirs."""
    content: bool = False
    """Named by what it holds: a replacement is whole before the old one goes, so nothing is lost by it."""
    spare: bool = False
    """Nothing live uses it: its removal ends nothing."""
    guarded: bool = True
    """Whether `prevent_destroy` is about it: not where nothing is live, nor for what only a cache holds."""

    def diff(self, prior: Inputs, desired: Inputs) -> Diff:
        """What differs between the canonical forms, field by field; SAME has no fields, and nothing else has none."""
        if prior == desired:
            return Diff(Verdict.SAME)
        prior, desired = canonical(prior, self.shape), canonical(desired, self.shape)
        fields: list[FieldChange] = []
        for name in sorted({*prior, *desired} - self.create_only):
            before, after = prior.get(name), desired.get(name)
            if before != after:
                replaces = name in self.replace_on
                if name in self.opaque:
                    fields.append(FieldChange(name, before, after, replaces))
                else:
                    fields += _leaves(name, before, after, replaces)
        if not fields:
            return Diff(Verdict.SAME)
        verdict = Verdict.REPLACE if any(f.replaces for f in fields) else Verdict.UPDATE
        return Diff(verdict, tuple(fields))


def _leaves(path: str, before: Value, after: Value, replaces: bool) -> Iterator[FieldChange]:
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}):
            yield from _leaves(f"{path}.{key}", before.get(key), after.get(key), replaces)
    else:
        yield FieldChange(path, before, after, replaces)


class DesiredResource(Struct, frozen=True):
    """What the specs ask for. `inputs` may hold `Ref`s at any depth; `owners` are the specs that need it."""

    address: Address
    type: ResourceType
    inputs: Mapping[str, Any]
    owners: tuple[str, ...]
    outputs: Outputs = field(default_factory=dict)
    """Outputs known without an apply beyond those that the type knows (an artifact found in the build cache)."""
    depends_on: frozenset[Address] = frozenset()
    """What must exist first although no input names it."""
    protected: bool = False
    """One of its specs says `prevent_destroy`."""
    payload: int | None = None
    """Bytes of code that an upload carries beside what the inputs hold; None where that is not known yet."""
    needs: frozenset[Address] = frozenset()
    """All that must exist first. Found once: the inputs of a large plan are walked over once, not for each question."""
    _open: tuple[str, ...] = ()
    """Names of the inputs that hold references, or tuples: the others are what `resolve` would make of them."""

    def __post_init__(self) -> None:
        found: list[Ref] = []
        held = self.inputs.items()
        open_ = tuple([name for name, value in held if type(value) not in _PLAIN and not _is_plain(value, found)])
        needs = self.depends_on | {r.address for r in found} if found else self.depends_on
        force_setattr(self, "needs", needs)
        force_setattr(self, "_open", open_)

    def resolve(self, resolver: Resolve) -> dict[str, Value]:
        """The inputs with every reference replaced by what `resolver` gives for it. Nobody changes what it holds: the
        rest is that of the inputs, not a copy."""
        return {**self.inputs, **{name: resolve(self.inputs[name], resolver) for name in self._open}}


class DesiredState(Struct, frozen=True):
    resources: Mapping[Address, DesiredResource] = field(default_factory=dict)


_SCALARS: Final = (str, int, float, type(None))
"""Asked first: most of what inputs hold, and telling that it is no Mapping takes long."""


_PLAIN: Final = frozenset({str, int, bool, float, type(None)})


def _is_plain(value: Any, found: list[Ref]) -> bool:
    """Whether `value` is lists, dicts and scalars alone; its references are added to `found`."""
    plain, pending = True, [value]
    while pending:
        value = pending.pop()
        kind = type(value)
        if kind in _PLAIN:
            continue
        if kind is dict:
            pending += value.values()
        elif kind is list:
            pending += value
        else:
            plain = False
            found += references(value)
    return plain


def references(value: Any) -> Iterator[Ref]:
    """Every reference within `value`, in its order."""
    pending = [value]
    while pending:
        found = pending.pop()
        if isinstance(found, _SCALARS):
            continue
        if isinstance(found, Ref):
            yield found
        elif isinstance(found, (list, tuple)):
            pending.extend(reversed(found))
        elif isinstance(found, Mapping):
            pending.extend(reversed([*found.values()]))


def resolve(value: Any, resolver: Resolve) -> Value:
    """`value` with every reference replaced by what `resolver` gives for it."""
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, Ref):
        return resolver(value)
    if isinstance(value, Mapping):
        return {k: resolve(v, resolver) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [resolve(v, resolver) for v in value]
    return value  # type: ignore[no-any-return]  # a scalar of Value
