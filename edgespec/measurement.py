"""What `edgespec bench` measured, as a document, and the arithmetic from profiles to it. Pure.

CPU of one request = CPU that the system gave to workerd's serving thread meanwhile, without the profiler, times the
Worker's share of it. The share comes from other requests of the same row, with the profiler: every sample of V8's that
falls between a request's start and the next one's counts the time since the sample before it, unless its kind is "idle"
or "program" (no JavaScript or WebAssembly on the stack). A sample with no counted one right before it counts at most
one interval, since the Worker may have begun at any moment between; and a request counts at most what the thread was
given, since the time of a process that took workerd's place in the middle of a run is no CPU of the Worker. The rest of
the thread's CPU is the local edge's: HTTP, and the Worker in front that passes requests on.

Where the system does not tell a thread's CPU (it does on Linux) the counted time stands alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

FORMAT: Final = "edgespec.bench/v1"
OWN: Final = "own"
"""The row of the spec's own texts as they are."""
COUNTED: Final = frozenset({"run", "gc"})


@dataclass(frozen=True, slots=True)
class Burst:
    """Requests one after the other, and the profiler's samples meanwhile. All times in microseconds of one clock."""

    starts: tuple[float, ...]
    ends: tuple[float, ...]
    end: float
    """When the profile ends."""
    thread: tuple[float | None, ...]
    """CPU of the serving thread so far: at each start, and at the end."""
    samples: tuple[tuple[float, str], ...]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Burst:
        """The answer of profile.mjs to `burst`."""
        rows, (end, last) = data["requests"], data["end"]
        samples = tuple((float(t), str(kind)) for t, kind in data.get("samples", ()))
        starts, ends = tuple(r[0] for r in rows), tuple(r[1] for r in rows)
        return cls(starts, ends, end, (*(r[2] for r in rows), last), samples)

    @property
    def wall_ms(self) -> list[float]:
        return [(end - start) / 1000 for start, end in zip(self.starts, self.ends, strict=True)]

    def cpu_ms(self, interval_us: float) -> list[float]:
        """Milliseconds of each request that its samples count."""
        edges = (*self.starts, self.end)
        sums = [0.0] * len(self.starts)
        window, before, running = 0, -math.inf, False
        for time, kind in self.samples:
            while window < len(sums) and time >= edges[window + 1]:
                window, running = window + 1, False
            if window == len(sums):
                break
            counts = kind in COUNTED
            if counts and time >= edges[window]:
                sums[window] += time - before if running else min(time - before, interval_us)
            before, running = time, counts and time >= edges[window]
        return [s / 1000 if t is None else min(s, t) / 1000 for s, t in zip(sums, self._given(), strict=True)]

    def _given(self) -> list[float | None]:
        """Microseconds of the serving thread's CPU during each request."""
        pairs = zip(self.thread, self.thread[1:], strict=False)
        return [None if a is None or b is None else b - a for a, b in pairs]

    @property
    def thread_ms(self) -> list[float]:
        """Milliseconds of the serving thread's CPU during each request; empty where the system does not tell."""
        return [t / 1000 for t in self._given() if t is not None]


@dataclass(slots=True)
class Tally:
    """What the bursts of one row gave, milliseconds a request."""

    wall: list[float] = field(default_factory=list)
    thread: list[float] = field(default_factory=list)
    """Without the profiler."""
    counted: list[float] = field(default_factory=list)
    profiled: list[float] = field(default_factory=list)
    """The thread's CPU with the profiler."""
    hits: int = 0
    """Samples that count."""

    def add(self, plain: Burst, profiled: Burst, interval_us: float) -> None:
        self.wall += plain.wall_ms
        self.thread += plain.thread_ms
        self.counted += profiled.cpu_ms(interval_us)
        self.profiled += profiled.thread_ms
        self.hits += sum(kind in COUNTED for _, kind in profiled.samples)


ENOUGH: Final = 50
"""Samples that tell a row's share; a row with fewer takes the share of all rows together."""


def cpu_by_row(tallies: Mapping[str, Tally]) -> dict[str, list[float]]:
    """Milliseconds of CPU of each request, by row."""
    pooled = _share(list(tallies.values()))
    found = {}
    for name, tally in tallies.items():
        share = _share([tally]) if tally.hits >= ENOUGH else pooled
        found[name] = [t * share for t in tally.thread] if tally.thread else tally.counted
    return found


def _share(tallies: Sequence[Tally]) -> float:
    given = sum(sum(t.profiled) for t in tallies)
    return min(1.0, sum(sum(t.counted) for t in tallies) / given) if given > 0 else 1.0


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


# --- the document ----------------------------------------------------------------------------------------------------


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), defer_build=True)


Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Spread(_Document):
    """Milliseconds: the median and the 99th percentile."""

    p50: float = Field(ge=0)
    p99: float = Field(ge=0)

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(p50=round(percentile(values, 0.5), 3), p99=round(percentile(values, 0.99), 3))


class Texts(_Document):
    """The texts of a row, by their number of tokens with special ones, cut at the task's max_tokens."""

    row: str
    """`own`, or the number of tokens that was aimed at."""
    texts: int = Field(ge=1)
    tokens_min: int
    tokens_median: int
    tokens_max: int


class Row(_Document):
    row: str
    requests: int = Field(ge=1)
    cpu_ms: Spread
    wall_ms: Spread


class Memory(_Document):
    """Bytes of the isolate after all requests, garbage included."""

    wasm: int = Field(ge=0)
    heap: int = Field(ge=0)
    buffers: int = Field(ge=0)
    total: int = Field(ge=0)


class LoadMemory(_Document):
    """The most bytes of a fresh isolate while it loads the model and gives the first answer, garbage included.

    `heap` and `buffers` are those of the moment when the weights have arrived and the engine is about to take them
    over: whatever is needed for the load only is there then. `wasm` is what there is afterwards, for it never shrinks.
    """

    wasm: int = Field(ge=0)
    heap: int = Field(ge=0)
    buffers: int = Field(ge=0)
    total: int = Field(ge=0)

    @classmethod
    def of(cls, wasm: int, answer: Mapping[str, Any]) -> LoadMemory | None:
        """`answer` is profile.mjs's to `peak`; None where the Worker did not come to that moment."""
        if answer["pauses"] == 0:
            return None
        heap, buffers = int(answer["heap"]), int(answer["buffers"])
        return cls(wasm=wasm, heap=heap, buffers=buffers, total=wasm + heap + buffers)


class Cold(_Document):
    """Medians of an isolate's first load of the weights and of the first answer after it, in milliseconds."""

    restarts: int = Field(ge=1)
    load_cpu_ms: float = Field(ge=0)
    load_wall_ms: float = Field(ge=0)
    first_cpu_ms: float = Field(ge=0)
    first_wall_ms: float = Field(ge=0)


class EngineResult(_Document):
    engine: str
    artifact: Sha256
    weights: int
    """Bytes of the artifact's files."""
    rows: tuple[Row, ...]
    memory: Memory
    load_memory: LoadMemory | None = None
    """None where it was not measured, as in documents of an older edgespec."""
    cold: Cold

    def row(self, name: str) -> Row | None:
        return next((r for r in self.rows if r.row == name), None)


class Native(_Document):
    """onnxruntime in this process: one thread, the same ONNX as the engine onnxruntime, tokenisation included."""

    version: str
    rows: tuple[Row, ...]


class LeftOut(_Document):
    engine: str
    why: str


class Machine(_Document):
    processor: str
    cores: int
    system: str
    load: float | None
    """Processes that wanted to run in the minute before: more than there are cores makes every figure worse."""
    workerd: str
    cpu_clock: Literal["profiler", "profiler and scheduler"]


class BenchDocument(_Document):
    """One run of `edgespec bench`. `artifact` is what the spec deploys, `engine` the one that it runs on."""

    format: Literal["edgespec.bench/v1"]
    name: str
    artifact: Sha256
    engine: str
    task: str
    max_tokens: int
    bundle: Sha256
    """Digest of the Worker's code that was measured."""
    edgespec: str
    measured_at: str
    """UTC, ISO 8601."""
    machine: Machine
    rounds: int
    interval_us: int
    texts: tuple[Texts, ...]
    engines: tuple[EngineResult, ...]
    native: Native | None
    left_out: tuple[LeftOut, ...]

    @property
    def own(self) -> EngineResult | None:
        """The result of the engine that the spec deploys; None when it was not among those asked for."""
        return next((e for e in self.engines if e.artifact == self.artifact), None)


@dataclass(frozen=True, slots=True)
class Measured:
    """What a plan needs of a measurement of the artifact that it deploys."""

    engine: str
    texts: str
    """Which texts the CPU figures are of, for people."""
    cpu_p50_ms: float
    cpu_p99_ms: float
    longest: str
    """The longest row's tokens."""
    longest_p50_ms: float
    memory: int
    """Bytes of the isolate, while it loads or later: the larger."""
    measured_at: str


def summarise(document: BenchDocument) -> Measured | None:
    """The figures that limits are checked against: of the spec's own texts, else of the longest ones."""
    own = document.own
    if own is None:
        return None
    longest = own.rows[-1] if own.rows[-1].row != OWN else own.rows[-2]
    row = own.row(OWN) or longest
    texts = "own texts" if row.row == OWN else f"texts of {row.row} tokens"
    return Measured(
        engine=own.engine,
        texts=texts,
        cpu_p50_ms=row.cpu_ms.p50,
        cpu_p99_ms=row.cpu_ms.p99,
        longest=longest.row,
        longest_p50_ms=longest.cpu_ms.p50,
        memory=max(own.memory.total, own.load_memory.total if own.load_memory is not None else 0),
        measured_at=document.measured_at,
    )
