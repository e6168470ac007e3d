"""A measurement as tables for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edgespec.measurement import OWN, BenchDocument, EngineResult, LoadMemory, Memory, Row
from edgespec.render.text import Line, Span, line

NATIVE: Final = "native"
_REFERENCE: Final = "onnxruntime"
_MB: Final = 1e6


def render(document: BenchDocument) -> list[Line]:
    """CPU and wall time by row and engine with ratios, then cold starts and memory, then what was left out."""
    what = f"{document.name}: {document.task}, up to {document.max_tokens} tokens, deployed on {document.engine}"
    lines: list[Line] = [line(Span(what, "bold")), *_setting(document), ()]
    lines += _requests(document)
    lines += _cold(document.engines)
    lines += _memory(document.engines)
    for left in document.left_out:
        lines.append(line(Span(f"left out: {left.engine}: ", "yellow"), left.why))
    return lines


def _setting(document: BenchDocument) -> Iterator[Line]:
    machine = document.machine
    busy = "" if machine.load is None else f" (load {machine.load:g} before)"
    where = f"{machine.processor}, {machine.cores} cores{busy}, workerd {machine.workerd}, {document.rounds} rounds"
    yield line(Span(f"{where}, {document.measured_at}", "dim"))


def by_engine(document: BenchDocument) -> dict[str, tuple[Row, ...]]:
    """Every engine's rows, native onnxruntime last."""
    found = {e.engine: e.rows for e in document.engines}
    return found if document.native is None else {**found, NATIVE: document.native.rows}


def _requests(document: BenchDocument) -> Iterator[Line]:
    engines = by_engine(document)
    reference = _REFERENCE if _REFERENCE in engines else next(iter(engines))
    head = ("tokens", "engine", "CPU ms p50", "p99", f"to {reference}", "wall ms p50", "p99", "requests")
    yield _columns(head, "bold")
    for texts in document.texts:
        tokens = str(texts.tokens_median)
        if texts.row == OWN:
            tokens = f"own, {texts.tokens_min}-{texts.tokens_max}"
        base = _find(engines[reference], texts.row)
        for engine, rows in engines.items():
            row = _find(rows, texts.row)
            ratio = f"{base.cpu_ms.p50 / row.cpu_ms.p50:.2f}x" if row.cpu_ms.p50 > 0 else "-"
            cpu, wall = row.cpu_ms, row.wall_ms
            yield _columns(
                (tokens, engine, _ms(cpu.p50), _ms(cpu.p99), ratio, _ms(wall.p50), _ms(wall.p99), str(row.requests))
            )
            tokens = ""
    yield ()


def _cold(engines: tuple[EngineResult, ...]) -> Iterator[Line]:
    yield _columns(("cold", "engine", "load CPU ms", "wall", "", "answer CPU", "wall", "restarts"), "bold")
    for e in engines:
        c = e.cold
        load, first = (_ms(c.load_cpu_ms), _ms(c.load_wall_ms)), (_ms(c.first_cpu_ms), _ms(c.first_wall_ms))
        yield _columns(("", e.engine, *load, "", *first, str(c.restarts)))
    yield ()


def _memory(engines: tuple[EngineResult, ...]) -> Iterator[Line]:
    yield _columns(("MB", "engine", "isolate", "wasm", "", "heap", "buffers", "weights"), "bold")
    for e in engines:
        yield _columns(("", e.engine, *_parts(e.memory), f"{e.weights / _MB:.1f}"))
        if e.load_memory is not None:
            yield _columns(("", "  at load", *_parts(e.load_memory), ""))
    yield ()


def _parts(m: Memory | LoadMemory) -> tuple[str, str, str, str, str]:
    total, wasm, heap, buffers = (f"{n / _MB:.1f}" for n in (m.total, m.wasm, m.heap, m.buffers))
    return total, wasm, "", heap, buffers


def _find(rows: tuple[Row, ...], name: str) -> Row:
    return next(r for r in rows if r.row == name)


def _ms(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _columns(cells: tuple[str, ...], style: str = "") -> Line:
    first, engine, *numbers = cells
    widths = (12, 8, 16, 13, 8, 10)
    text = f"{first:<12}  {engine:<12}" + "".join(f"{c:>{w}}" for c, w in zip(numbers, widths, strict=True))
    return line(Span(text.rstrip(), style))
