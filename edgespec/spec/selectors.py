"""Label selectors in Kubernetes' syntax: `team=support`, `team!=x`, `team in (a, b)`, `team notin (a)`, `team` (there
is such a label), `!team`; a comma means "and"."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

_TOKEN: Final = re.compile(r"\s*(==|!=|[=!,()]|[^\s=!,()]+)")
_SIGNS: Final = frozenset({"==", "!=", "=", "!", ",", "(", ")"})


class Requirement(Struct, frozen=True):
    """One condition. `values` is None where only the label's presence counts."""

    key: str
    wanted: bool
    values: frozenset[str] | None = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        found = self.key in labels if self.values is None else labels.get(self.key) in self.values
        return found is self.wanted


class Selector(Struct, frozen=True):
    """Every condition has to hold. As in Kubernetes, `!=` and `notin` also hold where there is no such label."""

    requirements: tuple[Requirement, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(r.matches(labels) for r in self.requirements)


def parse_selector(text: str) -> Selector:
    """Raises ValueError with what was expected, for people."""
    tokens = _Tokens(_TOKEN.findall(text))
    found = [_requirement(tokens)]
    while (sign := tokens.next()) is not None:
        if sign != ",":
            raise ValueError(f"expected a comma before `{sign}`")
        found.append(_requirement(tokens))
    return Selector(tuple(found))


class _Tokens:
    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0

    def peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def next(self) -> str | None:
        token = self.peek()
        self._at += token is not None
        return token

    def word(self, what: str) -> str:
        token = self.next()
        if token is None or token in _SIGNS:
            raise ValueError(f"expected {what}, got {f'`{token}`' if token else 'nothing'}")
        return token

    def value(self) -> str:
        """A label's value, which may be empty."""
        token = self.peek()
        return "" if token is None or token in (",", ")") else self.word("a value")


def _requirement(tokens: _Tokens) -> Requirement:
    if tokens.peek() == "!":
        tokens.next()
        return Requirement(tokens.word("a label's name"), wanted=False)
    key, sign = tokens.word("a label's name"), tokens.peek()
    if sign is None or sign == ",":
        return Requirement(key, wanted=True)
    tokens.next()
    if sign in ("=", "==", "!="):
        return Requirement(key, sign != "!=", frozenset({tokens.value()}))
    if sign in ("in", "notin"):
        return Requirement(key, sign == "in", _values(tokens, sign))
    raise ValueError(f"expected `=`, `!=`, `in` or `notin` after `{key}`, got `{sign}`")


def _values(tokens: _Tokens, operator: str) -> frozenset[str]:
    sign = tokens.next()
    if sign != "(":
        raise ValueError(f"expected values in parentheses after `{operator}`")
    found = {tokens.value()}
    while (sign := tokens.next()) != ")":
        if sign != ",":
            raise ValueError("expected `)` after the values")
        found.add(tokens.value())
    return frozenset(found)
