"""The shape of a representation store: one Zarr v3 group, first axis of every array is the unit.

Axes: U units (input tars), R rows a unit (a capacity), V views of a row, D width of the representation,
P parameters of a view. See ``docs/design/02_store.md``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from pipeline.config import config
from pipeline.representation_store.compression import Compressor
from pipeline.representation_store.encoding import Dtype

CHUNK_BYTES = 1 << 20  # of one view's rows: large enough to stream, small enough to shuffle


@config
class UnitInfo:
    """One input tar, as the manifest or the index pass describes it; None = not known before it is read."""

    name: str
    samples: int | None = None
    bytes: int | None = None
    sha256: str | None = None


@config
class StoreLayout:
    """Everything that fixes the shapes of a store."""

    units: tuple[UnitInfo, ...]
    rows: Annotated[int, Field(ge=1)]  # R, a multiple of chunk_rows
    views: Annotated[tuple[str, ...], Field(min_length=1)]
    width: Annotated[int, Field(ge=1)]  # D
    view_params: tuple[str, ...]
    key_bytes: Annotated[int, Field(ge=1)]
    dtype: Dtype = "float16"  # of the embedding
    compressor: Compressor = "none"  # of every array's inner chunks
    compression_level: Annotated[int, Field(ge=1, le=9)] = 3  # 1 = quick, 9 = small
    chunk_rows: Annotated[int, Field(ge=1)]

    def __post_init__(self) -> None:
        if self.rows % self.chunk_rows:
            raise ValueError(f"rows ({self.rows}) must be a multiple of chunk_rows ({self.chunk_rows})")
        if len(set(self.views)) != len(self.views):
            raise ValueError(f"views must differ: {', '.join(self.views)}")

    @property
    def representation(self) -> tuple[str, ...]:
        """The arrays that an embedding is made of."""
        return ("embedding", "scale") if self.dtype == "int8" else ("embedding",)


def as_begun(layout: StoreLayout, begun: StoreLayout) -> StoreLayout:
    """``layout`` as the store of the layout ``begun`` goes on with it.

    A tar that was missing or broken when the store was begun, or is now, has another description than before, though
    it is the same unit; so for such units, and for what follows from them (rows, chunk, key width), the first one
    stays. Everything else that differs still does.
    """
    unknown = [[(unit.name, unit.samples is None) for unit in known.units] for known in (layout, begun)]
    names = [[name for name, _ in units] for units in unknown]
    if names[0] != names[1] or unknown[0] == unknown[1]:
        return layout
    units = tuple(
        old if old.samples is None or new.samples is None else new
        for old, new in zip(begun.units, layout.units, strict=True)
    )
    return replace(layout, units=units, rows=begun.rows, chunk_rows=begun.chunk_rows, key_bytes=begun.key_bytes)


def fit_rows(capacity: int, width: int, dtype: str) -> tuple[int, int]:
    """Row capacity and rows an inner chunk for units of at most ``capacity`` rows.

    A chunk of one view is a power of two of rows and about :data:`CHUNK_BYTES`; a unit smaller than that is one chunk.
    """
    capacity = max(capacity, 1)
    chunk = 1 << int(math.log2(max(CHUNK_BYTES // (width * np.dtype(dtype).itemsize), 1)))
    chunk = min(chunk, capacity)
    return math.ceil(capacity / chunk) * chunk, chunk


@dataclass(frozen=True, kw_only=True)
class ArraySpec:
    """One array: the axes after the unit axis, and what an absent row reads as."""

    axes: str  # of "R", "V", "D", "P"
    dtype: str
    fill: Any
    split_views: bool = False  # inner chunks of one view each, so that one view can be streamed alone


def array_specs(layout: StoreLayout) -> dict[str, ArraySpec]:
    """The arrays of a store, by name."""
    nan = float("nan")
    quantised = layout.dtype == "int8"
    return {
        "embedding": ArraySpec(axes="RVD", dtype=layout.dtype, fill=0 if quantised else nan, split_views=True),
        **({"scale": ArraySpec(axes="RV", dtype="float32", fill=nan)} if quantised else {}),
        "task_loss": ArraySpec(axes="RV", dtype="float32", fill=nan),
        "entropy": ArraySpec(axes="RV", dtype="float32", fill=nan),
        "top1_correct": ArraySpec(axes="RV", dtype="bool", fill=False),
        "view_params": ArraySpec(axes="RVP", dtype="float32", fill=nan),
        "label": ArraySpec(axes="R", dtype="int32", fill=-1),
        "key": ArraySpec(axes="R", dtype=f"S{layout.key_bytes}", fill=b""),
    }


#: What the frozen classifier (or the probe) says of every row and view.
SCORES = ("task_loss", "entropy", "top1_correct")


def sizes(layout: StoreLayout) -> Mapping[str, int]:
    """Length of each axis."""
    return {"R": layout.rows, "V": len(layout.views), "D": layout.width, "P": len(layout.view_params)}


def shard_shape(layout: StoreLayout, spec: ArraySpec) -> tuple[int, ...]:
    """One unit's region of an array: exactly one object."""
    length = sizes(layout)
    return (1, *(length[axis] for axis in spec.axes))


def chunk_shape(layout: StoreLayout, spec: ArraySpec) -> tuple[int, ...]:
    """What is read and checked at once inside a shard."""
    length = {**sizes(layout), "R": layout.chunk_rows}
    if spec.split_views:
        length["V"] = 1
    return (1, *(length[axis] for axis in spec.axes))


def bytes_a_row(layout: StoreLayout) -> int:
    """Bytes that a row takes up in all arrays, before compression and without checksums (4 bytes an inner chunk)."""
    length = sizes(layout)
    specs = array_specs(layout).values()
    return sum(np.dtype(spec.dtype).itemsize * math.prod(length[axis] for axis in spec.axes[1:]) for spec in specs)
