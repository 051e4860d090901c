"""Squared distances of pairs of rows in float64, and the closest pairs by them: the decision that nothing else changes.

Shape suffixes: N rows, D width, P pairs, B pairs of a block.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

BLOCK_ROWS = 256  # rows that are held in float64 at a time: few enough for a core's own cache


def in_blocks(count: int, size: int = BLOCK_ROWS) -> Iterator[slice]:
    """Cut ``count`` rows into slices of ``size``."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def squared_distances(row_ND: NDArray[np.float32], pair_P2: NDArray[np.int64]) -> NDArray[np.float64]:
    """(P,): sums of squares in a fixed order; the value of a pair does not depend on the pairs around it."""
    distance_P = np.empty(len(pair_P2), dtype=np.float64)
    for block in in_blocks(len(pair_P2)):
        difference_BD = np.subtract(row_ND[pair_P2[block, 0]], row_ND[pair_P2[block, 1]], dtype=np.float64)
        np.square(difference_BD, out=difference_BD)
        distance_P[block] = difference_BD.sum(axis=1)
    return distance_P


def closest_pairs(
    row_ND: NDArray[np.float32], pair_P2: NDArray[np.int64], count: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Of pairs (row, other row), the ``count`` closest of each row, the lower other rows of equally close ones.

    Returns:
        Their places among the pairs, row by row in ascending order, the closest first; and their squared distances.
    """
    distance_P = squared_distances(row_ND, pair_P2)
    order_P = np.lexsort((pair_P2[:, 1], distance_P, pair_P2[:, 0]))
    row_P = pair_P2[order_P, 0]
    rank_P = np.arange(len(row_P)) - np.searchsorted(row_P, row_P)
    keep_P = order_P[rank_P < count]
    return keep_P, distance_P[keep_P]
