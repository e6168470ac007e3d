"""Texts on which the Worker's tokenizers and Python's must agree: over 5,000, the same every time.

The sentences and edge cases of worker_runtime/test/tokenizer-parity, and more: every code point of the two first
planes, sequences of marks, clusters, joiners, Hangul letters and white space, long words, special tokens in text.
"""

from __future__ import annotations

import importlib.util
import itertools
import random
import unicodedata
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[2] / "worker_runtime/test/tokenizer-parity"

MARKS = [*range(0x300, 0x370), 0x5B0, 0x5BC, 0x64B, 0x651, 0x670, 0x93C, 0x94D, 0x9BE, 0xE38, 0xF71, 0xF72, 0x302E]
MARKS += [0x1D165, 0x1D16D, 0x1DC0, 0x1DFB, 0x20D0, 0x20DD, 0xA953, 0xA9C0, 0xFE20, 0x1E000, 0x1E944, 0x11C3F, 0x345]
BASES = [*"aeiouAEIOUnNcCsSzZ", *"\u00e5\u00e4\u1e9b\u03b1\u03c9\u0415\u0418", *"\u05d0\u0627\u0915\u0e01\u0f40\uac00"]
SPACES = ["\t", "\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1f", " ", "\x85", "\xa0", "\u1680", "\u2000", "\u2009"]
SPACES += ["\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\u180e", "\u200b", "\ufeff"]
CLUSTERS = ["\u0600", "\u06dd", "\u070f", "\u0890", "\u0d4e", "\U000110bd", "\u200d", "\u200c", "\ufe0f", "\u0301"]
CLUSTERS += [
    "\u0903",
    "\u0c41",
    "\u094d",
    "\u0915",
    "\u0937",
    "\u093c",
    "\u09cd",
    "\u0995",
    "\u00a9",
    "\u00ae",
    "\u2122",
]
CLUSTERS += ["\u231a", "\u2764", "\U0001f468", "\U0001f3fd", "\U0001f1e6", "\U0001f1ff", "\r", "\n", "\x00", "\x7f"]
CLUSTERS += ["\u1100", "\ua960", "\u1161", "\ud7b0", "\u11a8", "\ud7cb", "\uac00", "\uac01", "a", "1", " ", "\u2460"]
CLUSTERS += [
    "\uff21",
    "\ufb01",
    "\ufdfa",
    "\u3131",
    "\uff76",
    "\uff9e",
    "\u0340",
    "\u0344",
    "\u2126",
    "\u00bd",
    "\u0e33",
]
SPECIALS = ["[CLS]", "[SEP]", "[MASK]", "[UNK]", "<s>", "</s>", "<mask>", "<unk>", "<pad>", "<|im_start|>", "<|end|>"]
SPECIALS += ["<|endoftext|>", "Tuesday", "CaSed", "naïve", "<Word>", "<half", "\u2581", "<0x41>", "  two  ", "\ufb01n"]
CODE = [
    "for i in range(10):\n\tprint(f'{i:>3}')\n\n\n# don't you're I'LL we'Ve 'S ''s '\u017f",
    "const x = a?.b ?? c; // it's 100% \u2014 done!\r\n\r\n  return x;",
    'SELECT "a", count(*) FROM t\tWHERE b <> 3.5e-7 GROUP BY 1;--',
    "https://user:pw@example.org:8080/a%20b/?q=1&r=\u00e9#frag www.x.y",
    "{\"k\": [1, -2.50, null, true], 'z': {}}\n}\n",
    "#!/bin/sh\nexit $?  \\\n  && echo \"$HOME\" | sed 's/a/b/g'",
    "1234567890 12 123 1234 12.345,67 \u0661\u0662\u0663 \u0967\u0968 \u00bd\u2163 0x1F 1e-9 \u4e00\u4e8c",
    "a  b   c    d\te \n f\r\ng  \n\n  h\u3000i \u00a0j",
]
LONE = ["\ud800", "a\udc00b", "\udfff\ud800", "x\ud83d y\ude00", "[MASK\ud800]", "\ud83d\udc00\ud83d"]


def _parity() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_corpus", FOLDER / "make_corpus.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sentences() -> list[str]:
    """What tokenizers are trained on in tests."""
    module = _parity()
    said: list[str] = [*module.SENTENCES, *CODE]
    cases = [change(text) for text in said for change in (str.upper, str.title)]
    return [*said, *module.mixtures(200), *cases, *(unicodedata.normalize("NFD", text) for text in said)]


def code_points(first: int, last: int, step: int) -> list[str]:
    """Runs of code points, with and without spaces between them."""
    texts = []
    for start in range(first, last, step):
        run = [chr(c) for c in range(start, min(start + step, last)) if not 0xD800 <= c < 0xE000]
        texts += [" ".join(run), "".join(run[:64])] if run else []
    return texts


def marks(pick: random.Random, count: int) -> list[str]:
    def one() -> str:
        return "".join(
            pick.choice(BASES) + "".join(chr(c) for c in pick.choices(MARKS, k=pick.randint(0, 5))) for _ in "abc"
        )

    return [pick.choice(["", " ", "\u0323"]).join(one() for _ in range(pick.randint(1, 12))) for _ in range(count)]


def mixed(pick: random.Random, parts: list[str], longest: int, count: int) -> list[str]:
    return ["".join(pick.choices(parts, k=pick.randint(1, longest))) for _ in range(count)]


def wild(pick: random.Random, count: int) -> list[str]:
    """Code points from anywhere, of one script or of all."""
    texts = []
    for _ in range(count):
        start = pick.choice([pick.randrange(0x3400), pick.randrange(0xA000, 0xD700), pick.randrange(0x10000, 0x20000)])
        near = [chr(start + pick.randrange(200)) for _ in range(12)]
        far = [chr(pick.choice([pick.randrange(0xD800), pick.randrange(0xE000, 0x110000)])) for _ in range(4)]
        texts.append("".join(pick.choices([*near, *near, *far, " "], k=pick.randint(2, 24))))
    return texts


def long_texts(all_sentences: list[str]) -> list[str]:
    """Longer than the parts that the Worker encodes at a time; words longer than any tokenizer's limit."""
    body = " ".join(all_sentences)
    return [
        body * 2,
        body.replace(" ", "  "),
        "".join(all_sentences[:40]) * 3,
        f"{'word ' * 500}<mask>{' word' * 500}   [SEP]   {body}",
        "a " * 1023 + "e\u0301" + " \u0301b" * 1100,
        *(
            unit * 3000
            for unit in ("x", "xy", "\u0301", "\u597d", "\U0001f600", "\uac00", "1", " ", "\n", "!", "<s>", "' ")
        ),
        *(f"{'q' * length} end" for length in (99, 100, 101, 2047, 2048, 2049)),
        *(
            f"{'long word' * 230}{joint}tail of it"
            for joint in (" ", "  ", "\n", "\u3000", "\u4e2d", "<mask>", "[SEP]")
        ),
    ]


def corpus() -> list[str]:
    module, pick = _parity(), random.Random(11)
    said: list[str] = [*module.SENTENCES, *CODE]
    words = [word for text in said for word in text.split()]
    phrases = [" ".join(pick.choices(words, k=pick.randint(2, 14))) for _ in range(600)]
    cases = [change(text) for text in said for change in (str.upper, str.lower, str.title, str.swapcase)]
    forms = [unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKC", "NFKD") for text in said]
    special = [*said[:30], *SPECIALS, *SPECIALS, *SPACES[:12], *words[:60]]
    pairs = ["".join(pair) for pair in itertools.product(CLUSTERS[:24], CLUSTERS)]
    return list(
        dict.fromkeys(
            [
                *module.corpus(),
                *said,
                *phrases,
                *cases,
                *forms,
                *code_points(0, 0x3400, 128),
                *code_points(0x3400, 0x20000, 512),
                *code_points(0xE0000, 0xE0200, 128),
                *code_points(0x2F800, 0x2FA20, 128),
                *marks(pick, 500),
                *mixed(pick, CLUSTERS, 8, 600),
                *(f"x{left}y" for left in pairs[::2]),
                *mixed(pick, [*SPACES, *SPACES, "a", "1", ".", "'s", "\u4e2d", "B"], 9, 500),
                *mixed(pick, special, 6, 700),
                *mixed(pick, [chr(c) for c in (*range(0x1100, 0x1113), *range(0x1161, 0x1176), 0x11A8)], 6, 150),
                *wild(pick, 500),
                *LONE,
                *long_texts(said),
            ]
        )
    )


if __name__ == "__main__":
    print(len(corpus()))
