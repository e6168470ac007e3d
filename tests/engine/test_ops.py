"""Every operation, type and kind of arithmetic in the wasm modules against the numpy reference, on odd shapes."""

from __future__ import annotations

import numpy as np
import pytest

from edgespec.engine import pack, reference
from edgespec.engine.format import (
    Act,
    Activate,
    Add,
    Attention,
    Concat,
    DType,
    Embed,
    Glu,
    L2Norm,
    LayerNorm,
    Linear,
    Mul,
    Pool,
    PoolTokens,
    Program,
    RmsNorm,
    Rope,
    Scale,
    Tensor,
)
from edgespec.engine.reference import Kind
from tests.engine.wasm import VOCABULARY, B, Builder, Wasm, texts_of

MODULES = ("relaxed", "simd")
WIDTHS = (1, 3, 8, 26, 36, 64)
BATCHES = ((1,), (5,), (1, 7, 4), (33, 2))


def rng_of(*parts: object) -> np.random.Generator:
    return np.random.default_rng([sum(map(ord, str(p))) + 7919 * i for i, p in enumerate(parts)])


def check(
    engine: Wasm, program: Program, lengths: tuple[int, ...], *, bound: float = 2e-6, kind: int | None = None
) -> None:
    """Both modules within `bound` (relative to the largest value) of the reference, whatever memory held before."""
    texts = texts_of(rng_of(lengths), *lengths)
    for module in MODULES:
        answers = [engine.run(program, texts, module=module, kind=kind, fill=fill) for fill in (0x00, 0x7F)]
        values = answers[0].values
        assert np.array_equal(values, answers[1].values), "the answer depends on what memory held before"
        expected = reference.run(program, texts, answers[0].raw["kind"])
        assert values.shape == expected.shape
        error = np.abs(values.astype(np.float64) - expected).max() / max(1.0, np.abs(expected).max())
        assert error <= bound, f"{module}: error {error:.2g}"


def weight_of(name: str, weight: np.ndarray) -> Tensor:
    if name in ("f32", "f16"):
        return {"f32": pack.linear_f32, "f16": pack.linear_f16}[name](weight)
    if name.startswith("i8"):
        return pack.linear_i8(*pack.quantize_i8(weight, depth=int(name[-1])))
    _, group, zeros, half = name.split("-")
    packed = pack.quantize_i4(weight, group=int(group), symmetric=zeros == "symmetric", half=half == "half")
    return pack.linear_i4(*packed, group=int(group))


I4 = [f"i4-{g}-{z}-{h}" for g in (32, 64, 128) for z in ("symmetric", "zeros") for h in ("half", "float")]


@pytest.mark.parametrize("name", ["f32", "f16", "i8d1", "i8d2", "i8d4", *I4])
@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (8, 8), (36, 20), (26, 65), (200, 33), (131, 12)])
def test_linear(engine: Wasm, name: str, shape: tuple[int, int]) -> None:
    columns, rows = shape
    rng = rng_of(name, shape)
    build = Builder(rng, columns)
    weight = build.tensor(weight_of(name, rng.normal(size=(rows, columns)) * 0.1))
    out = build.register(rows)
    op = Linear(out=out, source=build.source, weight=weight, bias=build.vector(rows))
    for lengths in BATCHES:
        check(engine, build.program(out, op), lengths, bound=1e-5)


@pytest.mark.parametrize("kind", [Kind.A7, Kind.A8, Kind.A12])
@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("columns", [1, 7, 64, 200])
def test_int8_sums_are_the_reference_integers(engine: Wasm, kind: Kind, depth: int, columns: int) -> None:
    """With scales of 1 the output is an integer times the activation's scale: dividing gives the integer itself."""
    rng = rng_of(kind, depth, columns)
    build = Builder(rng, columns, spread=3.0)
    largest = {1: 127, 2: 63, 4: 31}[depth]
    quantized = rng.integers(-largest, largest + 1, size=(9, columns)).astype(np.int8)
    quantized[0] = largest
    quantized[1] = -largest
    weight = pack.linear_i8(quantized, np.ones(9, np.float32))
    assert weight.detail >= depth or columns < 8
    out = build.register(9)
    program = build.program(out, Linear(out=out, source=build.source, weight=build.tensor(weight)))
    texts = texts_of(rng, 6, 3)
    rows = reference.trace(program, texts, kind)[build.source]
    q, scales, zero = reference.quantize(rows, kind)
    integers = q @ quantized.astype(np.int64).T - zero[:, None] * quantized.astype(np.int64).sum(1)
    for module in MODULES:
        answer = engine.run(program, texts, module=module, kind=kind)
        if "refused" in answer.raw:
            assert kind == Kind.A8 and answer.raw["probed"] != Kind.A8
            continue
        expected = (integers.astype(np.float32) * scales[:, None]).astype(np.float32)
        assert np.array_equal(answer.values, expected)


@pytest.mark.parametrize("group", pack.GROUPS)
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("columns", [3, 32, 100, 256])
def test_int4_sums_are_the_reference_integers(engine: Wasm, group: int, zeros: bool, columns: int) -> None:
    """Extreme nibbles against extreme activations, on every kind: the same numbers everywhere."""
    rng = rng_of(group, zeros, columns)
    build = Builder(rng, columns, spread=3.0)
    groups = -(-columns // group)
    quantized = rng.integers(0, 16, size=(10, columns)).astype(np.uint8)
    quantized[0], quantized[1] = 15, 0
    points = rng.integers(0, 16, size=(10, groups)).astype(np.uint8) if zeros else None
    weight = pack.linear_i4(quantized, np.ones((10, groups), np.float32), points, group=group)
    out = build.register(10)
    program = build.program(out, Linear(out=out, source=build.source, weight=build.tensor(weight)))
    texts = texts_of(rng, 7)
    expected = reference.run(program, texts)
    answers = [
        engine.run(program, texts, module=module, kind=kind).values
        for module in MODULES
        for kind in (None, Kind.A7, Kind.A12)
    ]
    for values in answers:
        assert np.array_equal(values, answers[0])
        assert np.abs(values - expected).max() <= 2e-7 * np.abs(expected).max()


@pytest.mark.parametrize("act", list(Act))
@pytest.mark.parametrize("name", ["f32", "i8d2", "i4-32-zeros-half"])
def test_linear_with_activation_residual_and_slice(engine: Wasm, act: Act, name: str) -> None:
    rng = rng_of(act, name)
    build = Builder(rng, 77, spread=2.0)
    middle, out = build.register(21), build.register(21)
    first = build.tensor(weight_of(name, rng.normal(size=(21, 50)) * 0.2))
    second = build.tensor(weight_of(name, rng.normal(size=(21, 21)) * 0.2))
    program = build.program(
        out,
        Linear(out=middle, source=build.source, offset=13, weight=first, bias=build.vector(21), act=act),
        Linear(out=out, source=middle, weight=second, act=act, residual=middle),
    )
    # Two layers deep an activation may round to the next integer: the bound is a step of the second quantisation.
    for lengths in BATCHES:
        check(engine, program, lengths, bound=1e-5 if name == "f32" else 5e-3)


@pytest.mark.parametrize("act", list(Act))
def test_activations_over_their_range(engine: Wasm, act: Act) -> None:
    build = Builder(rng_of(act), 512)
    wide = np.linspace(-12, 12, 512 * (VOCABULARY - 2))
    table = np.concatenate([wide, np.linspace(-0.3, 0.3, 512), np.full(512, 88.0)])
    build.tensors[0] = pack.table_f32(table.reshape(VOCABULARY, 512))
    out = build.register(512)
    program = build.program(out, Activate(out=out, source=build.source, act=act))
    texts = [list(range(VOCABULARY))]
    for module in MODULES:
        values, expected = engine.run(program, texts, module=module).values, reference.run(program, texts)
        assert (np.abs(values - expected) <= 1e-6 + 6e-7 * np.abs(table.reshape(values.shape))).all()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("residual", [False, True])
def test_norms(engine: Wasm, width: int, residual: bool) -> None:
    build = Builder(rng_of(width, residual), width, spread=2.0)
    other, out = build.register(width), build.register(width)
    gamma, beta = build.vector(width), build.vector(width)
    double = Scale(out=other, source=build.source, factor=0.5, weight=build.vector(width), bias=beta)
    more = other if residual else None
    for lengths in BATCHES:
        layer = LayerNorm(out=out, source=build.source, residual=more, gamma=gamma, beta=beta, epsilon=1e-5)
        check(engine, build.program(out, double, layer), lengths, bound=1e-5)
        plain = LayerNorm(out=build.source, source=build.source, residual=more, epsilon=1e-12 if width > 1 else 1e-3)
        check(engine, build.program(build.source, double, plain), lengths, bound=1e-4)
        rms = RmsNorm(out=out, source=build.source, residual=more, gamma=gamma)
        check(engine, build.program(out, double, rms), lengths)
        length = L2Norm(out=out, source=other)
        check(engine, build.program(out, double, length), lengths)


@pytest.mark.parametrize(("head", "heads"), [(1, 5), (7, 3), (26, 2), (64, 1)])
def test_rms_norm_of_heads(engine: Wasm, head: int, heads: int) -> None:
    build = Builder(rng_of(head, heads), 3 + head * heads + 2)
    where = {"offset": 3, "width": head * heads, "head": head}
    op = RmsNorm(out=build.source, source=build.source, gamma=build.vector(head), **where)
    for lengths in BATCHES:
        check(engine, build.program(build.source, op), lengths)


@pytest.mark.parametrize(("head", "heads", "rotary"), [(2, 3, 2), (10, 2, 6), (32, 2, 32), (64, 1, 16), (26, 3, 26)])
def test_rope(engine: Wasm, head: int, heads: int, rotary: int) -> None:
    build = Builder(rng_of(head, heads, rotary), 5 + head * heads)
    frequencies = build.tensor(pack.vector(10000.0 ** -(np.arange(0, rotary, 2) / rotary)))
    where = {"offset": 5, "heads": heads, "head": head, "rotary": rotary}
    op = Rope(target=build.source, frequencies=frequencies, scale=1.25, **where)
    for lengths in BATCHES:
        check(engine, build.program(build.source, op), lengths)


@pytest.mark.parametrize("head", [1, 5, 8, 26, 32, 64])
@pytest.mark.parametrize("heads", [(1, 1), (3, 3), (4, 2), (6, 1)])
@pytest.mark.parametrize(("causal", "window"), [(False, 0), (True, 0), (False, 1), (False, 6), (True, 9), (False, 128)])
def test_attention(engine: Wasm, head: int, heads: tuple[int, int], causal: bool, window: int) -> None:
    count, kv = heads
    width = (count + 2 * kv) * head
    build = Builder(rng_of(head, heads, causal, window), width)
    out = build.register(count * head)
    op = Attention(
        out=out,
        query=build.source,
        key=build.source,
        key_offset=count * head,
        value=build.source,
        value_offset=(count + kv) * head,
        heads=count,
        kv_heads=kv,
        head=head,
        scale=head**-0.5,
        causal=causal,
        window=window,
    )
    for lengths in ((1,), (9, 1, 13), (64,)):
        check(engine, build.program(out, op), lengths, bound=5e-6)


@pytest.mark.parametrize("head", [1, 5, 8, 26, 32, 64])
@pytest.mark.parametrize("heads", [(1, 1), (3, 3), (4, 2), (6, 1)])
@pytest.mark.parametrize(("causal", "window"), [(False, 0), (True, 0), (False, 1), (False, 6), (True, 9), (False, 128)])
def test_attention_in_integers(engine: Wasm, head: int, heads: tuple[int, int], causal: bool, window: int) -> None:
    """The reference's numbers to the last bit, but of A7, which computes in floats."""
    count, kv = heads
    build = Builder(rng_of(head, heads, causal, window), (count + 2 * kv) * head, spread=2.0)
    out = build.register(count * head)
    where = {"key_offset": count * head, "value_offset": (count + kv) * head}
    sizes = {"heads": count, "kv_heads": kv, "head": head, "scale": head**-0.5, "causal": causal, "window": window}
    source = build.source
    op = Attention(out=out, query=source, key=source, value=source, **where, **sizes, integers=True)
    program = build.program(out, op)
    for lengths in ((1,), (9, 1, 13), (63,)):
        check(engine, program, lengths, bound=5e-6, kind=Kind.A7)
        texts = texts_of(rng_of(lengths), *lengths)
        for kind in (Kind.A8, Kind.A12):
            expected = reference.run(program, texts, kind)
            for module in MODULES:
                answer = engine.run(program, texts, module=module, kind=kind)
                if "refused" not in answer.raw:
                    assert np.array_equal(answer.values, expected)


@pytest.mark.parametrize("spread", [0.0, 1e-12, 40.0])
def test_attention_in_integers_of_extreme_rows(engine: Wasm, spread: float) -> None:
    """All numbers alike, too small for a scale of their own, or scores so far apart that one key has everything."""
    build = Builder(rng_of(spread), 96, spread=spread)
    out = build.register(32)
    where = {"key_offset": 32, "value_offset": 64, "heads": 1, "kv_heads": 1, "head": 32, "scale": 1.0}
    op = Attention(out=out, query=0, key=0, value=0, **where, integers=True)
    program = build.program(out, op)
    texts = texts_of(rng_of(spread), 41)
    for kind in (Kind.A8, Kind.A12):
        values = engine.run(program, texts, module="simd", kind=kind).values
        assert np.array_equal(values, reference.run(program, texts, kind))


def test_attention_in_integers_is_near_the_same_in_floats(engine: Wasm) -> None:
    build = Builder(rng_of("near"), 96)
    out = build.register(32)
    where = {"key_offset": 32, "value_offset": 64, "heads": 1, "kv_heads": 1, "head": 32, "scale": 32**-0.5}
    texts = texts_of(rng_of("near"), 64)
    answers = [
        engine.run(build.program(out, Attention(out=out, query=0, key=0, value=0, **where, integers=integers)), texts,
                   module="simd", kind=Kind.A8).values
        for integers in (False, True)
    ]  # fmt: skip
    assert 0 < np.abs(answers[0] - answers[1]).max() < 0.02 * np.abs(answers[0]).max()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("act", list(Act))
def test_glu(engine: Wasm, width: int, act: Act) -> None:
    build = Builder(rng_of(width, act), 2 * width + 3)
    out, back = build.register(width), build.register(width)
    op = Glu(out=out, a=build.source, a_offset=1, b=build.source, b_offset=width + 2, act=act)
    # The slice's neighbours must not reach the columns that fill a row up: a product of whole rows would show them.
    for lengths in BATCHES:
        check(engine, build.program(back, op, Mul(out=back, a=out, b=out)), lengths, bound=3e-6)


@pytest.mark.parametrize("width", WIDTHS)
def test_elementwise(engine: Wasm, width: int) -> None:
    build = Builder(rng_of(width), width)
    out = build.register(width)
    source = build.source
    for lengths in BATCHES:
        check(engine, build.program(out, Add(out=out, a=source, b=source)), lengths)
        check(engine, build.program(source, Mul(out=source, a=source, b=source)), lengths)
        scaled = Scale(out=out, source=source, factor=-1.5, weight=build.vector(width), bias=build.vector(width))
        check(engine, build.program(out, scaled), lengths)


@pytest.mark.parametrize(("width", "a", "b"), [(9, (0, 9), (3, 4)), (12, (5, 7), None), (33, (1, 2), (30, 3))])
def test_concat(engine: Wasm, width: int, a: tuple[int, int], b: tuple[int, int] | None) -> None:
    build = Builder(rng_of(width), width)
    out = build.register(a[1] + (b[1] if b else 0))
    more = {"b": build.source, "b_offset": b[0], "b_width": b[1]} if b else {}
    op = Concat(out=out, a=build.source, a_offset=a[0], a_width=a[1], **more)
    for lengths in BATCHES:
        check(engine, build.program(out, op), lengths, bound=0)


@pytest.mark.parametrize("mode", list(Pool))
@pytest.mark.parametrize("width", WIDTHS)
def test_pool(engine: Wasm, mode: Pool, width: int) -> None:
    rng = rng_of(mode, width)
    build = Builder(rng, width)
    weighted = mode in (Pool.WEIGHTED_BY_SUM, Pool.WEIGHTED_BY_COUNT)
    weights = build.tensor(pack.vector(rng.uniform(0.1, 2, VOCABULARY))) if weighted else None
    out, last = build.register(width, B), build.register(3, B)
    head = build.tensor(pack.linear_f32(rng.normal(size=(3, width))))
    pool = PoolTokens(out=out, source=build.source, mode=mode, weights=weights)
    for lengths in ((1,), (4, 1, 9), (1,) * 8):
        check(engine, build.program(out, pool), lengths)
        check(engine, build.program(last, pool, Linear(out=last, source=out, weight=head)), lengths, bound=5e-6)


def table_of(dtype: DType, values: np.ndarray, *, zeros: bool, half: bool) -> Tensor:
    if dtype == DType.I8:
        return pack.table_i8(*pack.quantize_rows(values))
    if dtype == DType.I4:
        return pack.table_i4(*pack.quantize_i4(values, group=32, symmetric=not zeros, half=half), group=32)
    return pack.table_f16(values) if dtype == DType.F16 else pack.table_f32(values)


@pytest.mark.parametrize("width", [1, 5, 8, 36, 100])
@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.I8, DType.I4])
@pytest.mark.parametrize(("zeros", "half"), [(False, False), (True, True)])
def test_embed(engine: Wasm, width: int, dtype: DType, zeros: bool, half: bool) -> None:
    rng = rng_of(width, dtype)
    build = Builder(rng, width)
    values = [rng.normal(size=(rows, width)) for rows in (VOCABULARY, 66, 2)]
    tables = [build.tensor(table_of(dtype, one, zeros=zeros, half=half)) for one in values]
    build.max_position = 64
    out, square = build.register(width), build.register(width)
    op = Embed(out=out, table=tables[0], positions=tables[1], position_offset=2, types=tables[2], scale=1.5)
    for lengths in BATCHES:
        check(engine, build.program(out, op), lengths, bound=1e-6)
        check(engine, build.program(square, op, L2Norm(out=square, source=out)), lengths, bound=2e-6)
