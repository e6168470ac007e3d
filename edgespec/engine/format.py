"""`model.edge` (edgespec.program/v1): a typed program of fused operations and its packed weights, as one file.

Little endian; every section starts at a multiple of 64 bytes, and the bytes between sections are zero:

    header     64 bytes, `_HEADER`
    tensors    32 bytes each, `_TENSOR`: where the weights are and how they are laid out (see `Tensor`)
    registers   8 bytes each: u32 kind, u32 width
    ops        64 bytes each: u16 opcode, u16 flags, u32 args[15], in the order of the operation's fields
    weights    each tensor's data, then its aux, each at a multiple of 64 bytes from the section's start

The reader (worker_runtime/engine/program.c) checks every number before the first run and refuses what does not hold.
Registers are rows of float32, one per token or one per text; the reader gives them memory by how long they live, so a
compiler may take a fresh register for every operation. Texts of a batch are packed one after the other, unpadded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, ClassVar

from edgespec.engine.version import VERSION

MAGIC = b"EDGP"
NONE = 0xFFFFFFFF
ALIGNMENT = 64
ARGUMENTS = 15
_HEADER = struct.Struct("<4s11I16x")
_TENSOR = struct.Struct("<BBHIIIIIII")
_REGISTER = struct.Struct("<II")
_OP = struct.Struct(f"<HH{ARGUMENTS}I")


class DType(IntEnum):
    F32 = 1
    F16 = 2
    I8 = 3
    I4 = 4
    I32 = 5


class Layout(IntEnum):
    ROWS = 0
    """Row-major; a row takes `columns` rounded up to 8 elements, the rest zero: tables and vectors."""
    PANELS = 1
    """Panels of 8 output channels, as LINEAR reads them: see `pack`."""


class RegisterKind(IntEnum):
    TOKENS = 0
    TEXTS = 1


class Act(IntEnum):
    NONE = 0
    GELU_ERF = 1
    GELU_TANH = 2
    SILU = 3
    RELU = 4
    TANH = 5


class Pool(IntEnum):
    MEAN = 0
    CLS = 1
    LAST = 2
    WEIGHTED_BY_SUM = 3
    """Sum of weight[id] * row, over the sum of the weights."""
    WEIGHTED_BY_COUNT = 4
    """Sum of weight[id] * row, over the number of tokens."""


class Detail(IntEnum):
    """Bits of `Tensor.detail` for I4; for I8 in panels, `detail` is the depth that `pack.depth_of` proves."""

    SCALES_F16 = 1
    ZEROS = 2


@dataclass(frozen=True)
class Tensor:
    """`rows` x `columns` weights. Make them with `edgespec.engine.pack`, which documents `data` and `aux` by layout."""

    dtype: DType
    layout: Layout
    rows: int
    columns: int
    data: bytes = field(repr=False)
    aux: bytes = field(default=b"", repr=False)
    group: int = 0
    detail: int = 0


@dataclass(frozen=True)
class Register:
    kind: RegisterKind
    width: int


def _register() -> Any:
    return field(metadata={"arg": "register"})


def _tensor() -> Any:
    return field(metadata={"arg": "tensor"})


def _optional(arg: str) -> Any:
    return field(default=None, metadata={"arg": arg})


def _integer(default: int = 0) -> Any:
    return field(default=default, metadata={"arg": "integer"})


def _real(default: float) -> Any:
    return field(default=default, metadata={"arg": "real"})


def _bit(number: int) -> Any:
    return field(default=False, metadata={"arg": "flag", "bit": number})


@dataclass(frozen=True, kw_only=True)
class Embed:
    """out[t] = table[id] * scale (+ positions[place in the text + position_offset]) (+ types[0])."""

    opcode: ClassVar[int] = 1
    out: int = _register()
    table: int = _tensor()
    positions: int | None = _optional("tensor")
    position_offset: int = _integer()
    types: int | None = _optional("tensor")
    scale: float = _real(1.0)


@dataclass(frozen=True, kw_only=True)
class Linear:
    """out = act(source[:, offset : offset + K] @ W^T + bias) (+ residual); W is [N, K] in panels, N is out's width."""

    opcode: ClassVar[int] = 2
    out: int = _register()
    source: int = _register()
    offset: int = _integer()
    weight: int = _tensor()
    bias: int | None = _optional("tensor")
    act: Act = field(default=Act.NONE, metadata={"arg": "integer"})
    residual: int | None = _optional("register")


@dataclass(frozen=True, kw_only=True)
class LayerNorm:
    """out = layer norm over a row of source (+ residual) (* gamma) (+ beta); out may be source or residual."""

    opcode: ClassVar[int] = 3
    out: int = _register()
    source: int = _register()
    residual: int | None = _optional("register")
    gamma: int | None = _optional("tensor")
    beta: int | None = _optional("tensor")
    epsilon: float = _real(1e-5)


@dataclass(frozen=True, kw_only=True)
class RmsNorm:
    """out = x / sqrt(mean(x^2) + epsilon) (* gamma), x = source (+ residual); out may be source or residual.

    `width` 0 means whole rows. Otherwise out must be source, and only its columns offset .. offset + width change, each
    slice of `head` columns (0: the whole width) normalised by itself; gamma has `head` (or the width's) numbers.
    """

    opcode: ClassVar[int] = 4
    out: int = _register()
    source: int = _register()
    residual: int | None = _optional("register")
    gamma: int | None = _optional("tensor")
    epsilon: float = _real(1e-6)
    offset: int = _integer()
    width: int = _integer()
    head: int = _integer()


@dataclass(frozen=True, kw_only=True)
class Rope:
    """Rotate in place, the half-rotation (NeoX) way: columns offset .. offset + heads * head, the first `rotary` of
    each head, by (place in the text) * frequencies[i]; cos and sin are multiplied by `scale`.

    frequencies: F32 [1, rotary / 2].
    """

    opcode: ClassVar[int] = 5
    target: int = _register()
    offset: int = _integer()
    heads: int = _integer()
    head: int = _integer()
    rotary: int = _integer()
    frequencies: int = _tensor()
    scale: float = _real(1.0)


@dataclass(frozen=True, kw_only=True)
class Attention:
    """out[T, heads * head] = softmax(q k^T * scale) v within each text, from column slices of registers.

    q has `heads` heads, k and v have `kv_heads` (a divisor). causal: j <= i. window w > 0: |i - j| <= w // 2.
    integers: `reference` says which kinds then compute both products in integers; heads of at most 512. Engines from
    before this flag refuse a program that has it.
    """

    opcode: ClassVar[int] = 6
    out: int = _register()
    query: int = _register()
    query_offset: int = _integer()
    key: int = _register()
    key_offset: int = _integer()
    value: int = _register()
    value_offset: int = _integer()
    heads: int = _integer()
    kv_heads: int = _integer()
    head: int = _integer()
    scale: float = _real(1.0)
    window: int = _integer()
    causal: bool = _bit(0)
    integers: bool = _bit(1)


@dataclass(frozen=True, kw_only=True)
class Glu:
    """out = act(a[:, a_offset : + width]) * b[:, b_offset : + width], width being out's."""

    opcode: ClassVar[int] = 7
    out: int = _register()
    a: int = _register()
    a_offset: int = _integer()
    b: int = _register()
    b_offset: int = _integer()
    act: Act = field(default=Act.NONE, metadata={"arg": "integer"})


@dataclass(frozen=True, kw_only=True)
class Add:
    """out = a + b; all of one kind and width; out may be a or b."""

    opcode: ClassVar[int] = 8
    out: int = _register()
    a: int = _register()
    b: int = _register()


@dataclass(frozen=True, kw_only=True)
class Mul:
    """out = a * b; all of one kind and width; out may be a or b."""

    opcode: ClassVar[int] = 9
    out: int = _register()
    a: int = _register()
    b: int = _register()


@dataclass(frozen=True, kw_only=True)
class Scale:
    """out = source * factor (* weight) (+ bias): per-column weight and bias; out may be source."""

    opcode: ClassVar[int] = 10
    out: int = _register()
    source: int = _register()
    factor: float = _real(1.0)
    weight: int | None = _optional("tensor")
    bias: int | None = _optional("tensor")


@dataclass(frozen=True, kw_only=True)
class Activate:
    """out = act(source); out may be source."""

    opcode: ClassVar[int] = 11
    out: int = _register()
    source: int = _register()
    act: Act = field(default=Act.NONE, metadata={"arg": "integer"})


@dataclass(frozen=True, kw_only=True)
class PoolTokens:
    """out[B, H] from source[T, H]. The weighted modes take `weights`, F32 [1, vocabulary], by token id."""

    opcode: ClassVar[int] = 12
    out: int = _register()
    source: int = _register()
    mode: Pool = field(default=Pool.MEAN, metadata={"arg": "integer"})
    weights: int | None = _optional("tensor")


@dataclass(frozen=True, kw_only=True)
class L2Norm:
    """out = row / max(|row|, epsilon); out may be source."""

    opcode: ClassVar[int] = 13
    out: int = _register()
    source: int = _register()
    epsilon: float = _real(1e-12)


@dataclass(frozen=True, kw_only=True)
class Concat:
    """out = a[:, a_offset : + a_width] (then b[:, b_offset : + b_width]); without b it is a slice."""

    opcode: ClassVar[int] = 14
    out: int = _register()
    a: int = _register()
    a_offset: int = _integer()
    a_width: int = _integer()
    b: int | None = _optional("register")
    b_offset: int = _integer()
    b_width: int = _integer()


Op = (
    Embed
    | Linear
    | LayerNorm
    | RmsNorm
    | Rope
    | Attention
    | Glu
    | Add
    | Mul
    | Scale
    | Activate
    | PoolTokens
    | L2Norm
    | Concat
)
OPS: dict[int, type[Op]] = {
    cls.opcode: cls
    for cls in (
        Embed,
        Linear,
        LayerNorm,
        RmsNorm,
        Rope,
        Attention,
        Glu,
        Add,
        Mul,
        Scale,
        Activate,
        PoolTokens,
        L2Norm,
        Concat,
    )
}


@dataclass(frozen=True)
class Program:
    """What a file holds. `output` is a register; `max_position` 0 means that texts may have any length."""

    tensors: tuple[Tensor, ...]
    registers: tuple[Register, ...]
    ops: tuple[Op, ...]
    output: int
    max_position: int = 0

    def encode(self) -> bytes:
        return encode(self)


class FormatError(ValueError):
    """The bytes are not a program of this version."""


def padded(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def _arguments(op: Op) -> Iterator[tuple[str, str, int]]:
    """(field, what it is, flag bit) in the order of the encoding."""
    for one in fields(op):
        yield one.name, one.metadata["arg"], one.metadata.get("bit", 0)


def _encode_op(op: Op) -> bytes:
    flags, args = 0, []
    for name, arg, bit in _arguments(op):
        value = getattr(op, name)
        if arg == "flag":
            flags |= int(value) << bit
        elif arg == "real":
            args.append(struct.unpack("<I", struct.pack("<f", value))[0])
        else:
            args.append(NONE if value is None else int(value))
    return _OP.pack(op.opcode, flags, *args, *[0] * (ARGUMENTS - len(args)))


def _decode_op(data: bytes, offset: int) -> Op:
    opcode, flags, *args = _OP.unpack_from(data, offset)
    cls = OPS.get(opcode)
    if cls is None:
        raise FormatError(f"unknown operation {opcode}")
    values: dict[str, Any] = {}
    rest = iter(args)
    for one in fields(cls):
        arg = one.metadata["arg"]
        if arg == "flag":
            values[one.name] = bool(flags >> one.metadata["bit"] & 1)
            continue
        raw = next(rest)
        if arg == "real":
            values[one.name] = struct.unpack("<f", struct.pack("<I", raw))[0]
        elif one.name == "act":
            values[one.name] = Act(raw)
        elif one.name == "mode":
            values[one.name] = Pool(raw)
        else:
            values[one.name] = None if raw == NONE and one.default is None else raw
    return cls(**values)


def encode(program: Program) -> bytes:
    """The file. The same program gives the same bytes."""
    table, weights = bytearray(), bytearray()
    for tensor in program.tensors:
        places = []
        for part in (tensor.data, tensor.aux):
            places += [len(weights) if part else 0, len(part)]
            weights += part + bytes(-len(part) % ALIGNMENT)
        head = (tensor.dtype, tensor.layout, tensor.group, tensor.rows, tensor.columns)
        table += _TENSOR.pack(*head, *places, tensor.detail)
    registers = b"".join(_REGISTER.pack(one.kind, one.width) for one in program.registers)
    ops = b"".join(_encode_op(op) for op in program.ops)
    body = b"".join(part + bytes(-len(part) % ALIGNMENT) for part in (bytes(table), registers, ops))
    output = program.registers[program.output]
    counts = (len(program.tensors), len(program.ops), len(program.registers))
    places_ = (_HEADER.size + len(body), len(weights))
    result = (program.output, int(output.kind == RegisterKind.TOKENS), output.width, program.max_position, 0)
    return _HEADER.pack(MAGIC, VERSION, *counts, *places_, *result) + body + bytes(weights)


def decode(data: bytes) -> Program:
    """The program in a file. Raises FormatError; whether its numbers make sense is for the engine's loader to say."""
    try:
        return _decode(data)
    except (struct.error, ValueError) as error:
        raise FormatError(str(error)) from error


def _decode(data: bytes) -> Program:
    magic, version, tensors, ops, registers, weights, size, output, _, _, max_position, _ = _HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise FormatError("not a program of version 1")
    if weights + size > len(data):
        raise FormatError("the file is cut off")
    table = _HEADER.size
    register_table = table + padded(tensors * _TENSOR.size, ALIGNMENT)
    op_table = register_table + padded(registers * _REGISTER.size, ALIGNMENT)
    return Program(
        tensors=tuple(_decode_tensor(data, table + i * _TENSOR.size, weights) for i in range(tensors)),
        registers=tuple(_decode_register(data, register_table + i * _REGISTER.size) for i in range(registers)),
        ops=tuple(_decode_op(data, op_table + i * _OP.size) for i in range(ops)),
        output=output,
        max_position=max_position,
    )


def _decode_register(data: bytes, offset: int) -> Register:
    kind, width = _REGISTER.unpack_from(data, offset)
    return Register(RegisterKind(kind), width)


def _decode_tensor(data: bytes, offset: int, weights: int) -> Tensor:
    dtype, layout, group, rows, columns, at, size, aux_at, aux_size, detail = _TENSOR.unpack_from(data, offset)
    return Tensor(
        dtype=DType(dtype),
        layout=Layout(layout),
        rows=rows,
        columns=columns,
        data=data[weights + at : weights + at + size],
        aux=data[weights + aux_at : weights + aux_at + aux_size],
        group=group,
        detail=detail,
    )
