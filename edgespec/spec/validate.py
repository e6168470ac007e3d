"""Nodes to typed documents: pydantic's errors turned into diagnostics at the place that caused them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from edgespec.diagnostics import Checked, Diagnostic, Diagnostics, SourceRange, error
from edgespec.spec.document import Node
from edgespec.spec.later import is_later_value, later_field
from edgespec.spec.types import PATTERNS
from edgespec.spec.units import format_size

M = TypeVar("M", bound=BaseModel)
Path = tuple[str | int, ...]

_EXPECTED: Final = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "true or false"),
    **dict.fromkeys(("tuple_type", "list_type"), "a list"),
    **dict.fromkeys(("model_type", "dict_type", "model_attributes_type", "mapping_type"), "a map of fields"),
    "string_type": "text",
}
_BOUNDS: Final = {
    "greater_than_equal": ("at least", "ge"),
    "less_than_equal": ("at most", "le"),
    "greater_than": ("more than", "gt"),
    "less_than": ("less than", "lt"),
}
_LENGTHS: Final = {
    "string_too_short": ("at least", "min_length"),
    "string_too_long": ("at most", "max_length"),
    "too_short": ("at least", "min_length"),
    "too_long": ("at most", "max_length"),
}


def validate(model: type[M], node: Node, kind: str) -> Checked[M]:
    """The document as `model`, or every error in it."""
    try:
        return Checked(model.model_validate(node.plain()))
    except ValidationError as e:
        errors = e.errors(include_url=False)
        found = [_diagnostic(model, node, kind, d) for d in errors if not _follows(d, errors)]
        later = {d.source.line for d in found if d.code == "ES115" and d.source}
        found = [d for d in found if not (d.code == "ES111" and d.source and d.source.line in later)]
        found.sort(key=lambda d: (d.source is None, d.source))
        return Checked(None, Diagnostics(tuple(dict.fromkeys(found))))


def _follows(e: ErrorDetails, errors: Iterable[ErrorDetails]) -> bool:
    """A list is too short only because its items are wrong: they are what has to be told."""
    loc = tuple(e["loc"])
    return e["type"] == "too_short" and any(len(o["loc"]) > len(loc) and o["loc"][: len(loc)] == loc for o in errors)


def locate(node: Node, path: Iterable[str | int]) -> tuple[Node, Path]:
    """The deepest node that `path` leads to; parts that name no child (a union's tag) are passed over."""
    real: list[str | int] = []
    for part in path:
        child = node.child(part)
        if child is not None:
            node = child
            real.append(part)
    return node, tuple(real)


def place(node: Node, path: Iterable[str | int]) -> SourceRange:
    """Where the value at `path` stands."""
    return locate(node, path)[0].where


def key_place(node: Node, path: Path) -> SourceRange:
    """Where the key at `path` stands."""
    parent, _ = locate(node, path[:-1])
    return parent.keys.get(str(path[-1]), parent.where) if parent.kind == "map" else place(node, path)


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def suggest(word: str, known: Iterable[str]) -> str:
    """` Did you mean ...?` or nothing."""
    folded = {k.casefold(): k for k in sorted(known)}
    close = difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=0.6)
    return f" Did you mean `{folded[close[0]]}`?" if close else ""


def _diagnostic(model: type[BaseModel], root: Node, kind: str, e: ErrorDetails) -> Diagnostic:
    loc: Path = tuple(e["loc"])
    about_key = bool(loc) and loc[-1] == "[key]"
    if about_key:
        loc = loc[:-1]
    type_, name = e["type"], str(loc[-1]) if loc else ""
    node, path = locate(root, loc)
    if type_ == "extra_forbidden":
        return _unknown_key(model, root, kind, path, name)
    if type_ in ("missing", "union_tag_not_found"):
        field = name if type_ == "missing" else str(e.get("ctx", {}).get("discriminator", "type")).strip("'")
        owner = f"`{dotted(path)}`" if path else f"The {kind} document"
        if (removed := node.removed.get(field)) is not None:
            return error("ES111", "Missing field", f"{owner} needs `{field}`; this removes it.", source=removed)
        where = key_place(root, path) if path and isinstance(path[-1], str) else node.where
        return error("ES111", "Missing field", f"{owner} needs `{field}`.{_chosen_elsewhere(node)}", source=where)
    if about_key:
        detail = f"`{dotted(path)}`: the name {_sentence(e)}."
        return error("ES113", "Not a valid name", detail, source=key_place(root, path))
    if type_ == "union_tag_invalid":
        path = (*path, "type")
        node, path = locate(root, path)
    if node.kind == "scalar" and node.value is None:
        where = key_place(root, path) if path and isinstance(path[-1], str) else node.where
        return error("ES114", "No value", f"`{dotted(path)}` is empty: give it a value or remove it.", source=where)
    if is_later_value(kind, path, node.value):
        detail = f"`{dotted(path)}: {node.shown}` is part of the language, but this version cannot do it yet."
        return error("ES115", "Not supported yet", f"{detail} It accepts {_expected(e)}.", source=node.where)
    sentence = _sentence(e, node)
    stop = "" if sentence.endswith("?") else "."
    detail = f"`{dotted(path)}`: {sentence}{stop}{_near(e, node)}"
    return error("ES112", "Wrong value", detail, source=node.where)


def _unknown_key(model: type[BaseModel], root: Node, kind: str, path: Path, name: str) -> Diagnostic:
    where = key_place(root, path)
    what = later_field(kind, path)
    if what is not None:
        detail = f"`{dotted(path)}`: this version of edgespec has no {what}; remove the field."
        return error("ES115", "Not supported yet", detail, source=where)
    known = _fields_at(model, root, path[:-1])
    listed = f" Known here: {', '.join(sorted(known))}." if known else ""
    elsewhere = _chosen_elsewhere(locate(root, path[:-1])[0])
    detail = f"`{name}` is not a field{_inside(path)}.{suggest(name, known)}{listed}{elsewhere}"
    return error("ES110", "Unknown key", detail, source=where)


def _chosen_elsewhere(node: Node) -> str:
    """Which fields a map has follows from its `type`, which an overlay may have given."""
    tag = node.child("type")
    return f" Its `type` is given at {tag.where}." if tag is not None and tag.where.path != node.where.path else ""


def _inside(path: Path) -> str:
    return f" of `{dotted(path[:-1])}`" if len(path) > 1 else " of the document"


def dotted(path: Path) -> str:
    """`model.pipeline[0].head`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _fields_at(model: type[BaseModel], root: Node, path: Path) -> frozenset[str]:
    """The field names that the schema allows at `path`."""
    schema = model.model_json_schema()
    defs: dict[str, Any] = schema.get("$defs", {})

    def resolve(s: dict[str, Any], node: Node | None) -> dict[str, Any]:
        while "$ref" in s or "oneOf" in s or "anyOf" in s:
            if "$ref" in s:
                s = defs[s["$ref"].rsplit("/", 1)[-1]]
            elif "discriminator" in s and node is not None:
                tag = node.child("type")
                ref = s["discriminator"]["mapping"].get(tag.value if tag else None)
                s = {"$ref": ref} if ref else {}
            else:
                s = next((o for o in s.get("anyOf", s.get("oneOf", [])) if o.get("type") != "null"), {})
        return s

    node: Node | None = root
    here = resolve(schema, node)
    for part in path:
        node = node.child(part) if node else None
        if isinstance(part, int):
            here = resolve(here.get("items", {}), node)
        else:
            extra = here.get("additionalProperties")
            extra = extra if isinstance(extra, dict) else next(iter(here.get("patternProperties", {}).values()), {})
            here = resolve(here.get("properties", {}).get(part, extra), node)
    return frozenset(here.get("properties", {}))


def _expected(e: ErrorDetails) -> str:
    context = e.get("ctx", {})
    if "expected_tags" in context:
        *others, last = str(context["expected_tags"]).split(", ")
        return f"{', '.join(others)} or {last}" if others else last
    return str(context.get("expected", "another value"))


def _sentence(e: ErrorDetails, node: Node | None = None) -> str:
    """pydantic's message for people who write YAML."""
    type_, context = e["type"], e.get("ctx", {})
    got = f", got {node.shown!r}" if node is not None and node.kind == "scalar" else ""
    if node is not None and node.kind != "scalar" and type_.endswith(("_type", "_parsing")):
        got = f", got a {node.kind}"
    if type_ in ("literal_error", "union_tag_invalid"):
        return f"expected {_expected(e)}{got}"
    if type_ in _EXPECTED:
        return f"expected {_EXPECTED[type_]}{got}"
    if type_ == "string_pattern_mismatch":
        pattern = str(context.get("pattern"))
        return f"{PATTERNS.get(pattern, f'does not fit the pattern {pattern}')}{got}"
    if type_ in _BOUNDS:
        word, key = _BOUNDS[type_]
        bound = context.get(key)
        if isinstance(bound, int) and node is not None and str(node.shown).endswith("B"):
            return f"must be {word} {bound} bytes ({format_size(bound)}){got}"
        return f"must be {word} {bound}{got}"
    if type_ in _LENGTHS:
        word, key = _LENGTHS[type_]
        count = int(context.get(key, 0))
        noun = "character" if type_.startswith("string") else "item"
        return f"must have {word} {count} {noun}{'s' * (count != 1)}{got}"
    message = e["msg"].removeprefix("Value error, ")
    return message[0].lower() + message[1:]


def _near(e: ErrorDetails, node: Node) -> str:
    if e["type"] in ("literal_error", "union_tag_invalid") and node.value is not None:
        known = [w.strip(" '") for w in _expected(e).replace(" or ", ",").split(",")]
        return suggest(node.value, known)
    return ""
