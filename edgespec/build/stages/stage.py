"""What a stage is: a name, a version, what its result depends on, and how to make it."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from msgspec import Struct, field

from edgespec.build.cache import Blob, Cache, Entry, InputFile
from edgespec.build.events import BuildEvent, Progress
from edgespec.build.problems import fail
from edgespec.build.sources import ModelFiles, files_of
from edgespec.spec.models import EdgeModel, TextClassification
from edgespec.values import Value, digest

Inputs: TypeAlias = Mapping[str, Value]
OUTPUTS_KEPT: Final = (
    "config.json", "tokenizer.json", "tokenizer_config.json", "modules.json", "1_Pooling/config.json",
)  # fmt: skip
"""Files of a checkpoint beside its weights that later stages read."""


def part(inputs: Inputs, name: str) -> dict[str, Value]:
    """An input that is itself a mapping."""
    value = inputs[name]
    if not isinstance(value, dict):
        raise TypeError(f"{name} is no mapping")
    return value


def fits_head(inputs: Inputs) -> bool:
    """Whether the pipeline ends in a classifier of its own (see `steps`)."""
    return any(name.endswith("-head") for name in part(inputs, "pipeline"))


class Result(Struct, frozen=True):
    outputs: Mapping[str, bytes | memoryview]
    notes: Mapping[str, Any] = field(default_factory=dict)
    """JSON values."""


class Needs(Struct, frozen=True):
    """What an executor should give a stage; hints for a cluster, ignored on one machine."""

    cpus: float = 1
    memory: int = 2 * 2**30
    """Bytes."""
    gpus: float = 0


class Stage(Struct, frozen=True):
    name: str
    version: int
    """Raised whenever the same inputs would give another result."""
    depends: Callable[[Inputs], Inputs]
    """Picks, from the inputs of the whole build, what this stage itself reads besides its own options."""
    run: Callable[[Job], Result]
    check: Callable[[Job], None] = lambda _: None
    """Raises EdgespecError for a model that cannot work, cheaply. It is called before anything is built when the model
    that comes in is known by then, and else just before `run`."""
    check_data: Callable[[Job], None] = lambda _: None
    """The same for options and data files. It is always called before anything is built, so it may read
    `job.step`, `job.spec` and `job.source`, but not `job.files`."""
    tools: tuple[str, ...] = ()
    """Packages whose version may change the result."""
    tools_for: Callable[[Any], tuple[str, ...]] = lambda _: ()
    """More of them, for what the options ask."""
    makes_checkpoint: bool = False
    """Whether its outputs are a model's files, as `checkpoint_outputs` reads them, for the stages after it."""
    needs: Needs = Needs()


class Step(Struct, frozen=True):
    """A stage's place in one build: what the spec says of it, and what it comes after."""

    name: str
    """Unique in the build: the stage's name, with a number from the second one on."""
    stage: Stage
    parents: tuple[str, ...]
    """Steps that must have run; those whose names are not in the build are left out."""
    where: tuple[str | int, ...] = ("model", "source")
    """In the spec."""
    options: Any = None
    """The spec's own model of the stage, None for one that every build has."""
    inputs: Mapping[str, Value] | None = None
    """The options with the digests of the files that they name, as a plan shows them."""
    data: Mapping[str, InputFile] = field(default_factory=dict)
    """Files that the options name, by field: `train`, `vocabulary.corpus`."""
    models: Mapping[str, ModelFiles] = field(default_factory=dict)
    """Models that the options name, by field: `source` of a student."""

    @property
    def tools(self) -> tuple[str, ...]:
        return (*self.stage.tools, *self.stage.tools_for(self.options))

    def key(self, inputs: Inputs, parents: Mapping[str, str]) -> str:
        """What the result is kept under."""
        tools = part(inputs, "tools")
        return digest(
            {
                "stage": self.stage.name,
                "version": self.stage.version,
                "options": None if self.inputs is None else dict(self.inputs),
                "inputs": dict(self.stage.depends(inputs)),
                "tools": {t: tools[t] for t in self.tools},
                "parents": {p: parents[p] for p in self.parents if p in parents},
            }
        )


class Job(Struct):
    """A step at work. `entries` and `source` are the whole build's; `step` is one of its steps."""

    spec: EdgeModel
    source: ModelFiles
    """The files of `model.source`."""
    cache: Cache
    progress: Progress
    step: Step
    root: Path
    """The project's folder."""
    entries: dict[str, Entry] = field(default_factory=dict)
    """Results by step, in the order in which they were made."""
    checkpoint: str | None = None
    """The last step before this one that made a checkpoint; None while the model is still the source."""
    fresh: bool = False
    """Nothing is taken from the cache that this step would make."""

    @property
    def files(self) -> ModelFiles:
        """The model that this step works on."""
        if self.checkpoint is None:
            return self.source
        return files_of({name: self._blob_file(name, b) for name, b in self.entries[self.checkpoint].outputs.items()})

    def _blob_file(self, name: str, blob: Blob) -> InputFile:
        path = self.cache.path(blob.sha256)
        if path is None:
            raise self._lost(str(self.checkpoint))
        return self.cache.input(path, name, text=False)

    @property
    def task(self) -> TextClassification:
        """The task of a build that ends in a classifier."""
        if not isinstance(self.spec.task, TextClassification):
            raise TypeError(f"{self.spec.task.type} has no labels")
        return self.spec.task

    def say(self, message: str, fraction: float | None = None) -> None:
        self.progress(BuildEvent(self.step.name, message, fraction))

    def output(self, step: str, name: str) -> bytes:
        """What an earlier step made."""
        data = self.cache.read(self.entries[step].outputs[name])
        if data is None:
            raise self._lost(step)
        return data

    def notes(self, step: str) -> Mapping[str, Any]:
        return self.entries[step].notes

    def _lost(self, step: str) -> Exception:
        return fail(
            "ES532", f"{self.cache.root}: the result of {step} was removed or damaged during the build. Run it again."
        )

    @contextlib.contextmanager
    def workspace(self) -> Iterator[Path]:
        """A folder for a tool to work in, gone afterwards whatever happens."""
        folder = Path(tempfile.mkdtemp(prefix=f"edgespec-{self.step.stage.name}-"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def checkout(self, folder: Path) -> Path:
        """The model's files under their own names in `folder`, which is made: for tools that read a folder. Copies,
        since tools write where they read."""
        for file in self.files.all:
            target = folder / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read())
        return folder

    def log_path(self) -> Path:
        """Where the output of this step's tool goes: kept, and named in messages."""
        folder = self.root / ".edgespec" / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{self.spec.name}-{self.step.name}.log"


def checkpoint_outputs(folder: Path) -> dict[str, bytes]:
    """The outputs of a stage that wrote a model into `folder`: its weights and what later stages read beside them."""
    names = [n for n in OUTPUTS_KEPT if (folder / n).is_file()]
    names += sorted(p.name for p in folder.glob("*.safetensors"))
    return {name: (folder / name).read_bytes() for name in names}
