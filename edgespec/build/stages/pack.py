"""pack: the model with its head, the tokenizer and the manifest, in content-addressed chunks."""

from __future__ import annotations

import json
from typing import Any, Final

from edgespec.artifact import Chunk, FileEntry, Manifest, ModelInfo, split
from edgespec.build.problems import fail
from edgespec.build.stages.joined import joined
from edgespec.build.stages.stage import Inputs, Job, Result, Stage
from edgespec.engine.tokenizer import layout
from edgespec.values import canonical_json, sha256_hex

EDGE: Final = "edge"
ONNXRUNTIME: Final = "onnxruntime"
TOKENIZER_KEYS: Final = (
    "additional_special_tokens", "bos_token", "clean_up_tokenization_spaces", "cls_token",
    "do_lowercase_and_remove_accent", "eos_token", "mask_token", "pad_token", "remove_space", "sep_token", "unk_token",
)  # fmt: skip
"""What @huggingface/tokenizers 0.2 reads of a tokenizer_config.json."""


def _depends(inputs: Inputs) -> Inputs:
    read = {k: inputs[k] for k in ("task", "quantization", "engine", "chunk", "source_digest")}
    return {**read, "tokenizer_format": layout.VERSION}


def pack_tokenizer(data: bytes) -> bytes:
    """The same tokenizer without truncation and padding, which are the runtime's, in canonical JSON."""
    try:
        tokenizer = json.loads(data)
        if not isinstance(tokenizer, dict) or "model" not in tokenizer:
            raise ValueError("it has no model")
        return canonical_json({**tokenizer, "truncation": None, "padding": None}).encode()
    except ValueError as why:
        raise fail("ES506", f"tokenizer.json: {why}. Save it anew with transformers or tokenizers.") from None


def pack_tokenizer_config(data: bytes | None) -> bytes:
    """Only what the runtime reads; a token that is written as an object becomes its text."""
    try:
        config = json.loads(data) if data else {}
        kept: dict[str, Any] = {k: _token(config[k]) for k in TOKENIZER_KEYS if config.get(k) is not None}
    except (ValueError, AttributeError, TypeError) as why:
        raise fail("ES506", f"tokenizer_config.json: {why}.") from None
    return canonical_json(kept).encode()


def _token(value: Any) -> Any:
    if isinstance(value, list):
        return [_token(v) for v in value]
    return value["content"] if isinstance(value, dict) and "content" in value else value


def _model(job: Job, engine: str) -> tuple[str, bytes]:
    """The model's file: a program for the engine edge, an ONNX graph for onnxruntime."""
    if engine == EDGE:
        return "model.edge", job.output("compile", "model.edge")
    if "head" not in job.entries:
        return "model.onnx", job.output("quantize", "model.onnx")
    from edgespec.build.graph import encode

    return "model.onnx", encode(joined(job, "quantize"))


def _tokenizer(job: Job, tokenizer: bytes) -> dict[str, bytes]:
    """Tables that the Worker reads in place, or the JSON files where no tables can stand for them."""
    from edgespec.engine.tokenizer_tables import FILE, compile_tokenizer

    config = job.files.tokenizer_config
    packed = pack_tokenizer_config(config.read() if config else None)
    compiled = compile_tokenizer(json.loads(tokenizer))
    if compiled.data is not None:
        return {FILE: compiled.data}
    job.say(f"the tokenizer stays JSON: no tables for {', '.join(compiled.uncovered)}")
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": packed}


def _check(job: Job, engine: str, tokenizer: bytes, model: bytes) -> None:
    """Loads both and runs one text through them: what cannot work here cannot work in a Worker."""
    from edgespec.build.embed import TextEncoder, read_tokenizer

    reader = read_tokenizer(tokenizer, job.spec.task.max_tokens)
    if engine == EDGE:
        from edgespec.engine import reference

        out = reference.run(model, [reader.encode("edgespec").ids])[0]
    else:
        out = TextEncoder(model, reader).run("edgespec")
    if out.ndim != 1:
        source = job.spec.model.source
        raise fail("ES514", f"the model of {source} gives {out.ndim + 1} dimensions, not [batch, columns].")


def _run(job: Job) -> Result:
    engine = EDGE if "compile" in job.entries else ONNXRUNTIME
    name, model = _model(job, engine)
    tokenizer = pack_tokenizer(job.files.tokenizer.read())
    _check(job, engine, tokenizer, model)
    files = {name: model, **_tokenizer(job, tokenizer)}
    outputs: dict[str, bytes | memoryview] = {}
    entries = {}
    for name, data in files.items():
        pieces = split(data, job.spec.cache.weights.kv.chunk)
        chunks = tuple(Chunk(sha256_hex(bytes(p)), len(p)) for p in pieces)
        outputs |= {f"chunk/{c.sha256}": p for c, p in zip(chunks, pieces, strict=True)}
        entries[name] = FileEntry(sha256_hex(data), len(data), chunks)
    notes = job.notes("compile" if engine == EDGE else "quantize")
    task = job.spec.task.model_dump(mode="json")
    info = ModelInfo(
        inputs=tuple(notes["inputs"]),
        output="logits" if "head" in job.entries else notes["output"],
        dimensions=job.notes("head")["shape"][1] if "head" in job.entries else notes["columns"],
        quantization=job.spec.quantization.method,
    )
    manifest = Manifest(engine, task, info, entries)
    job.say(f"{manifest.digest[:12]}: {manifest.size} bytes in {len(manifest.chunks)} chunks")
    # Evaluations read the tokenizer, which an artifact holds as tables.
    return Result({"manifest.json": manifest.encode(), "tokenizer.json": tokenizer, **outputs})


STAGE = Stage("pack", 4, _depends, _run, tools=("onnx",))
