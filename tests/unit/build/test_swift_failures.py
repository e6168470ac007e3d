from __future__ import annotations

from pathlib import Path

import pytest

from edgespec.build.swift_failures import failed
from edgespec.diagnostics import EdgespecError

LOG = Path("/project/.edgespec/logs/m-finetune.log")
CASES = [
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "ES553", "larger GPU"),
    ("RuntimeError: [enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory", "ES553", "larger"),
    ("OSError: [Errno 28] No space left on device: '/tmp/x'", "ES553", "TMPDIR"),
    ("OSError: AF_UNIX path too long", "ES550", "TMPDIR"),
    ("AssertionError: Torch not compiled with CUDA enabled", "ES552", "GPU"),
    ("ValueError: Failed to automatically match `model_type` for `/m`. Multiple possible types", "ES551", "model_type"),
    ("ValueError: remaining_argv: ['--train_type', 'lora']", "ES550", "4.6"),
    ("huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot", "ES551", "hub"),
    ("RuntimeError: Error(s) in loading state_dict for BertModel: size mismatch for x", "ES551", "config.json"),
    ("IndexError: Target 7 is out of bounds.", "ES556", "examples"),
    ("IndexError: index out of range in self", "ES556", "tokenizer"),
    ("ModuleNotFoundError: No module named 'bitsandbytes'", "ES531", "edgespec[build]"),
    ("ZeroDivisionError: division by zero", "ES550", "last words"),
]  # fmt: skip


def error(code: int, *lines: str) -> tuple[str, str]:
    why = failed(code, lines, LOG)
    assert isinstance(why, EdgespecError)
    (diagnostic,) = why.diagnostics
    return diagnostic.code, diagnostic.detail


@pytest.mark.parametrize(("line", "code", "word"), CASES, ids=[c[0][:30] for c in CASES])
def test_a_tools_words_are_translated(line: str, code: str, word: str) -> None:
    found, detail = error(1, "[INFO:swift] start", "Traceback (most recent call last):", '  File "x.py", line 3', line)
    assert found == code
    assert word in detail
    assert str(LOG) in detail
    assert line in detail


@pytest.mark.parametrize("code", [-9, 137, 247])
def test_killed_whichever_way_the_code_comes(code: int) -> None:
    found, detail = error(code, "Train: step")
    assert found == "ES555"
    assert "SIGKILL" in detail
    assert "memory" in detail


def test_ended_by_another_signal() -> None:
    found, detail = error(-11)
    assert found == "ES555"
    assert "SIGSEGV" in detail
    assert "memory" not in detail


@pytest.mark.parametrize("code", [1, 2, 3, 200, 224])
def test_other_exit_codes_are_no_signals(code: int) -> None:
    assert error(code, "what?")[0] == "ES550"


def test_an_unknown_end_of_a_quantising_tool() -> None:
    why = failed(1, ["what?"], LOG, "gptqmodel", "ES573")
    assert isinstance(why, EdgespecError)
    (diagnostic,) = why.diagnostics
    assert diagnostic.code == "ES573"
    assert "gptqmodel ended with exit code 1" in diagnostic.detail


def test_only_the_last_lines_are_shown() -> None:
    _, detail = error(1, *(f"line {i}" for i in range(50)), "", "last")
    assert "line 49" in detail
    assert "line 5\n" not in detail
    assert detail.endswith("  last")
