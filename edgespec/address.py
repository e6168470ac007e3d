"""Resource addresses: `type/name`, unique within one environment of one project."""

from __future__ import annotations

from typing import NamedTuple


class Address(NamedTuple):
    """`name` may itself contain slashes: `weights/support-intent/eu`. A tuple, since a plan looks each of thousands up
    a hundred times, and tuples are hashed and compared in C."""

    type: str
    name: str

    @property
    def spec(self) -> str:
        """Of a resource that is one spec's: that spec's name, which begins its own."""
        return self.name.partition("/")[0]

    def __str__(self) -> str:
        return f"{self.type}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> Address:
        type_, slash, name = text.partition("/")
        if not slash or not type_ or not name:
            raise ValueError(f"expected TYPE/NAME, got {text!r}")
        return cls(type_, name)
