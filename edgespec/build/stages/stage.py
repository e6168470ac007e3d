"""What a stage is: a name, a version, what its result depends on, and how to make it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from edgespec.build.cache import Cache, Entry, InputFile
from edgespec.build.events import BuildEvent, Progress
from edgespec.build.problems import fail
from edgespec.build.sources import ModelFiles
from edgespec.spec.models import EdgeModel, HeadStage, TextClassification
from edgespec.values import Value, digest

Inputs: TypeAlias = Mapping[str, Value]


def part(inputs: Inputs, name: str) -> dict[str, Value]:
    """An input that is itself a mapping."""
    value = inputs[name]
    if not isinstance(value, dict):
        raise TypeError(f"{name} is no mapping")
    return value


@dataclass(slots=True)
class Run:
    """One build under way; `entries` grows by a stage at a time."""

    spec: EdgeModel
    files: ModelFiles
    train: InputFile | None
    cache: Cache
    progress: Progress
    entries: dict[str, Entry] = field(default_factory=dict)

    @property
    def classification(self) -> TextClassification:
        """The task of a build that ends in a classifier."""
        if not isinstance(self.spec.task, TextClassification):
            raise TypeError(f"{self.spec.task.type} has no labels")
        return self.spec.task

    @property
    def head(self) -> tuple[HeadStage, InputFile]:
        """The head stage and its examples, in a build that has one."""
        if self.spec.head is None or self.train is None:
            raise TypeError("the pipeline has no head")
        return self.spec.head, self.train

    def say(self, stage: str, message: str, fraction: float | None = None) -> None:
        self.progress(BuildEvent(stage, message, fraction))

    def output(self, stage: str, name: str) -> bytes:
        """What an earlier stage made."""
        data = self.cache.read(self.entries[stage].outputs[name])
        if data is None:
            raise fail(
                "ES532",
                f"{self.cache.root}: the result of {stage} was removed or damaged during the build. Run it again.",
            )
        return data

    def notes(self, stage: str) -> Mapping[str, Any]:
        return self.entries[stage].notes


@dataclass(frozen=True, slots=True)
class Result:
    outputs: Mapping[str, bytes | memoryview]
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stage:
    name: str
    version: int
    """Raised whenever the same inputs would give another result."""
    parents: tuple[str, ...]
    depends: Callable[[Inputs], Inputs]
    """Picks, from the inputs of the whole build, what this stage itself reads."""
    run: Callable[[Run], Result]
    check: Callable[[Run], None] = lambda _: None
    """Raises EdgespecError for inputs that cannot work, cheaply: it runs before anything else is built."""
    tools: tuple[str, ...] = ()
    """Packages whose version may change the result."""

    def key(self, inputs: Inputs, parents: Mapping[str, str]) -> str:
        """What the result is kept under."""
        tools = part(inputs, "tools")
        return digest(
            {
                "stage": self.name,
                "version": self.version,
                "inputs": dict(self.depends(inputs)),
                "tools": {t: tools[t] for t in self.tools},
                "parents": {p: parents[p] for p in self.parents if p in parents},
            }
        )
