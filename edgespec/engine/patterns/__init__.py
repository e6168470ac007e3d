"""What the compiler knows: how parts of ONNX graphs look, as functions from a value to the operation that computes it.

The order matters: larger patterns come before the smaller ones that they contain.
"""

from edgespec.engine.patterns.attention import attention, rotary
from edgespec.engine.patterns.embeddings import embed
from edgespec.engine.patterns.linear import linear
from edgespec.engine.patterns.moves import concat, move
from edgespec.engine.patterns.pooling import pool, static
from edgespec.engine.patterns.recogniser import Pattern
from edgespec.engine.patterns.rowwise import activation, affine, combine, norm, unit

PATTERNS: tuple[Pattern, ...] = (
    embed,
    linear,
    attention,
    pool,
    move,
    rotary,
    unit,
    norm,
    activation,
    affine,
    combine,
    concat,
    static,
)

__all__ = ["PATTERNS"]
