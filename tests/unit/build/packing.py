"""Checkpoints as GPTQ, AWQ and bitsandbytes write them, made by numpy: the tools' packing, written down once more."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save, save_file

from tests.tiny import LAYERS, tiny_weights, write_tiny_bert

Array = NDArray[Any]
PARTS = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
         "intermediate.dense", "output.dense")  # fmt: skip


@dataclass(frozen=True, eq=False)
class Rounded:
    """Integers [N, K], zero points and scales [N, groups], as a tool has them before it packs."""

    q: Array
    zeros: Array
    scales: Array
    group: int
    bits: int

    @property
    def wide_zeros(self) -> Array:
        return np.repeat(self.zeros, self.group, axis=1)[:, : self.q.shape[1]]

    @property
    def floats(self) -> Array:
        scales = np.repeat(self.scales.astype(np.float32), self.group, axis=1)[:, : self.q.shape[1]]
        return (self.q.astype(np.float32) - self.wide_zeros.astype(np.float32)) * scales


def rounded(weight: Array, group: int, *, bits: int = 4, symmetric: bool = False) -> Rounded:
    """Rounded to nearest, over a range that holds zero, as the tools choose it."""
    rows, columns = weight.shape
    groups, top = -(-columns // group), 2**bits - 1
    blocks = np.pad(weight, ((0, 0), (0, groups * group - columns))).reshape(rows, groups, group)
    low, high = np.minimum(blocks.min(2), 0), np.maximum(blocks.max(2), 0)
    if symmetric:
        high = np.maximum(-low, high)
        low = -high
    scales = np.maximum((high - low) / top, 1e-6).astype(np.float16)
    zeros = np.full((rows, groups), 2 ** (bits - 1)) if symmetric else np.clip(np.rint(-low / scales), 0, top)
    q = np.clip(np.rint(blocks / scales[..., None].astype(np.float32)) + zeros[..., None], 0, top)
    return Rounded(q.reshape(rows, -1)[:, :columns].astype(np.uint8), zeros.astype(np.uint8), scales, group, bits)


def words(values: Array, bits: int) -> Array:
    """int32 [words, columns] of [fields, columns], from the low bits up."""
    per_word = 32 // bits
    wide = np.pad(values.astype(np.uint32), ((0, -len(values) % per_word), (0, 0)))
    out = np.zeros((len(wide) // per_word, wide.shape[1]), np.uint32)
    for at in range(per_word):
        out |= wide[at::per_word] << np.uint32(at * bits)
    return out.view(np.int32)


def gptq(name: str, r: Rounded, *, first: bool = True) -> dict[str, Array]:
    zeros = np.ascontiguousarray(words(r.zeros, r.bits).T).view(np.uint32)
    if first:
        zeros = zeros - np.uint32(sum(1 << at for at in range(0, 32, r.bits)))
    return {
        f"{name}.qweight": np.ascontiguousarray(words(r.q.T, r.bits)),
        f"{name}.qzeros": zeros.view(np.int32),
        f"{name}.scales": np.ascontiguousarray(r.scales.T),
        f"{name}.g_idx": (np.arange(r.q.shape[1]) // r.group).astype(np.int32),
    }


def awq(name: str, r: Rounded) -> dict[str, Array]:
    def packed(values: Array) -> Array:
        """[rows of W / 8 words] of [columns, rows of W]."""
        eight = values.reshape(values.shape[0], -1, 8)[:, :, [0, 2, 4, 6, 1, 3, 5, 7]]
        return np.ascontiguousarray(words(eight.reshape(values.shape[0], -1).T, 4).T)

    return {
        f"{name}.qweight": packed(r.q.T),
        f"{name}.qzeros": packed(r.zeros.T),
        f"{name}.scales": np.ascontiguousarray(r.scales.T),
    }


def bnb(name: str, weight: Array) -> tuple[dict[str, Array], Array]:
    """The tensors, and the int8 that are in them."""
    largest = np.abs(weight).max(1)
    q = np.rint(weight * (127 / largest[:, None])).astype(np.int8)
    return {f"{name}.weight": q, f"{name}.SCB": largest, f"{name}.weight_format": np.array(0, np.uint8)}, q


def raw(tensors: dict[str, Array]) -> bytes:
    return save({k: np.ascontiguousarray(v) for k, v in tensors.items()})


def linear_names(kind_prefix: str = "bert.") -> list[str]:
    return [f"{kind_prefix}encoder.layer.{i}.{part}" for i in range(LAYERS) for part in PARTS]


def write_packed_bert(folder: Path, method: str, *, bits: int = 4, group: int = 32, symmetric: bool = True,
                      labels: tuple[str, ...] = ("no", "yes")) -> dict[str, Array]:  # fmt: skip
    """A tiny classifier whose layers a tool has quantised; what the integers are, by module."""
    tensors: dict[str, Array] = dict(tiny_weights("bert", labels))
    integers: dict[str, Array] = {}
    for name in linear_names():
        weight = tensors.pop(f"{name}.weight")
        if method == "bnb":
            parts, integers[name] = bnb(name, weight)
        else:
            even = symmetric or (bits == 8 and not integers)  # the first one tells the format
            whole = weight.shape[1] % group and (method == "awq" or weight.shape[1] < group)
            r = rounded(weight, weight.shape[1] if whole else group, bits=bits, symmetric=even)
            parts, integers[name] = (gptq if method == "gptq" else awq)(name, r), r.q
        tensors |= parts
    quantised = {"gptq": {"quant_method": "gptq", "bits": bits, "checkpoint_format": "gptq_v2"},
                 "awq": {"quant_method": "awq", "bits": 4, "version": "gemm"},
                 "bnb": {"quant_method": "bitsandbytes", "load_in_8bit": True}}[method]  # fmt: skip
    write_tiny_bert(folder, "bert", labels=labels, quantization_config=quantised)
    save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, folder / "model.safetensors")
    return integers
