"""New ids for the entries that stay: in tokenizer.json, tokenizer_config.json, config.json and the tensors."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgespec.build.problems import fail
from edgespec.build.surgery.checkpoint import Checkpoint, Tensor
from edgespec.build.surgery.families import EMBEDDINGS, OUTPUTS, embedding_of
from edgespec.build.surgery.vocabulary import Entries, Json, Selection


@dataclass(frozen=True, slots=True)
class Numbers:
    """What each new id was: [(token, old ids)], one id but for a new entry, which is the mean of several."""

    rows: tuple[tuple[str, tuple[int, ...]], ...]
    new: Mapping[int, int]
    """New ids by old ones."""


def number(entries: Entries, selection: Selection) -> Numbers:
    """The model's entries in their old order, then new ones, then added tokens that stand beside the model: the order
    in which the tokenizers library numbers them when it reads a file."""
    names = entries.tokens
    inside = set(entries.ids.values())
    rows: list[tuple[str, tuple[int, ...]]] = [(names[i], (i,)) for i in selection.kept if i in inside]
    rows += [(token, tuple(ids)) for token, ids in selection.spelled.items()]
    rows += [(names[i], (i,)) for i in selection.kept if i not in inside]
    new = {old[0]: place for place, (token, old) in enumerate(rows) if token not in selection.spelled}
    return Numbers(tuple(rows), new)


def renumber_tokenizer(tokenizer: Json, entries: Entries, numbers: Numbers) -> Json:
    """tokenizer.json with the entries that stay. The one given is left as it is."""
    out = copy.deepcopy(tokenizer)
    model, places = out["model"], {token: i for i, (token, _) in enumerate(numbers.rows)}
    if entries.kind == "Unigram":
        scores = dict(map(tuple, tokenizer["model"]["vocab"]))
        least = min(scores.values())
        model["vocab"] = [[t, scores.get(t, least)] for t, _ in numbers.rows if t not in entries.beside]
        if model.get("unk_id") is not None:
            model["unk_id"] = numbers.new[int(model["unk_id"])]
    else:
        model["vocab"] = {t: i for t, i in places.items() if t not in entries.beside}
    if entries.merges:
        model["merges"] = [
            written
            for written, (a, b) in zip(tokenizer["model"]["merges"], entries.merges, strict=True)
            if a in places and b in places and a + b in places
        ]
    for token in out.get("added_tokens") or ():
        token["id"] = numbers.new[int(token["id"])]
    out["added_tokens"] = sorted(out.get("added_tokens") or (), key=lambda t: t["id"])
    _frame(out.get("post_processor"), numbers.new)
    if out.get("padding"):
        out["padding"]["pad_id"] = numbers.new.get(int(out["padding"]["pad_id"]), 0)
    return out


def _frame(component: Json | None, new: Mapping[int, int]) -> None:
    """The special tokens around a text."""
    if not component:
        return
    for part in component.get("processors") or ():
        _frame(part, new)
    for token in (component.get("special_tokens") or {}).values():
        token["ids"] = [new[i] for i in token["ids"]]
    for key in ("cls", "sep"):
        if isinstance(pair := component.get(key), list):
            component[key] = [pair[0], new[pair[1]]]


def renumber_config(config: Json, numbers: Numbers) -> Json:
    """Ids of special tokens, and the size of the vocabulary. An id that no entry has is left out."""
    out = dict(config)
    for key in [k for k in config if k.endswith(("_token_id", "_token_ids"))]:
        value = config[key]
        found = [numbers.new.get(i) for i in (value if isinstance(value, list) else [value])]
        if None in found:
            del out[key]
        else:
            out[key] = found if isinstance(value, list) else found[0]
    return {**out, "vocab_size": len(numbers.rows)}


def renumber_tokenizer_config(config: Json, numbers: Numbers) -> Json:
    """`added_tokens_decoder` names added tokens by id."""
    if "added_tokens_decoder" not in config:
        return dict(config)
    table = {str(numbers.new[int(i)]): t for i, t in config["added_tokens_decoder"].items() if int(i) in numbers.new}
    return {**config, "added_tokens_decoder": table}


def special_ids(config: Mapping[str, Any]) -> set[int]:
    """Ids that config.json names; in RoBERTa also all up to that of padding, since positions count from it."""
    found: set[int] = set()
    for key, value in config.items():
        if key.endswith(("_token_id", "_token_ids")) and value is not None:
            found |= {int(i) for i in (value if isinstance(value, list) else [value])}
    if "roberta" in str(config.get("model_type")):
        found |= set(range(int(config.get("pad_token_id") or 0) + 1))
    return found


def renumber_rows(checkpoint: Checkpoint, numbers: Numbers, source: str) -> None:
    """The rows of the embedding table and of what scores every token."""
    size = len(checkpoint.tensors[embedding_of(checkpoint)].values)
    highest = max(max(old) for _, old in numbers.rows)
    if highest >= size:
        raise fail("ES566", f"the tokenizer of {source} has the id {highest}, the embedding table {size} rows.")
    olds = [old for _, old in numbers.rows]
    for name, tensor in checkpoint.tensors.items():
        if name.endswith((*EMBEDDINGS, *OUTPUTS)) and len(tensor.values) == size:
            rows = {i: Tensor(tensor.format, tensor.values[list(old)]) for i, old in enumerate(olds) if len(old) > 1}
            tensor.values = np.ascontiguousarray(tensor.values[[old[0] for old in olds]])
            for i, several in rows.items():
                tensor.values[i] = tensor.like(np.asarray(several.floats().mean(0), np.float32))


def check_pad(old: Mapping[str, Any], new: Mapping[str, Any], source: str) -> None:
    """RoBERTa counts positions from the id of padding: another id would shift them."""
    if "roberta" in str(old.get("model_type")) and old.get("pad_token_id") != new.get("pad_token_id"):
        raise fail(
            "ES566",
            f"the padding token of {source} would get another id, from which RoBERTa counts positions: its vocabulary "
            "cannot be pruned.",
        )


def count_alike(old: Sequence[Sequence[int]], new: Sequence[Sequence[int]], numbers: Numbers) -> int:
    """How many texts consist of the same tokens as before."""
    return sum([numbers.new.get(i) for i in a] == list(b) for a, b in zip(old, new, strict=True))
