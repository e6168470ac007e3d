"""Programs that are cut off, changed in a byte, or hostile: refused, or run without touching anything but the arena."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgespec.engine import pack
from edgespec.engine.format import (
    Act,
    Activate,
    Add,
    Attention,
    Concat,
    Embed,
    Glu,
    L2Norm,
    LayerNorm,
    Linear,
    Mul,
    Pool,
    PoolTokens,
    Program,
    Register,
    RmsNorm,
    Rope,
    Scale,
)
from tests.engine.wasm import VOCABULARY, B, T, Wasm, texts_of

CORPUS = Path(__file__).parent / "corpus" / "programs.json"
MUTANTS = 6000
HEADER, TENSOR, REGISTER, OP = 64, 32, 8, 64
LIMITS = {"max_tokens": 24, "max_texts": 4, "module": "relaxed"}


def every_operation() -> Program:
    """A small program that has each operation and each type of weight."""
    rng = np.random.default_rng(5)
    width, heads, head = 12, 2, 6

    def weight(rows: int, columns: int) -> np.ndarray:
        return rng.normal(size=(rows, columns)) * 0.3

    tensors = [
        pack.table_i4(*pack.quantize_i4(weight(VOCABULARY, width), group=32, symmetric=False), group=32),
        pack.table_i8(*pack.quantize_rows(weight(26, width))),
        pack.table_f16(weight(2, width)),
        pack.linear_i8(*pack.quantize_i8(weight(3 * width, width))),
        pack.linear_i4(*pack.quantize_i4(weight(width, width), group=32, symmetric=False), group=32),
        pack.linear_f16(weight(2 * width, width)),
        pack.linear_f32(weight(5, width)),
        pack.vector(rng.normal(size=width)),
        pack.vector(rng.normal(size=head)),
        pack.vector([1.0, 0.3]),
        pack.vector(rng.uniform(0.5, 1, VOCABULARY)),
        pack.vector(rng.normal(size=3 * width)),
    ]
    kinds = [(T, width), (T, 3 * width), (T, width), (T, 2 * width), (T, width), (B, width), (B, 5), (B, 7), (B, 7)]
    ops = (
        Embed(out=0, table=0, positions=1, position_offset=2, types=2),
        LayerNorm(out=0, source=0, gamma=7, beta=7),
        Linear(out=1, source=0, weight=3, bias=11),
        RmsNorm(out=1, source=1, gamma=8, width=width, head=head),
        Rope(target=1, heads=heads, head=head, rotary=4, frequencies=9),
        Attention(
            out=2,
            query=1,
            key=1,
            key_offset=width,
            value=1,
            value_offset=2 * width,
            heads=heads,
            kv_heads=heads,
            head=head,
            scale=0.4,
            window=5,
            integers=True,
        ),
        Linear(out=4, source=2, weight=4, act=Act.GELU_ERF, residual=0),
        Linear(out=3, source=4, weight=5),
        Glu(out=2, a=3, b=3, b_offset=width, act=Act.SILU),
        Mul(out=2, a=2, b=4),
        Add(out=2, a=2, b=0),
        Scale(out=2, source=2, factor=0.5, weight=7, bias=7),
        Activate(out=2, source=2, act=Act.TANH),
        PoolTokens(out=5, source=2, mode=Pool.WEIGHTED_BY_SUM, weights=10),
        L2Norm(out=5, source=5),
        Linear(out=6, source=5, weight=6),
        Concat(out=7, a=6, a_width=5, b=5, b_offset=3, b_width=2),
        L2Norm(out=8, source=7),
    )
    return Program(tuple(tensors), tuple(Register(*kind) for kind in kinds), ops, 8, max_position=24)


PROGRAM = every_operation()
DATA = PROGRAM.encode()
WEIGHTS = struct.unpack_from("<I", DATA, 20)[0]
TEXTS = texts_of(np.random.default_rng(6), 9, 1, 14)


def outcomes(engine: Wasm, **changes: Any) -> list[str]:
    found: list[str] = engine.ask(program=DATA, texts=TEXTS, **{**LIMITS, **changes})["outcomes"]
    return found


def assert_safe(found: list[str], changes: list[Any]) -> None:
    pairs = zip(found, changes, strict=True)
    bad = [(outcome, change) for outcome, change in pairs if outcome[:5] not in ("ok", "error")]
    assert not bad, bad[:5]


def test_the_program_itself_runs(engine: Wasm) -> None:
    assert outcomes(engine, mutants=[[]]) == ["ok"]


def test_cut_anywhere_it_is_refused(engine: Wasm) -> None:
    sections = [0, 1, 63, 64, 65, WEIGHTS - 64, WEIGHTS - 1, WEIGHTS, WEIGHTS + 1, len(DATA) - 64, len(DATA) - 1]
    cuts = sorted({*sections, *range(0, len(DATA), 37)})
    found = outcomes(engine, cuts=cuts)
    assert_safe(found, cuts)
    assert "ok" not in found


def test_every_byte_before_the_weights_changed(engine: Wasm) -> None:
    rng = np.random.default_rng(1)
    edits = [[[at, DATA[at] ^ (1 << bit)]] for at in range(WEIGHTS) for bit in rng.permutation(8)[:2].tolist()]
    edits += [[[at, value]] for at in range(WEIGHTS) for value in (0, 255) if DATA[at] != value]
    found = outcomes(engine, mutants=edits)
    assert_safe(found, edits)
    assert "ok" in found and len({*found}) >= 5


def test_numbers_replaced_by_hostile_ones(engine: Wasm) -> None:
    """Several words of header, tables and operations at once, by values at the edges of what arithmetic holds."""
    rng = np.random.default_rng(2)
    small = [0, 1, 2, 7, 8, 63, 64, 65]
    values = [*small, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFC0, 0xFFFFFFFF]
    edits = []
    for _ in range(MUTANTS):
        mutant = []
        for at in rng.integers(2, WEIGHTS // 4, size=rng.integers(1, 4)) * 4:
            word = struct.unpack_from("<I", DATA, int(at))[0]
            new = int(rng.choice(values)) if rng.random() < 0.6 else (word + int(rng.integers(-4, 5))) % 2**32
            mutant += [[int(at) + i, byte] for i, byte in enumerate(new.to_bytes(4, "little"))]
        edits.append(mutant)
    # The plain module computes attention in integers on every machine, the other one only where dot products are exact.
    for module, some in (("relaxed", edits[::2]), ("simd", edits[1::2])):
        assert_safe(outcomes(engine, mutants=some, module=module), some)


def test_weights_that_are_not_numbers_do_no_harm(engine: Wasm) -> None:
    rng = np.random.default_rng(3)
    edits = []
    for _ in range(400):
        at = int(rng.integers(WEIGHTS // 4, len(DATA) // 4)) * 4
        word = int(rng.choice([0x7FC00000, 0x7F800000, 0xFF800000, 0xFFFFFFFF, 0x7F7FFFFF, 0x80000000]))
        edits.append([[at + i, byte] for i, byte in enumerate(word.to_bytes(4, "little"))])
    for module in ("relaxed", "simd"):
        assert {*outcomes(engine, mutants=edits, module=module)} == {"ok"}


def test_the_corpus(engine: Wasm) -> None:
    """Programs written down because each reaches a check of its own: the error is the one it was kept for."""
    kept = json.loads(CORPUS.read_text())
    found = outcomes(engine, mutants=[one["edits"] for one in kept])
    assert found == [one["outcome"] for one in kept]


def test_memory_is_refused_rather_than_exhausted(engine: Wasm) -> None:
    limits = {**LIMITS, "max_tokens": 1 << 15, "max_texts": 1 << 15}
    wide = Program(
        (pack.table_f32(np.ones((2, 1 << 16))),), (Register(T, 1 << 16),), (Embed(out=0, table=0),), output=0
    )
    answer = engine.ask(program=wide.encode(), texts=[[0]], **limits)
    assert answer["error"] == 6


def test_attention_in_integers_takes_heads_whose_sums_fit(engine: Wasm) -> None:
    """Wider heads, and flags that mean nothing yet."""
    for head, integers, wanted in ((512, True, None), (513, True, 5), (513, False, None)):
        slices = {"heads": 1, "kv_heads": 1, "head": head, "scale": 1.0, "integers": integers}
        ops = (Embed(out=0, table=0), Attention(out=1, query=0, key=0, value=0, **slices))
        kinds = (Register(T, 513), Register(T, head))
        program = Program((pack.table_f32(np.ones((2, 513))),), kinds, ops, output=1)
        answer = engine.ask(program=program.encode(), texts=[[0, 1]], **LIMITS)
        assert answer.get("error") == wanted
    index = next(i for i, op in enumerate(PROGRAM.ops) if isinstance(op, Attention))
    tables = (len(PROGRAM.tensors) * TENSOR, len(PROGRAM.registers) * REGISTER)
    at = HEADER + sum(-(-size // 64) * 64 for size in tables) + index * OP + 2
    assert outcomes(engine, mutants=[[[at, flags]] for flags in range(5)]) == ["ok"] * 4 + ["error 5"]


@pytest.mark.parametrize(
    ("texts", "error"),
    [
        ([], 7),
        ([[1], []], 8),
        ([[1] * 25], 8),
        ([[1] * 20, [1] * 5], 7),
        ([[1]] * 5, 7),
        ([[VOCABULARY]], 9),
        ([[-1]], 9),
    ],
)
def test_texts_that_are_refused(engine: Wasm, texts: list[list[int]], error: int) -> None:
    assert engine.ask(program=DATA, texts=texts, **LIMITS)["error"] == error


def test_a_batch_answers_as_its_texts_alone(engine: Wasm) -> None:
    """Bit for bit: nothing of one text reaches another."""
    for module in ("relaxed", "simd"):
        limits = {"max_tokens": 24, "max_texts": 4, "module": module}
        together = engine.run(PROGRAM, TEXTS, **limits).values
        alone = [engine.run(PROGRAM, [text], **limits).values for text in TEXTS]
        assert np.array_equal(together, np.concatenate(alone))
