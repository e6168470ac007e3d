"""For workerd.test.ts: some texts, some tokenizers as tokenizer.bin, and their ids by Python `tokenizers`, as JSON."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tokenizers import Tokenizer

from edgespec.engine.tokenizer_tables import compile_tokenizer
from tests.engine.tokenizer_corpus import corpus
from tests.engine.tokenizer_zoo import ZOO

NAMES = ("minilm", "qwen2", "xlmr")
EVERY = 11
LENGTHS = (16, 4096)


def main() -> None:
    texts = corpus()[::EVERY]
    seen = [text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in texts]
    tokenizers = []
    for name in NAMES:
        made = ZOO[name]()
        library = Tokenizer.from_str(json.dumps(made))
        library.no_padding()
        ids = []
        for length in LENGTHS:
            library.enable_truncation(max_length=length)
            ids.append([encoding.ids for encoding in library.encode_batch(seen)])
        data = compile_tokenizer(made).data
        assert data is not None
        tokenizers.append({"name": name, "file": base64.b64encode(data).decode(), "ids": ids})
    print(json.dumps({"texts": texts, "lengths": LENGTHS, "tokenizers": tokenizers}))


if __name__ == "__main__":
    main()
