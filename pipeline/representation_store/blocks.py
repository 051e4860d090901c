"""What is read at once: the blocks of a store.

Shape suffix: K blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """The blocks of a store, in its order; each holds at least one kept row.

    Attributes:
        unit_K: unit of each block.
        start_K, stop_K: its rows within the unit.
        first_K: place of its first row in the whole store.
        rows: places in the whole store of the rows that are kept, ascending.
        low_K, high_K: its part of ``rows``.
    """

    unit_K: Ints
    start_K: Ints
    stop_K: Ints
    first_K: Ints
    rows: Ints
    low_K: Ints
    high_K: Ints

    @property
    def size_K(self) -> Ints:  # noqa: N802 (a shape suffix)
        """Kept rows of each block."""
        return self.high_K - self.low_K


def blocks_of(counts: Mapping[int, int], chunk_rows: int, keep: NDArray[np.bool_] | None = None) -> Blocks:
    """Cut a store into blocks.

    Args:
        counts: committed unit → rows, in the store's order.
        chunk_rows: rows of an inner chunk.
        keep: (rows of the store,) which rows take part; None = all.
    """
    unit = np.fromiter(counts, dtype=np.int64, count=len(counts))
    size = np.fromiter(counts.values(), dtype=np.int64, count=len(counts))
    chunks = -(-size // chunk_rows)
    unit_K = np.repeat(unit, chunks)
    start_K = (np.arange(chunks.sum()) - np.repeat(np.cumsum(chunks) - chunks, chunks)) * chunk_rows
    stop_K = np.minimum(start_K + chunk_rows, np.repeat(size, chunks))
    first_K = np.repeat(np.cumsum(size) - size, chunks) + start_K
    rows = np.arange(size.sum()) if keep is None else np.flatnonzero(keep)
    low_K = np.searchsorted(rows, first_K)
    high_K = np.searchsorted(rows, first_K + stop_K - start_K)
    some = high_K > low_K
    return Blocks(
        unit_K=unit_K[some],
        start_K=start_K[some],
        stop_K=stop_K[some],
        first_K=first_K[some],
        rows=rows,
        low_K=low_K[some],
        high_K=high_K[some],
    )
