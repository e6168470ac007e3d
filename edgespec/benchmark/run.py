"""The measurement itself: rounds over engines and lengths in turn, so that a slow moment hits all alike (edge)."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from edgespec import __version__, assets
from edgespec.artifact import Manifest
from edgespec.benchmark.deploy import Deployed, MakeProviders, deploy
from edgespec.benchmark.edge import Running, TemporaryEdge, temporary_edge
from edgespec.benchmark.native import MODEL, NativeModel
from edgespec.benchmark.profiler import Profiler
from edgespec.benchmark.texts import TextRow
from edgespec.benchmark.variants import NATIVE, Variant
from edgespec.measurement import (
    FORMAT,
    OWN,
    BenchDocument,
    Burst,
    Cold,
    EngineResult,
    LeftOut,
    LoadMemory,
    Machine,
    Memory,
    Native,
    Row,
    Spread,
    Tally,
    cpu_by_row,
)
from edgespec.resources.facts import BuildFacts
from edgespec.spec.models import EdgeModel

INTERVAL_US: Final = 250
"""Of the profiler's samples, each of which costs some 10 us."""
BURST: Final = 6
"""Requests of a row in one round, without and then with the profiler."""
WARM: Final = 12
"""Requests of a row before the first round: V8 compiles what is hot in the first ones."""
RESTARTS: Final = 3
ARRIVED: Final = ".finish("
"""The call in worker_runtime/src/models.ts by which an engine takes over weights that have arrived; bundles keep it."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What a run needs from its caller."""

    spec: EdgeModel
    own: Manifest
    """The artifact that the spec deploys."""
    variants: tuple[Variant, ...]
    left_out: tuple[LeftOut, ...]
    native: bool
    rows: tuple[TextRow, ...]
    tokenizer: bytes
    """The model's tokenizer.json."""
    rounds: int
    cache_dir: Path
    blob: Callable[[str], Path]
    """A chunk's file by its digest."""
    facts: Callable[[EdgeModel], BuildFacts]
    providers: MakeProviders
    say: Callable[[str], None]


def measure(bench: Bench) -> BenchDocument:
    """One run: deploy, cold starts, rounds, memory. Its edge is stopped whatever happens."""
    native, left_out = _native(bench)
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    sources = assets.local_edge_sources()
    with temporary_edge(sources, bench.cache_dir, bench.say) as edge, Profiler(sources) as profiler:
        running = edge.restart()
        deployed = deploy(bench.variants, running.endpoint, facts=bench.facts, providers=bench.providers)
        run = _Run(bench, edge, profiler, deployed, running)
        cold = run.cold()
        peaks = run.peaks()
        tallies, beside = run.rounds(native)
        engines = tuple(run.result(v, tallies[v.engine], cold[v.engine], peaks[v.engine]) for v in bench.variants)
        clock = run.cpu_clock
        workerd = running.workerd
    rows = tuple(_row(name, [c for c, _ in pairs], [w for _, w in pairs]) for name, pairs in beside.items())
    return BenchDocument(
        format=FORMAT,
        name=bench.spec.name,
        artifact=bench.own.digest,
        engine=bench.own.engine,
        task=bench.spec.task.type,
        max_tokens=bench.spec.task.max_tokens,
        bundle=assets.bundles().facts.digest,
        edgespec=__version__,
        measured_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        machine=Machine(
            processor=_processor(),
            cores=os.cpu_count() or 1,
            system=f"{platform.system()} {platform.machine()}",
            load=load,
            workerd=workerd,
            cpu_clock="profiler and scheduler" if clock else "profiler",
        ),
        rounds=bench.rounds,
        interval_us=INTERVAL_US,
        texts=tuple(r.document for r in bench.rows),
        engines=engines,
        native=Native(version=version("onnxruntime"), rows=rows) if native is not None else None,
        left_out=left_out,
    )


class _Run:
    def __init__(
        self, bench: Bench, edge: TemporaryEdge, profiler: Profiler, deployed: dict[str, Deployed], running: Running
    ) -> None:
        self._bench = bench
        self._edge = edge
        self._profiler = profiler
        self._deployed = deployed
        self._running = running
        self.cpu_clock = False
        """Whether the system told the serving thread's CPU."""

    def cold(self) -> dict[str, Cold]:
        """Fresh isolates, one restart after the other: the load, then the first answer."""
        found: dict[str, list[tuple[float, float, float, float]]] = {}
        for n in range(min(RESTARTS, self._bench.rounds)):
            self._bench.say(f"cold start {n + 1} of {min(RESTARTS, self._bench.rounds)}")
            self._running = self._edge.restart()
            for engine in self._turn(n, list(self._deployed)):
                load = self._burst(engine, [self._load(engine)], profiled=True)
                first = self._burst(engine, [self._infer(engine, self._middle())], profiled=True)
                figures = (load.cpu_ms(INTERVAL_US), load.wall_ms, first.cpu_ms(INTERVAL_US), first.wall_ms)
                a, b, c, d = (f[0] for f in figures)
                found.setdefault(engine, []).append((a, b, c, d))
        return {engine: _cold(rows) for engine, rows in found.items()}

    def peaks(self) -> dict[str, LoadMemory | None]:
        """Fresh isolates once more: their memory when the weights have arrived, and after the first answer."""
        self._bench.say("memory of a load")
        self._running = self._edge.restart()
        found = {}
        for engine in self._deployed:
            requests = [self._load(engine), self._infer(engine, self._middle())]
            answer = self._call("peak", engine, text=ARRIVED, requests=requests)
            found[engine] = LoadMemory.of(self._wasm(engine), answer)
        return found

    def rounds(
        self, native: NativeModel | None
    ) -> tuple[dict[str, dict[str, Tally]], dict[str, list[tuple[float, float]]]]:
        """Every row of every engine in every round, the engines in turning order: engine -> row -> figures, and for
        native onnxruntime row -> (CPU, wall)."""
        bench = self._bench
        names = [*self._deployed, *([NATIVE] if native is not None else [])]
        tallies: dict[str, dict[str, Tally]] = {engine: {} for engine in self._deployed}
        beside: dict[str, list[tuple[float, float]]] = {}
        self._warm(native)
        for n in range(bench.rounds):
            bench.say(f"round {n + 1} of {bench.rounds}")
            for row in bench.rows:
                count = len(row.texts) if row.name == OWN else BURST
                for name in self._turn(n, names):
                    if name == NATIVE and native is not None:
                        beside.setdefault(row.name, []).extend(native.run(_take(row, n, count)))
                        continue
                    plain = self._burst(name, self._texts(name, row, n, count), profiled=False)
                    profiled = self._burst(name, self._texts(name, row, n * BURST, BURST), profiled=True)
                    tallies[name].setdefault(row.name, Tally()).add(plain, profiled, INTERVAL_US)
        return tallies, beside

    def _warm(self, native: NativeModel | None) -> None:
        for row in self._bench.rows:
            for engine in self._deployed:
                self._burst(engine, self._texts(engine, row, 0, WARM), profiled=False)
            if native is not None:
                native.run(row.texts[:BURST])

    def result(self, variant: Variant, tallies: dict[str, Tally], cold: Cold, load: LoadMemory | None) -> EngineResult:
        """With the memory that the isolate holds now."""
        engine = variant.engine
        now = self._call("memory", engine)
        wasm = self._wasm(engine)
        total = now["heap"] + now["buffers"] + wasm
        memory = Memory(wasm=wasm, heap=now["heap"], buffers=now["buffers"], total=total)
        return EngineResult(
            engine=engine,
            artifact=variant.manifest.digest,
            weights=variant.manifest.size,
            rows=tuple(_row(name, cpu, tallies[name].wall) for name, cpu in cpu_by_row(tallies).items()),
            memory=memory,
            load_memory=load,
            cold=cold,
        )

    # --- calls

    def _call(self, op: str, engine: str, **arguments: Any) -> dict[str, Any]:
        worker = self._deployed[engine].version
        return self._profiler.call(op, inspector=self._running.inspector, worker=worker, **arguments)

    def _burst(self, engine: str, requests: list[dict[str, Any]], *, profiled: bool) -> Burst:
        sampled = {"interval_us": INTERVAL_US} if profiled else {}
        answer = self._call("burst", engine, process=self._running.process, requests=requests, **sampled)
        burst = Burst.from_json(answer)
        self.cpu_clock = burst.thread[0] is not None
        return burst

    def _wasm(self, engine: str) -> int:
        """Bytes outside the JavaScript heap that only the Worker itself can tell."""
        import httpx

        answer = httpx.get(self._load(engine)["url"], trust_env=False, timeout=60).json()
        return int(answer["memory"]["wasm"])

    def _url(self, engine: str) -> str:
        return f"{self._running.endpoint.base_url}{self._deployed[engine].path}"

    def _load(self, engine: str) -> dict[str, Any]:
        return {"url": f"{self._url(engine)}healthz?load=1"}

    def _infer(self, engine: str, text: str) -> dict[str, Any]:
        return {"url": f"{self._url(engine)}infer", "body": {"text": text}}

    def _texts(self, engine: str, row: TextRow, start: int, count: int) -> list[dict[str, Any]]:
        return [self._infer(engine, text) for text in _take(row, start, count)]

    def _middle(self) -> str:
        return self._bench.rows[min(1, len(self._bench.rows) - 1)].texts[0]

    @staticmethod
    def _turn(n: int, names: list[str]) -> list[str]:
        first = n % len(names)
        return names[first:] + names[:first]


def _row(name: str, cpu: Sequence[float], wall: Sequence[float]) -> Row:
    return Row(row=name, requests=len(cpu), cpu_ms=Spread.of(cpu), wall_ms=Spread.of(wall))


def _take(row: TextRow, start: int, count: int) -> list[str]:
    return [row.texts[(start + i) % len(row.texts)] for i in range(count)]


def _cold(rows: list[tuple[float, float, float, float]]) -> Cold:
    load_cpu, load_wall, first_cpu, first_wall = (round(statistics.median(c), 3) for c in zip(*rows, strict=True))
    return Cold(
        restarts=len(rows),
        load_cpu_ms=load_cpu,
        load_wall_ms=load_wall,
        first_cpu_ms=first_cpu,
        first_wall_ms=first_wall,
    )


def _native(bench: Bench) -> tuple[NativeModel | None, tuple[LeftOut, ...]]:
    """The native model where there is one that does the same work, and what is left out altogether."""
    if not bench.native:
        return None, bench.left_out
    variant = next((v for v in bench.variants if MODEL in v.manifest.files), None)
    why = None
    if bench.spec.task.type == "keyword-extraction":
        why = "keyword extraction runs the model once for each candidate, which only the Worker does"
    elif variant is None:
        why = "no variant has an ONNX file"
    if why is not None or variant is None:
        return None, (*bench.left_out, LeftOut(engine=NATIVE, why=str(why)))
    return NativeModel(variant.manifest, bench.blob, bench.tokenizer, bench.spec.task.max_tokens), bench.left_out


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    found = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    return found or platform.machine()
