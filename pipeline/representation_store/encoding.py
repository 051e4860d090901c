"""How a float32 representation is stored in few bytes, and read back as numbers.

``int8``: each row and view is divided by a scale of its own, max|x| / 127, and rounded half to even, all in float32. A
row of zeros has the scale 0. Rows that were never filled have the scale NaN, so they read as NaN in every dtype.

Shapes: … any leading axes, D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Dtype = Literal["float16", "float32", "int8"]

STEPS = 127  # of int8 on either side of zero; −128 is not used, so that negating a row negates its code
_LARGEST: Mapping[str, float] = {
    "float16": float(np.finfo(np.float16).max),
    "float32": float(np.finfo(np.float32).max),
    "int8": 2.0**127,  # half of float32's range, so that scale × 127 stays finite after rounding
}


def largest(dtype: str) -> float:
    """The largest absolute value of an embedding that can be stored as ``dtype``."""
    return _LARGEST[dtype]


def in_range(embedding: Array, dtype: str) -> Array:
    """(…,) bool: whether every value of a row (…, D) is finite and can be stored as ``dtype``."""
    return np.asarray((np.abs(embedding) <= largest(dtype)).all(axis=-1))  # NaN compares false


def encode(embedding: Array, dtype: str) -> dict[str, Array]:
    """The arrays that stand for an embedding.

    Args:
        embedding: (…, D) float32, finite and at most :func:`largest`.
        dtype: of the store.

    Returns:
        ``embedding`` (…, D) of ``dtype``; for int8 also ``scale`` (…,) float32.
    """
    embedding = np.asarray(embedding, dtype=np.float32)
    if dtype != "int8":
        return {"embedding": embedding.astype(dtype)}
    scale = np.abs(embedding).max(axis=-1) / np.float32(STEPS)
    divisor = np.where(scale > 0, scale, np.float32(1))[..., None]
    # a scale so small that it has lost digits makes quotients beyond 127: they are cut
    code = np.clip(np.rint(embedding / divisor), -STEPS, STEPS)
    return {"embedding": np.where(scale[..., None] > 0, code, 0).astype(np.int8), "scale": scale}


def decode(embedding: Array, scale: Array | None) -> Array:
    """The numbers that stored arrays stand for: (…, D) float32."""
    value = embedding.astype(np.float32)
    return value if scale is None else value * scale[..., None]


def as_stored(embedding: Array, dtype: str) -> Array:
    """What a store of ``dtype`` gives back of an embedding (…, D): float32."""
    stored = encode(embedding, dtype)
    return decode(stored["embedding"], stored.get("scale"))
