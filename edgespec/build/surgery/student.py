"""What a student of an encoder looks like, and what it starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from edgespec.build.problems import fail
from edgespec.build.surgery.checkpoint import Checkpoint
from edgespec.build.surgery.families import Family, embedding_of, family_of, head_size
from edgespec.build.weights import FloatArray
from edgespec.spec.pipeline import Student

ANEW: Final = ("bert", "roberta", "xlm-roberta", "distilbert")
"""Teachers whose students can have other widths: they are built of the same family."""
SPREAD: Final = 0.05
"""Standard deviation of a projected embedding table; what BERTs have after training."""


@dataclass(frozen=True, slots=True)
class Shape:
    layers: int
    width: int
    heads: int
    inner: int
    kept: tuple[int, ...] | None
    """The teacher's layers that it starts from; None for new ones."""


def shape_of(student: Student, config: Mapping[str, Any], source: str) -> Shape:
    """Raises EdgespecError (ES561) for a student that is larger than its teacher, or that cannot be."""
    family = family_of(config, source)
    teacher = _teacher(config, family)
    width = student.width or teacher.width
    same = width == teacher.width
    heads = student.heads or (teacher.heads if same else max(1, width // head_size(config, family)))
    inner = student.inner or (teacher.inner if same else teacher.inner * width // teacher.width)
    layers = student.layers if isinstance(student.layers, int) else len(student.layers or range(teacher.layers))
    like = (width, heads, inner) == (teacher.width, teacher.heads, teacher.inner)
    if isinstance(student.layers, tuple) and not like:
        raise fail(
            "ES561",
            "`layers` lists layers of the teacher, which fit only a student of its width, heads and inner columns. "
            f"Write how many layers: `layers: {layers}`.",
        )
    _check_size(Shape(layers, width, heads, inner, None), teacher, source)
    if isinstance(student.layers, tuple):
        _check_layers(student.layers, teacher.layers, source)
        return Shape(layers, width, heads, inner, tuple(sorted(student.layers)))
    if like:
        return Shape(layers, width, heads, inner, tuple(i * teacher.layers // layers for i in range(layers)))
    _check_new(config, heads, width, source)
    return Shape(layers, width, heads, inner, None)


def _teacher(config: Mapping[str, Any], family: Family) -> Shape:
    return Shape(
        layers=int(config[family.layers_key]),
        width=int(config[family.width_key]),
        heads=int(config[family.heads_key]),
        inner=int(config[family.inner_key]),
        kept=None,
    )


def _check_size(student: Shape, teacher: Shape, source: str) -> None:
    for name in ("layers", "width", "heads", "inner"):
        own, other = getattr(student, name), getattr(teacher, name)
        if own > other:
            raise fail(
                "ES561", f"the student has {name} {own}, its teacher {source} {other}. A student is smaller than that."
            )


def _check_layers(kept: tuple[int, ...], layers: int, source: str) -> None:
    if absent := [i for i in kept if i >= layers]:
        named = ", ".join(map(str, absent))
        raise fail("ES561", f"`layers` has {named}; {source} has {layers}, counted from 0 to {layers - 1}.")
    if len(set(kept)) < len(kept):
        raise fail("ES561", "`layers` names a layer twice.")


def _check_new(config: Mapping[str, Any], heads: int, width: int, source: str) -> None:
    if config["model_type"] not in ANEW:
        raise fail(
            "ES561",
            f"{source} is a {config['model_type']}: its student can have fewer layers, but no other width, heads or "
            f"inner columns, which edgespec gives to students of {', '.join(ANEW)}.",
        )
    if width % heads:
        fitting = [h for h in range(1, heads + 1) if width % h == 0]
        raise fail("ES561", f"{width} columns cannot be shared between {heads} heads; {fitting[-1]} would do.")


def new_config(config: Mapping[str, Any], shape: Shape, source: str) -> dict[str, Any]:
    """config.json of a student with new layers: the teacher's in other sizes."""
    family = family_of(config, source)
    out = {k: v for k, v in config.items() if k not in ("head_dim", "layer_types")}
    sizes = zip(
        (family.layers_key, family.width_key, family.heads_key, family.inner_key),
        (shape.layers, shape.width, shape.heads, shape.inner),
        strict=True,
    )
    return {**out, **dict(sizes)}


def cut_positions(checkpoint: Checkpoint, tokens: int) -> None:
    """Only so many positions as texts have tokens, where the model has a table of them."""
    config = checkpoint.config
    name = next((n for n in checkpoint.tensors if n.endswith("position_embeddings.weight")), None)
    if name is None:
        return
    rows = min(len(checkpoint.tensors[name].values), positions_for(config, tokens))
    checkpoint.take(name, slice(rows))
    config["max_position_embeddings"] = rows
    for buffer in [
        n for n in checkpoint.tensors if n.endswith(("embeddings.position_ids", "embeddings.token_type_ids"))
    ]:
        del checkpoint.tensors[buffer]


def positions_for(config: Mapping[str, Any], tokens: int) -> int:
    """Rows of the table of positions: RoBERTa counts them from the id of padding."""
    more = int(config.get("pad_token_id") or 0) + 1 if "roberta" in str(config["model_type"]) else 0
    return min(int(config.get("max_position_embeddings") or tokens), tokens + more)


def projected(checkpoint: Checkpoint, width: int) -> FloatArray:
    """The teacher's table of tokens on its `width` main directions, the largest entry of each direction positive: the
    same on every machine but for rounding. As it is when the width is the teacher's."""
    table = checkpoint.floats(embedding_of(checkpoint)).astype(np.float64)
    if width == table.shape[1]:
        return table.astype(np.float32)
    centred: npt.NDArray[np.float64] = table - table.mean(0)
    _, directions = np.linalg.eigh(centred.T @ centred)
    main = directions[:, ::-1][:, :width]
    main = main * np.sign(main[np.argmax(np.abs(main), axis=0), np.arange(width)])
    out = centred @ main
    return np.asarray(out / out.std() * SPREAD, np.float32)
