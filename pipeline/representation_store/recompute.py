"""Compare random rows of a store with embeddings that are made again from their images.

Checksums tell that bytes are those that were written; this tells that they were the right ones.

Shapes: n rows of a unit, V views, D width.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.progress import Progress
from pipeline.representation_store.encoding import STEPS
from pipeline.representation_store.store import RepresentationStore
from pipeline.representation_store.verify import Problem

Array = NDArray[Any]
Embed = Callable[[int, Sequence[int]], Array]  # unit, its rows in ascending order → (n, V, D) float32

# How far a value may be off, relative to the largest of its row and view, when another machine or another batch
# computes it: low bits of matrix products differ. An embedding of another image is off by the order of 1.
COMPUTE_TOLERANCE: Mapping[str, float] = {"fp32": 1e-3, "bf16": 0.1}


def draw_rows(counts: Mapping[int, int], rows: int, seed: int) -> dict[int, list[int]]:
    """``rows`` different rows of a store, all if it has no more: unit → its rows, both ascending.

    Args:
        counts: committed unit → its rows.
        rows: how many.
        seed: decides which, together with ``counts``.
    """
    end_U = np.cumsum(list(counts.values()))
    total = int(end_U[-1]) if len(end_U) else 0
    units = list(counts)
    drawn: dict[int, list[int]] = {}
    for place in sorted(random.Random(seed).sample(range(total), min(rows, total))):
        index = int(np.searchsorted(end_U, place, side="right"))
        drawn.setdefault(units[index], []).append(place - int(end_U[index]) + counts[units[index]])
    return drawn


def allowed(made_nVD: Array, dtype: str, compute: str) -> Array:
    """How far stored values may be from ``made_nVD``, (n, V, D): the rounding of ``dtype`` and that of ``compute``."""
    size_nVD = np.abs(made_nVD)
    largest_nV1 = size_nVD.max(axis=-1, keepdims=True)
    rounding: Mapping[str, Array] = {
        "float32": np.zeros_like(size_nVD),
        "float16": size_nVD * 2.0**-11 + 2.0**-25,  # half a unit in the last place; below 2⁻¹⁴ it is constant
        "int8": np.broadcast_to(largest_nV1 / (2 * STEPS), size_nVD.shape),
    }
    return np.asarray(rounding[dtype] + COMPUTE_TOLERANCE[compute] * largest_nV1)


def recompute(
    store: RepresentationStore, embed: Embed, *, rows: int, seed: int, compute: str, progress: Progress
) -> list[Problem]:
    """Make ``rows`` random rows again and compare every view of them with what is stored.

    Args:
        store: with committed units.
        embed: makes the embeddings of some rows of a unit; a row is the one of the store, not of the tar.
        rows: how many.
        seed: decides which.
        compute: precision of the backbone, a key of :data:`COMPUTE_TOLERANCE`.
        progress: for a bar.
    """
    drawn = draw_rows(store.counts(), rows, seed)
    bar = progress.bar("recompute", sum(map(len, drawn.values())), "rows")
    problems = []
    for unit, chosen in drawn.items():
        stored_nVD, made_nVD = store.representation(unit)[chosen], embed(unit, chosen)
        if made_nVD.shape != stored_nVD.shape:
            raise ValueError(f"unit {unit}: embeddings of shape {made_nVD.shape}, expected {stored_nVD.shape}")
        off_nVD = np.abs(stored_nVD - made_nVD) / allowed(made_nVD, store.layout.dtype, compute).clip(1e-38)
        for place, view in np.argwhere(~(off_nVD <= 1).all(axis=-1)):  # NaN is off, too
            key = store.read("key", unit, start=chosen[place], stop=chosen[place] + 1)[0].decode()
            what = (
                f"row {chosen[place]} ({key}), view {store.layout.views[view]}: a value differs from the recomputed "
                f"one by {off_nVD[place, view].max():.3g} times what rounding explains"
            )
            problems.append(Problem(unit=unit, what=what))
        bar.advance(len(chosen))
    bar.close()
    return problems
