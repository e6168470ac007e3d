"""Resource addresses: `type/name`, unique within one environment of one project."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """`name` may itself contain slashes: `weights/support-intent/eu`."""

    type: str
    name: str

    def __hash__(self) -> int:
        """Strings keep their hashes: this makes no tuple, and a plan looks addresses up a hundred times each."""
        return hash(self.type) ^ hash(self.name)

    def __str__(self) -> str:
        return f"{self.type}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> Address:
        type_, slash, name = text.partition("/")
        if not slash or not type_ or not name:
            raise ValueError(f"expected TYPE/NAME, got {text!r}")
        return cls(type_, name)
