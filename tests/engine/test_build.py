"""The wasm modules: small, the same bytes every time, known to be stale or fresh, and asking nothing of their host."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests.engine.wasm import ENGINE, Wasm

MODULES = ("edge-relaxed.wasm", "edge-simd.wasm")


def build(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(folder / "build.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_another_folder_gives_the_same_bytes(engine: Wasm, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    shutil.copytree(ENGINE, copy, ignore=shutil.ignore_patterns("dist"))
    assert build(copy, "--check").returncode == 1
    done = build(copy)
    assert done.returncode == 0, done.stderr
    assert build(copy, "--check").returncode == 0
    for name in MODULES:
        data = (copy / "dist" / name).read_bytes()
        assert data == (ENGINE / "dist" / name).read_bytes()
        assert len(data) <= 64 * 1024
    (copy / "run.c").write_text((copy / "run.c").read_text() + "\n")
    assert build(copy, "--check").returncode == 1


def test_the_modules_import_nothing(engine: Wasm) -> None:
    manifest = json.loads((ENGINE / "dist" / "manifest.json").read_text())
    assert [one["name"] for one in manifest["files"]] == list(MODULES)
    for name in MODULES:
        assert 2 not in sections((ENGINE / "dist" / name).read_bytes()), "an import section"


def sections(module: bytes) -> list[int]:
    """Ids of a wasm module's sections."""
    assert module[:8] == b"\0asm\1\0\0\0"
    found, at = [], 8
    while at < len(module):
        found.append(module[at])
        size, shift, at = 0, 0, at + 1
        while True:
            byte = module[at]
            size, shift, at = size | (byte & 127) << shift, shift + 7, at + 1
            if byte < 128:
                break
        at += size
    return found
