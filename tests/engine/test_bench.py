"""The benchmark runs and says what its table needs; how fast anything was is not asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.engine.wasm import Wasm

ROOT = Path(__file__).parents[2]


def test_a_quick_run(engine: Wasm, tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    command = [sys.executable, ROOT / "bench" / "engine.py", "--quick", "--no-litert", "--json", target]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    assert "| path | model | tokens |" in done.stdout
    report = json.loads(target.read_text())
    assert [(row["model"], row["tokens"]) for row in report["rows"]][:2] == [("bert-tiny", 16), ("bert-tiny", 32)]
    assert all(milliseconds > 0 for row in report["rows"] for milliseconds in row["ms"].values())
